"""Scorers that load a model: each against the library's own plain use of it."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from datamask.config import Config, ScorerSettings, validate
from datamask.errors import ModelError
from datamask.quality.documents import Documents
from datamask.quality.fasttext import prepare_dclm, prepare_plain, prepare_ultra_fineweb
from datamask.quality.scorers import load_scorer, pin_scorer
from tests.quality import build, models

LONG = "the lemma of the field and the definition " * 300
TEXTS = ["the proof", "buy cheap shoes now", "a", LONG, "😀😀", "\x00\x00 nul", "", "中文 and Привет", "buy " * 40]
ODD = [
    *TEXTS,
    "half \ud800 a pair",
    "😀🎉👩‍👩‍👧‍👦" * 1000,
    "x" * 100_000,
    "the lemma of a field " * 250_000,
]  # the last: 5 MB


def documents(texts: list[str] = TEXTS) -> Documents:
    return Documents(np.arange(len(texts)), texts)


def scorer(settings: ScorerSettings, config: Config):
    return load_scorer(pin_scorer(settings, config), config)


def exact(**quality) -> Config:
    return validate({"encoder": {"dtype": "float32", "device": "cpu", **quality}})


@pytest.mark.parametrize("kind", ["transformer", "prox", "fasttext"])
def test_odd_texts_are_scored_like_any_other(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    build_model = {
        "transformer": lambda: models.classifier(tmp_path / "model"),
        "prox": lambda: models.language_model(tmp_path / "model"),
        "fasttext": lambda: request.getfixturevalue("fasttext_file"),
    }
    settings = ScorerSettings(kind=kind, model=str(build_model[kind]()), label="hq" if kind == "fasttext" else None)
    found = scorer(settings, exact()).score(documents(ODD)).score
    assert len(found) == len(ODD) and np.isfinite(found).all()
    assert found[:3].tolist() == pytest.approx(
        scorer(settings, exact()).score(documents(ODD[:3])).score.tolist(), abs=1e-4
    )


# ---------------------------------------------------------------- transformers


def test_the_model_is_hashed_again_and_computes_as_its_key_says(tmp_path: Path) -> None:
    """A refresh is given the last release's reference: neither its hash nor its number format is taken on trust."""
    folder = models.classifier(tmp_path / "edu")
    settings = ScorerSettings(kind="transformer", model=str(folder))
    first = pin_scorer(settings, exact())
    assert pin_scorer(settings, exact()) == first and first.dtype == "float32"
    elsewhere = load_scorer(replace(first, dtype="bfloat16"), exact())  # made where another format was the fastest
    assert next(elsewhere._model.parameters()).dtype == torch.bfloat16
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    times = weights.stat()
    weights.write_bytes(content)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert pin_scorer(settings, exact()).fingerprint != first.fingerprint


@pytest.mark.parametrize("batch_tokens", [64, 100_000])
def test_regression_head_is_the_librarys_own(tmp_path: Path, batch_tokens: int) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = models.classifier(tmp_path / "edu")
    config = exact(batch_tokens=batch_tokens)
    found = scorer(ScorerSettings(kind="transformer", name="edu", model=str(folder)), config)
    assert found.signals == ("int_score",)
    scores = found.score(documents())
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    for text, score, (rounded,) in zip(TEXTS, scores.score, scores.signals, strict=True):
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        with torch.no_grad():
            expected = model(**inputs).logits.squeeze(-1).float().item()
        assert score == pytest.approx(expected, abs=1e-4)
        assert rounded == int(round(max(0, min(score, 5))))  # the model card's int_score
    assert scores.score.std() > 0.01


def test_classification_head_by_label(tmp_path: Path) -> None:
    from transformers import pipeline

    folder = models.classifier(tmp_path / "three", ["bad", "fair", "good"])
    settings = ScorerSettings(kind="transformer", name="good", model=str(folder), label="good", max_length=64)
    found = scorer(settings, exact()).score(documents(TEXTS[:3])).score
    oracle = pipeline("text-classification", model=str(folder), top_k=None, device="cpu")
    for text, score in zip(TEXTS[:3], found, strict=True):
        expected = {one["label"]: one["score"] for one in oracle([text])[0]}
        assert score == pytest.approx(expected["good"], abs=1e-5)
    for label, message in ((None, "label is not set"), ("god", 'no label .god.; did you mean "good"')):
        with pytest.raises(ModelError, match=message + r".*its labels: bad, fair, good"):
            scorer(settings.model_copy(update={"label": label}), exact())


def test_models_that_are_not_there_or_broken(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        pin_scorer(ScorerSettings(kind="transformer", model=str(tmp_path / "nowhere")), exact())
    folder = models.classifier(tmp_path / "edu")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelError, match="classifier .*edu"):
        scorer(ScorerSettings(kind="transformer", model=str(folder)), exact())


def test_a_model_whose_weights_are_not_numbers_names_the_documents(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    folder = models.classifier(tmp_path / "edu")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    model.save_pretrained(folder)
    path = build.corpus(tmp_path / "in", [{"text": "one text"}, {"text": "another"}])
    config, work = (
        build.configure(path, scorers=[{"kind": "transformer", "model": str(folder)}]),
        str(tmp_path / "work"),
    )
    with pytest.raises(ModelError, match=r"scorer transformer gives no number for 2 document\(s\) .* chunk_id 0, 1"):
        build.scored(config, work, build.shards(config, work))


# ---------------------------------------------------------------- ProX


@pytest.mark.parametrize("batch_tokens", [64, 100_000])
def test_prox_is_the_models_own_choice_after_the_published_prompt(tmp_path: Path, batch_tokens: int) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = models.language_model(tmp_path / "prox")
    texts = [text for text in TEXTS if text != LONG]
    config = exact(batch_tokens=batch_tokens)
    found = scorer(ScorerSettings(kind="prox", model=str(folder)), config).score(documents(texts)).score
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    system = "You are a helpful, respectful and honest assistant."
    for text, score in zip(texts, found, strict=True):
        prompt = f"<s>[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{text.strip()} [/INST] "
        chances = []
        for program in ("keep_doc()", "drop_doc()"):
            ids = tokenizer(prompt + program, add_special_tokens=False, return_tensors="pt").input_ids
            other = tokenizer(
                prompt + ("drop_doc()" if program == "keep_doc()" else "keep_doc()"), add_special_tokens=False
            )
            first = next(at for at, (a, b) in enumerate(zip(ids[0].tolist(), other["input_ids"])) if a != b)
            with torch.no_grad():
                logits = model(ids).logits[0, first - 1]
            chances.append(torch.softmax(logits, 0)[ids[0, first]].item())
        assert score == pytest.approx(chances[0] / sum(chances), abs=1e-4)
    assert found.std() > 0.001


def test_prox_reads_as_much_as_the_model_can(tmp_path: Path) -> None:
    folder = models.language_model(tmp_path / "prox", positions=256)
    found = scorer(ScorerSettings(kind="prox", model=str(folder)), exact())
    first, second = found.score(documents([LONG, LONG + "buy " * 1000])).score
    assert first == pytest.approx(second, abs=1e-6) and np.isfinite(first)
    with pytest.raises(ModelError, match="the prompt fills all 16 tokens"):
        scorer(ScorerSettings(kind="prox", model=str(folder), max_length=16), exact())


# ---------------------------------------------------------------- fastText


@pytest.fixture(scope="module")
def fasttext_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier with DCLM's labels."""
    fasttext = pytest.importorskip("fasttext")
    folder = tmp_path_factory.mktemp("fasttext")
    lines = [f"__label__hq {models.TEXTS[0]}", f"__label__cc {models.TEXTS[1]}"] * 200
    (folder / "train.txt").write_text("\n".join(lines))
    model = fasttext.train_supervised(
        str(folder / "train.txt"), dim=8, epoch=10, wordNgrams=2, bucket=1000, thread=1, verbose=0
    )
    model.save_model(str(folder / "model.bin"))
    return folder / "model.bin"


def test_preparations_by_hand() -> None:
    text = "  First  line \n\n\n\n\tSecond\r\nCafé №5  \n"
    assert prepare_plain("a\nb\r\nc") == "a b c"
    assert prepare_dclm(text) == "First  line     \tSecond Café №5"

    class Words:
        """Cuts before each white space and keeps it, as byte-level tokenizers do."""

        def encode(self, sequence: str, add_special_tokens: bool = True):
            import re
            from types import SimpleNamespace

            self.words = re.findall(r"\s?\S+|\s", sequence)
            return SimpleNamespace(ids=list(range(len(self.words))))

        def decode(self, ids, skip_special_tokens: bool = True) -> str:
            return self.words[ids[0]]

    # four newlines to two; lowercased and then decomposed: é loses its accent, № becomes No; control characters spelled
    assert prepare_ultra_fineweb(text, Words()) == "first line \\n \\n \\tsecond \\r \\ncafe No5 \\n"


def test_ultra_fineweb_with_a_real_byte_level_tokenizer() -> None:
    tokenizer = models.byte_pairs().backend_tokenizer
    prepared = prepare_ultra_fineweb("The PROOF\n\n\n\nof", tokenizer)
    ids = tokenizer.encode("the proof\n\nof", add_special_tokens=False).ids
    by_hand = " ".join(tokenizer.decode([i], skip_special_tokens=False) for i in ids).replace("\n", "\\n")
    assert prepared == " ".join(by_hand.split(" ")).replace("  ", " ").strip()


def test_dclm_is_the_published_probability(fasttext_file: Path) -> None:
    import fasttext

    model = fasttext.load_model(str(fasttext_file))
    texts = [*models.TEXTS[:2], "the proof\nof shoes\n", "\x00 nul", "", LONG, "中文"]
    found = scorer(ScorerSettings(kind="fasttext", name="dclm", model=str(fasttext_file), preparation="dclm"), Config())
    for text, score in zip(texts, found.score(documents(texts)).score, strict=True):
        (label,), (probability,) = model.predict(" ".join(text.strip().splitlines()))
        expected = 1 - probability if label == "__label__cc" else probability
        assert score == pytest.approx(expected, abs=2e-5)
        assert 0 <= score <= 1
    first, second = found.score(documents(models.TEXTS[:2])).score
    assert first > 0.6 > 0.4 > second


def test_any_classifier_by_its_label(fasttext_file: Path) -> None:
    named = scorer(ScorerSettings(kind="fasttext", model=str(fasttext_file), label="hq"), Config())
    other = scorer(ScorerSettings(kind="fasttext", model=str(fasttext_file), label="__label__cc"), Config())
    total = named.score(documents()).score + other.score(documents()).score
    np.testing.assert_allclose(total, 1, atol=1e-3)
    with pytest.raises(ModelError, match=r"name the positive label, one of hq, cc|one of cc, hq"):
        scorer(ScorerSettings(kind="fasttext", model=str(fasttext_file)), Config())
    with pytest.raises(ModelError, match=r"has no label hg; did you mean"):
        scorer(ScorerSettings(kind="fasttext", model=str(fasttext_file), label="hg"), Config())


def test_ultra_fineweb_scores_with_its_tokenizer(tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    tokenizer = models.byte_pairs()
    tokenizer.save_pretrained(tmp_path / "deepseek")
    prepared = [prepare_ultra_fineweb(text, tokenizer.backend_tokenizer) for text in models.TEXTS[:2]]
    lines = [f"__label__pos {prepared[0]}", f"__label__neg {prepared[1]}"] * 200
    (tmp_path / "train.txt").write_text("\n".join(lines))
    model = fasttext.train_supervised(str(tmp_path / "train.txt"), dim=8, epoch=10, thread=1, verbose=0)
    model.save_model(str(tmp_path / "ultra.bin"))
    settings = ScorerSettings(
        kind="fasttext",
        name="ultra",
        model=str(tmp_path / "ultra.bin"),
        preparation="ultra-fineweb",
        tokenizer=str(tmp_path / "deepseek"),
    )
    first, second = scorer(settings, Config()).score(documents(models.TEXTS[:2])).score
    (label,), (probability,) = model.predict(prepared[0])
    assert label == "__label__pos" and first == pytest.approx(min(probability, 1), abs=1e-5)
    assert second < 0.4 < first


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_truncated_fasttext_file_is_refused(fasttext_file: Path, tmp_path: Path, keep: int) -> None:
    """fastText itself loads most of these and answers with one and the same probability for every text."""
    whole = fasttext_file.read_bytes()
    (tmp_path / "short.bin").write_bytes(whole[:keep])
    settings = ScorerSettings(kind="fasttext", model=str(tmp_path / "short.bin"), label="hq")
    with pytest.raises(ModelError, match=r"short.bin(: not a fastText file| is broken: it ends after)"):
        scorer(settings, Config())


def test_quantised_files_pass_and_word_vectors_do_not(fasttext_file: Path, tmp_path: Path) -> None:
    import fasttext

    model = fasttext.load_model(str(fasttext_file))
    model.quantize(input=str(fasttext_file.parent / "train.txt"), qnorm=True, retrain=False, cutoff=0)
    model.save_model(str(tmp_path / "small.ftz"))
    found = scorer(ScorerSettings(kind="fasttext", model=str(tmp_path / "small.ftz"), label="hq"), Config())
    first, second = found.score(documents(models.TEXTS[:2])).score
    assert first > second
    whole = (tmp_path / "small.ftz").read_bytes()
    (tmp_path / "short.ftz").write_bytes(whole[:-1])
    with pytest.raises(ModelError, match="it ends after"):
        scorer(ScorerSettings(kind="fasttext", model=str(tmp_path / "short.ftz"), label="hq"), Config())
    vectors = bytearray(fasttext_file.read_bytes())
    vectors[8 + 7 * 4 : 8 + 8 * 4] = struct.pack("<i", 2)  # model: skip-gram
    (tmp_path / "vectors.bin").write_bytes(vectors)
    with pytest.raises(ModelError, match="word vectors, not a classifier"):
        scorer(ScorerSettings(kind="fasttext", model=str(tmp_path / "vectors.bin"), label="hq"), Config())
    with pytest.raises(ModelError, match=r"no such file.*hf download"):
        pin_scorer(ScorerSettings(kind="fasttext", model=str(tmp_path / "nothing.bin"), label="hq"), Config())
