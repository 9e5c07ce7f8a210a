"""Models people really use: found, pinned, checked, or refused with the fix named."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW, StaticEmbedding
from transformers import AutoTokenizer

from datamask import storage
from datamask.devices import cpu_has_bfloat16, pick_device, pick_dtype
from datamask.encoders.choose import prepare_encoder, prepare_tokenizer
from datamask.encoders.embed import embed_shard
from datamask.encoders.encode import StaticEncoder
from datamask.encoders.load import load_encoder
from datamask.encoders.models import TransformerEncoder, WholeEncoder
from datamask.errors import ConfigError, InputError, ModelError
from datamask.models.encoder_ref import EncoderRef
from datamask.models.locate import local_folder
from datamask.models.tokens import load_tokenizer
from datamask.pipeline import STAGES
from tests.encoders.conftest import Corpus, save_encoder, sentences, settings

Make = Callable[..., Corpus]


def prepared(corpus: Corpus, **encoder: object) -> EncoderRef:
    return prepare_encoder([corpus.shard], settings(**encoder), corpus.work)


def vectors_of(corpus: Corpus, **encoder: object) -> np.ndarray:
    config = settings(**encoder)
    output = embed_shard(corpus.files, prepared(corpus, **encoder), config, corpus.work)
    return np.stack(storage.read_table(output.path)["feature_arr"].to_pylist()).astype(np.float32)


def test_a_smaller_model_is_refused_with_the_fix(make_corpus: Make, bert: Path) -> None:
    with pytest.raises(ModelError, match=r"64 dimensions, encoder.dimensions is 768; set encoder.dimensions=64"):
        prepared(make_corpus(sentences(3)), model=str(bert), dimensions=768)


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "a/b/c"])
def test_an_absent_folder(make_corpus: Make, name: str) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        prepared(make_corpus(sentences(3)), model=name)


@pytest.mark.parametrize("revision", [None, "0" * 40])
def test_an_absent_hub_model_says_where_it_looked(
    make_corpus: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, revision: str | None
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError) as caught:
        prepared(make_corpus(sentences(3)), model="nobody/no-such-model", revision=revision)
    message = str(caught.value)
    for part in ("nobody/no-such-model", "Looked for: the folder", "the cache", "HF_HUB_OFFLINE", "hf download"):
        assert part in message, message
    assert "\n" not in message


def test_a_folder_that_is_no_model(make_corpus: Make, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="not a model folder that sentence-transformers can load"):
        prepared(make_corpus(sentences(3)), model=str(tmp_path / "folder"))


def test_a_changed_folder_is_another_encoder(make_corpus: Make, bert: Path, tmp_path: Path) -> None:
    corpus = make_corpus(sentences(3))
    shutil.copytree(bert, tmp_path / "copy")
    first = prepared(corpus, model=str(tmp_path / "copy"))
    settings_file = tmp_path / "copy" / "sentence_bert_config.json"
    settings_file.write_text(json.dumps({**json.loads(settings_file.read_text()), "do_lower_case": False}))
    assert prepared(corpus, model=str(tmp_path / "copy")).fingerprint != first.fingerprint


def test_a_cached_hub_model_is_pinned_offline(
    make_corpus: Make, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c" * 40
    folder = tmp_path / "hub" / "models--someone--model"
    shutil.copytree(bert, folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    corpus = make_corpus(sentences(3))
    ref = prepared(corpus, model="someone/model")
    assert ref.revision == commit and ref.as_dict()["revision"] == commit
    other = "d" * 40
    shutil.copytree(bert, folder / "snapshots" / other)
    again = prepared(corpus, model="someone/model", revision=other)
    assert again.revision == other and again.fingerprint != ref.fingerprint


def test_the_models_own_prompt_is_the_default(make_corpus: Make, bert: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(bert), device="cpu", prompts={"query": "find: ", "document": "the town: "})
    model.save(str(tmp_path / "prompted"), create_model_card=False)
    texts = sentences(10)
    corpus = make_corpus(texts)
    assert prepared(corpus, model=str(tmp_path / "prompted")).prompt == "the town: "
    expected = SentenceTransformer(str(tmp_path / "prompted"), device="cpu").encode_document(texts)
    assert np.abs(vectors_of(corpus, model=str(tmp_path / "prompted"), dtype="float32") - expected).max() < 1e-3


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "lasttoken", "weightedmean"])
def test_every_pooling(make_corpus: Make, bert: Path, tmp_path: Path, mode: str) -> None:
    body = next(path.parent for path in bert.parent.rglob("body/config.json"))
    save_encoder(tmp_path / mode, body, pooling_mode=mode, include_prompt=False)
    texts = sentences(12)
    config = {"model": str(tmp_path / mode), "dtype": "float32", "prompt": "the night: "}
    expected = SentenceTransformer(str(tmp_path / mode), device="cpu").encode(texts, prompt="the night: ")
    assert np.abs(vectors_of(make_corpus(texts), **config) - expected).max() < 1e-3


def test_a_plain_transformer_folder_gets_mean_pooling(make_corpus: Make, bert: Path) -> None:
    """contriever and the like come without modules.json."""
    body = next(path.parent for path in bert.parent.rglob("body/config.json"))
    texts = sentences(12)
    expected = SentenceTransformer(str(body), device="cpu").encode(texts, normalize_embeddings=True)
    assert np.abs(vectors_of(make_corpus(texts), model=str(body), dtype="float32") - expected).max() < 1e-3


def test_a_static_model_by_folder(make_corpus: Make, tokenizer: object, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(len(tokenizer), 96)).astype(np.float32)  # type: ignore[arg-type]
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, weights)], device="cpu")
    model.save(str(tmp_path / "static"), create_model_card=False)
    texts = sentences(12)
    expected = model.encode(texts, truncate_dim=64, normalize_embeddings=True)
    corpus = make_corpus(texts)
    assert np.abs(vectors_of(corpus, model=str(tmp_path / "static"), dtype="float32") - expected).max() < 1e-3
    assert isinstance(load_encoder(prepared(corpus, model=str(tmp_path / "static"), dtype="float32")), StaticEncoder)


def test_any_other_model_by_its_own_encode(make_corpus: Make, tmp_path: Path) -> None:
    texts = sentences(12)
    vocabulary = sorted({word for text in texts for word in text.split()})
    model = SentenceTransformer(modules=[BoW(vocabulary)], device="cpu")
    model.save(str(tmp_path / "bow"), create_model_card=False)
    found = vectors_of(make_corpus(texts), model=str(tmp_path / "bow"), dimensions=len(vocabulary), dtype="float32")
    assert np.abs(found - model.encode(texts, normalize_embeddings=True)).max() < 1e-3


def test_kinds_of_encoder(make_corpus: Make, bert: Path) -> None:
    corpus = make_corpus(sentences(5))
    assert isinstance(load_encoder(prepared(corpus)), StaticEncoder)
    assert isinstance(load_encoder(prepared(corpus, model=str(bert))), TransformerEncoder)
    assert not isinstance(load_encoder(prepared(corpus, model=str(bert))), WholeEncoder)


def test_a_prompt_that_fills_the_window(make_corpus: Make, bert: Path) -> None:
    with pytest.raises(ModelError, match="raise encoder.max_length or shorten encoder.prompt"):
        prepared(make_corpus(sentences(3)), model=str(bert), prompt="water and boats " * 20, max_length=16)


@pytest.mark.parametrize("max_length", [8, 33, 500])
def test_the_window_is_the_librarys(make_corpus: Make, bert: Path, max_length: int) -> None:
    texts = sentences(20, longest=150)
    model = SentenceTransformer(str(bert), device="cpu")
    model.max_seq_length = min(max_length, model.max_seq_length)
    found = vectors_of(make_corpus(texts), model=str(bert), dtype="float32", max_length=max_length)
    assert np.abs(found - model.encode(texts)).max() < 1e-3


def test_attention_is_fused(make_corpus: Make, bert: Path) -> None:
    encoder = load_encoder(prepared(make_corpus(sentences(3)), model=str(bert)))
    assert encoder._model.transformers_model.config._attn_implementation == "sdpa"


def test_openvino(make_corpus: Make, bert: Path) -> None:
    """Runs where `pip install 'datamask[openvino]'` was run."""
    pytest.importorskip("optimum.intel")
    texts = [*sentences(40), "word " * 300]
    found = vectors_of(make_corpus(texts), model=str(bert), backend="openvino")
    expected = SentenceTransformer(str(bert), device="cpu").encode(texts)
    assert (found * expected).sum(axis=1).min() > 0.999


@pytest.mark.parametrize(
    ("backend", "package"), [("onnx", "'optimum-onnx[onnxruntime]'"), ("openvino", "'datamask[openvino]'")]
)
def test_backends_name_the_package_they_need(make_corpus: Make, bert: Path, backend: str, package: str) -> None:
    if importlib.util.find_spec("optimum"):
        pytest.skip("optimum is installed")
    with pytest.raises(ModelError, match=re.escape(f"pip install {package}")):
        prepared(make_corpus(sentences(3)), model=str(bert), backend=backend)


def test_a_model_that_brings_code_is_refused(make_corpus: Make, bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "custom")
    modules = json.loads((tmp_path / "custom" / "modules.json").read_text())
    modules[2]["type"] = "custom.Evil"
    (tmp_path / "custom" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "custom" / "custom.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelError, match="trust_remote_code"):
        prepared(make_corpus(sentences(3)), model=str(tmp_path / "custom"))


def test_a_model_that_brings_code_runs_when_trusted(make_corpus: Make, bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "custom")
    modules = json.loads((tmp_path / "custom" / "modules.json").read_text())
    modules[2]["type"] = "reverse.Reverse"
    (tmp_path / "custom" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "custom" / "reverse.py").write_text(
        "from sentence_transformers.sentence_transformer.modules import Normalize\n"
        "class Reverse(Normalize):\n"
        "    def forward(self, features):\n"
        "        return {**features, 'sentence_embedding': features['sentence_embedding'].flip(1)}\n"
    )
    texts = sentences(5)
    corpus = make_corpus(texts)
    found = vectors_of(corpus, model=str(tmp_path / "custom"), trust_remote_code=True, dtype="float32")
    plain = SentenceTransformer(str(bert), device="cpu").encode(texts)
    assert np.abs(found - plain[:, ::-1]).max() < 1e-3
    assert prepared(corpus, model=str(tmp_path / "custom"), trust_remote_code=True).trust_remote_code


def test_dtype_follows_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert pick_dtype("float32", cpu) == "float32"
    assert pick_dtype("auto", cpu) == ("bfloat16" if cpu_has_bfloat16() else "float32")
    if not torch.cuda.is_available():
        assert pick_device("auto") == cpu
        with pytest.raises(ConfigError, match="0 CUDA devices are here .*; use device cpu, or auto"):
            pick_device("cuda:1")


def test_the_fitted_encoder_survives_a_refresh(make_corpus: Make, tmp_path: Path) -> None:
    corpus = make_corpus(sentences(60))
    first = prepared(corpus)
    (tmp_path / "more").mkdir()
    more = Corpus(tmp_path / "more", sentences(90))
    config = settings()
    assert prepare_encoder([corpus.shard, more.shard], config, corpus.work, first) == first
    assert prepare_encoder([corpus.shard, more.shard], config, corpus.work) != first
    changed = prepare_encoder([corpus.shard, more.shard], settings(vocabulary=700), corpus.work, first)
    assert changed.fingerprint != first.fingerprint
    mean = prepare_encoder([corpus.shard, more.shard], settings(long_documents="mean"), corpus.work, first)
    assert mean.path == first.path and mean.fingerprint != first.fingerprint


@pytest.mark.parametrize("lost", [False, True])
def test_a_tokenizer_fitted_first_changes_nothing(make_corpus: Make, tmp_path: Path, lost: bool) -> None:
    corpus, config = make_corpus(sentences(200)), settings()
    whole = prepare_encoder([corpus.shard], config, corpus.work)
    work = str(tmp_path / "other")
    counter = prepare_tokenizer([corpus.shard], config, work)
    assert counter == replace(whole, path=f"{work}/tokenizer/{Path(whole.path).name}")
    assert prepare_tokenizer([corpus.shard], config, work) == counter
    left = Path(work, "rounds")
    if lost:  # by a kill between the two
        shutil.rmtree(left)
    encoder = prepare_encoder([corpus.shard], config, work)
    assert encoder == replace(whole, path=f"{work}/encoder/{Path(whole.path).name}")
    files = [path.relative_to(whole.path) for path in Path(whole.path).rglob("*") if path.is_file()]
    assert all(Path(whole.path, name).read_bytes() == Path(encoder.path, name).read_bytes() for name in files)
    assert Path(counter.path, "tokenizer.json").read_bytes() == Path(whole.path, "tokenizer.json").read_bytes()
    assert not left.exists() or not list(left.iterdir())
    assert prepare_tokenizer([corpus.shard], config, work) == encoder
    assert load_tokenizer(counter) is load_tokenizer(encoder)


def test_tokenizer_of_a_folder_without_tokenizer_json(make_corpus: Make, bert: Path, tmp_path: Path) -> None:
    ref = prepared(make_corpus(sentences(3)), model=str(bert))
    tokenizer = AutoTokenizer.from_pretrained(bert)
    assert load_tokenizer(ref).count(["water"]).tolist() == [len(tokenizer.tokenize("water"))]


def test_the_encoder_of_an_earlier_version_is_fitted_anew_and_that_is_said(
    make_corpus: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = make_corpus(sentences(60))
    with monkeypatch.context() as earlier:
        earlier.setitem(STAGES, "encoder", replace(STAGES["encoder"], version=2))
        first = prepare_encoder([corpus.shard], settings(), corpus.work)
    assert not caplog.records
    now = prepare_encoder([corpus.shard], settings(), corpus.work, first)
    assert now.fingerprint != first.fingerprint and now.path != first.path
    (record,) = caplog.records
    assert "earlier version of datamask" in record.getMessage() and "embedded again" in record.getMessage()
    caplog.clear()
    assert prepare_encoder([corpus.shard], settings(), corpus.work, now) == now
    assert not caplog.records


def remote_model(files: dict[str, bytes]) -> str:
    """A folder in a store of this test's own."""
    import fsspec

    url = f"memory://models/{uuid4().hex}"
    for name, content in files.items():
        with fsspec.open(f"{url}/{name}", "wb") as file:
            file.write(content)
    return url


def test_a_model_is_fetched_to_a_place_that_nobody_foresees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever could foresee it would put a model of theirs there before us."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = (Path(local_folder(remote_model({"modules.json": b"[]"}))) for _ in range(2))
    assert first != second and (first / "modules.json").read_bytes() == b"[]"
    for folder in (first, second):
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o077 == 0


def test_a_model_in_a_store_leads_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store's keys may hold any characters."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    url = remote_model({"modules.json": b"[]"})
    fs, path = storage.filesystem(url)
    monkeypatch.setattr(fs, "find", lambda _: [f"{path}/modules.json", f"{path}/../../taken.txt"])
    monkeypatch.setattr(fs, "get_file", lambda remote, local: Path(local).write_bytes(b"taken"))
    with pytest.raises(InputError, match=r"a file whose name leads out of it: .*taken\.txt"):
        local_folder(url)
    assert not list(tmp_path.rglob("taken.txt"))
