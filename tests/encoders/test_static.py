"""The static encoder: an ordinary sentence-transformers folder, the same bytes every time, topics apart."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from datamask.encoders import static
from datamask.encoders.choose import fit_static_encoder
from datamask.encoders.counts import WordSample, count_tokens
from datamask.encoders.load import load_encoder
from datamask.errors import InputError
from datamask.models.encoder_ref import EncoderRef
from tests.encoders.conftest import sentences, settings

TOPICS = {
    "sea": "ship sail wave harbour captain salt anchor gull tide rope deck storm".split(),
    "code": "function return variable loop compile error stack pointer memory array string class".split(),
    "food": "bread butter oven flour sugar knead bake crust salt dough recipe spoon".split(),
}
COMMON = "the a of and to in is it that was for on".split()


def topics(count: int, seed: int) -> tuple[list[str], list[str]]:
    generator = np.random.default_rng(seed)
    labels = [list(TOPICS)[i % 3] for i in range(count)]
    texts = [
        " ".join(generator.permutation([*generator.choice(TOPICS[label], 6), *generator.choice(COMMON, 20)]))
        for label in labels
    ]
    return texts, labels


def folder_hash(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return hashlib.sha256(b"".join(str(f.relative_to(folder)).encode() + f.read_bytes() for f in files)).hexdigest()


def test_it_tells_topics_apart(tmp_path: Path) -> None:
    texts, _ = topics(300, 0)
    fit_static_encoder(texts, settings().encoder, str(tmp_path / "model"))
    held_out, labels = topics(90, 1)
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    vectors = model.encode(held_out)
    assert vectors.shape == (90, 64)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -2)
    nearest = similarity.argmax(axis=1)
    assert np.mean([labels[i] == labels[j] for i, j in enumerate(nearest)]) > 0.95


@pytest.mark.parametrize("texts", [["one text alone"], ["a b c", "d e f"], ["\x00"], ["same words"] * 30])
def test_fewer_documents_than_dimensions(tmp_path: Path, texts: list[str]) -> None:
    fit_static_encoder(texts, settings(dimensions=768).encoder, str(tmp_path / "model"))
    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode([*texts, "words never seen 😀"])
    assert vectors.shape == (len(texts) + 1, 768)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)


def test_unseen_texts_have_directions_of_their_own(tmp_path: Path) -> None:
    fit_static_encoder(sentences(200), settings().encoder, str(tmp_path / "model"))
    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(
        ["漢字仮名", "ελληνικά", "😀🎉", "漢字仮名"]
    )
    similarity = vectors @ vectors.T
    assert np.isclose(similarity[0, 3], 1, atol=1e-5)
    assert similarity[0, 1] < 0.99 and similarity[0, 2] < 0.99


def one_group(texts: list[str]) -> np.ndarray:
    return np.zeros(len(texts), np.int64)


def test_it_is_lsa() -> None:
    """Cosines follow those of TF-IDF + SVD on the same tokens, straight from scikit-learn."""
    texts, _ = topics(400, 0)
    sample = WordSample.of(texts, 512)
    tokenizer = static.fit_tokenizer(sample, one_group(texts), 600)
    counts = count_tokens(sample, tokenizer)
    vectors = static.fit_vectors(counts, one_group(texts), 16, seed=0)
    ours = counts @ vectors
    ours -= ours.mean(axis=0)
    ours /= np.linalg.norm(ours, axis=1, keepdims=True)

    from sklearn.decomposition import TruncatedSVD

    split = lambda text: tokenizer.encode(text).tokens  # noqa: E731
    weighted = TfidfVectorizer(tokenizer=split, lowercase=False, token_pattern=None, sublinear_tf=True).fit_transform(
        texts
    )
    theirs = TruncatedSVD(17, random_state=0).fit_transform(weighted)[:, 1:]  # ours has the mean taken off
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    upper = np.triu_indices(len(texts), 1)
    assert np.corrcoef((ours @ ours.T)[upper], (theirs @ theirs.T)[upper])[0, 1] > 0.9


def test_the_folder_is_what_sentence_transformers_would_write(tmp_path: Path) -> None:
    """Loaded, saved and loaded by that library: the same vectors; and ours are the library's."""
    texts = sentences(200)
    fit_static_encoder(texts, settings().encoder, str(tmp_path / "model"))
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert [type(module).__name__ for module in model] == ["StaticEmbedding", "Normalize"]
    model.save(str(tmp_path / "again"), create_model_card=False)
    theirs = SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(texts)
    assert np.array_equal(theirs, model.encode(texts))
    ref = EncoderRef("static", "static", str(tmp_path / "model"), None, str(tmp_path), 64, 512, "first", "", "float32")
    encoder = load_encoder(ref, "cpu")
    assert np.allclose(encoder.compute(encoder.tokenise(texts), 1000).vectors, theirs, atol=1e-6)


# ---------------------------------------------------------------- languages

LETTERS = {
    "latin": "abcdefghijklmnop",
    "greek": "αβγδεζηθικλμνξοπ",
    "thai": "กขคงจฉชซญดตถทธนบ",
    "lao": "ກຂຄງຈຊຍດຕຖທນບປຜພ",
}


def language(script: str, documents: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts of an invented language: fourteen words in every text, ten of the thirty of one of three topics."""
    generator = np.random.default_rng(seed)
    words = ["".join(generator.choice(list(LETTERS[script]), generator.integers(2, 7))) for _ in range(104)]
    labels = generator.integers(3, size=documents)
    texts = [
        " ".join(generator.permutation([*words[:14], *generator.choice(words[14 + 30 * label :][:30], 10)]))
        for label in labels
    ]
    return texts, labels


def test_documents_of_a_small_language_are_apart_and_by_topic(tmp_path: Path) -> None:
    sizes = {"latin": 900, "greek": 60, "thai": 40, "lao": 24}
    languages = {script: language(script, size, 7) for script, size in sizes.items()}
    fit_static_encoder(
        [text for texts, _ in languages.values() for text in texts],
        settings(vocabulary=2000).encoder,
        str(tmp_path / "m"),
    )
    model = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    for texts, labels in languages.values():
        vectors = model.encode(texts)
        cosines = vectors @ vectors.T
        np.fill_diagonal(cosines, np.nan)
        assert np.nanmedian(cosines) < 0.3
        np.fill_diagonal(cosines, -2)
        assert np.mean(labels[cosines.argmax(axis=1)] == labels) > 0.9


def test_texts_of_languages_with_one_text_each_are_apart(tmp_path: Path) -> None:
    """Neither a group of one, nor one whose documents are all the same, leaves its tokens without a direction."""
    alone = [language(script, 1, 3)[0][0] for script in ("greek", "thai")] + ["ለሁሉም ሰው መብት"] * 8 + ["மனித உரிமை"] * 8
    fit_static_encoder([*language("latin", 300, 7)[0], *alone], settings(vocabulary=1000).encoder, str(tmp_path / "m"))
    vectors = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode([*dict.fromkeys(alone)])
    cosines = vectors @ vectors.T
    assert np.abs(cosines[np.triu_indices(4, 1)]).max() < 0.5


@pytest.mark.slow
def test_threads_and_hash_seeds_change_no_byte(tmp_path: Path) -> None:
    """In processes of their own: a library's pool takes its size when it is loaded, which may be late."""
    code = (
        "import sys; from tests.encoders.conftest import sentences, settings; from tests.encoders.test_static import *;"
        "from datamask.encoders.choose import fit_static_encoder;"
        "texts = sentences(300) + [t for s in LETTERS for t in language(s, 900, 1)[0]];"
        "fit_static_encoder(texts, settings(dimensions=128, vocabulary=3000).encoder, sys.argv[1])"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    hashes = set()
    for threads in ("1", "2", ""):
        limits = dict.fromkeys(names, threads) if threads else {}
        environment = {**plain, **limits, "PYTHONHASHSEED": threads or "0"}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / f"m{threads}")], check=True, env=environment)
        hashes.add(folder_hash(tmp_path / f"m{threads}"))
    assert len(hashes) == 1


def test_no_text_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to fit"):
        fit_static_encoder([], settings().encoder, str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_a_full_disk_is_said_once_and_leaves_nothing(tmp_path, monkeypatch):
    import errno
    import shutil

    from datamask.encoders.choose import publish_folder
    from datamask.errors import StorageError

    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "modules.json").write_text("[]")
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match=r"^cannot write .*: No space left on device; free some space") as found:
        publish_folder(tmp_path / "model", str(tmp_path / "out" / "key"))
    assert not found.value.retryable
    assert not list((tmp_path / "out").iterdir())
