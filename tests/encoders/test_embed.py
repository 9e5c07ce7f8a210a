"""A shard to its embeddings file: one row per document, the same bytes again, the same vectors in any batches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sentence_transformers import SentenceTransformer

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.reading import Batch, ShardReading
from datamask.encoders import embed
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.embed import embed_shard
from datamask.errors import ConservationError, ModelError
from datamask.models.encoder_ref import EncoderRef
from datamask.models.load import MODELS, ModelCache
from datamask.models.tokens import load_tokenizer
from tests.encoders.conftest import Corpus, sentences, settings
from tests.encoders.test_tokens import ODD

Make = Callable[..., Corpus]


def embedded(
    corpus: Corpus, config: Config, encoder: EncoderRef | None = None
) -> tuple[np.ndarray, np.ndarray, storage.Output]:
    encoder = encoder or prepare_encoder([corpus.shard], config, corpus.work)
    output = embed_shard(corpus.files, encoder, config, corpus.work)
    table = storage.read_table(output.path)
    vectors = np.stack(table["feature_arr"].to_pylist()).astype(np.float32) if len(table) else np.zeros((0, 0))
    return table["chunk_id"].to_numpy(), vectors, output


def small_windows(monkeypatch: pytest.MonkeyPatch, documents: int) -> None:
    monkeypatch.setattr(embed, "WINDOW_DOCUMENTS", documents)


@pytest.mark.parametrize("model", ["static", "bert"])
def test_a_row_per_document(make_corpus: Make, bert: Path, model: str) -> None:
    texts: list[str | None] = [*sentences(250)]
    for row in (0, 7, 249):
        texts[row] = None
    corpus = make_corpus(texts, quarantined=(0, 7, 249))
    config = settings(model="static" if model == "static" else str(bert))
    seen: list[int] = []
    encoder = prepare_encoder([corpus.shard], config, corpus.work)
    output = embed_shard(corpus.files, encoder, config, corpus.work, seen.append)
    assert sum(seen) == output.rows == 247 and not output.cached
    ids, vectors, again = embedded(corpus, config, encoder)
    assert again.cached and again.facts == output.facts
    assert ids.tolist() == [i for i in range(250) if i not in (0, 7, 249)]
    assert vectors.shape == (247, 64)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)
    schema = storage.read_table(output.path).schema
    assert schema.field("feature_arr").type == pa.list_(pa.float16(), 64)


def test_same_vectors_as_the_library(make_corpus: Make, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 32)
    texts = [*sentences(100), "word " * 500]
    corpus = make_corpus(texts)
    _, vectors, _ = embedded(corpus, settings(model=str(bert), dtype="float32", batch_tokens=300))
    expected = SentenceTransformer(str(bert), device="cpu").encode(texts)
    assert np.abs(vectors - expected).max() < 1e-3


@pytest.mark.parametrize("model", ["static", "bert"])
def test_batch_composition_is_rounding_only(
    make_corpus: Make, bert: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    corpus = make_corpus(sentences(60))
    found = []
    for budget, documents in ((128, 7), (1000, 25), (100_000, 1000)):
        small_windows(monkeypatch, documents)
        config = settings(model="static" if model == "static" else str(bert), batch_tokens=budget, dtype="float32")
        encoder = prepare_encoder([corpus.shard], config, corpus.work)
        _, vectors, output = embedded(corpus, config, encoder)
        Path(output.path).unlink()
        found.append(vectors)
    assert np.abs(found[0] - found[2]).max() < 1e-3 and np.abs(found[1] - found[2]).max() < 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_second_run_gives_the_same_bytes(make_corpus: Make, bert: Path, dtype: str) -> None:
    corpus = make_corpus(sentences(150))
    config = settings(model=str(bert), dtype=dtype, batch_tokens=500)
    encoder = prepare_encoder([corpus.shard], config, corpus.work)
    bytes_found = []
    for _ in range(2):
        output = embed_shard(corpus.files, encoder, config, corpus.work)
        bytes_found.append(Path(output.path).read_bytes())
        Path(output.path).unlink()
        MODELS._models.clear()
    assert bytes_found[0] == bytes_found[1]


def test_bfloat16_is_close_to_float32(make_corpus: Make, bert: Path) -> None:
    corpus = make_corpus(sentences(60))
    _, exact, _ = embedded(corpus, settings(model=str(bert), dtype="float32"))
    _, fast, _ = embedded(corpus, settings(model=str(bert), dtype="bfloat16"))
    assert (exact * fast).sum(axis=1).min() > 0.998


@pytest.mark.parametrize("model", ["static", "bert"])
@pytest.mark.parametrize("long_documents", ["first", "mean"])
def test_odd_texts_are_embedded_like_any_other(make_corpus: Make, bert: Path, model: str, long_documents: str) -> None:
    texts = [text.encode("utf-8", "replace").decode() or "." for text in ODD.values()] + ["word salad " * 450_000]
    corpus = make_corpus(texts)
    name = "static" if model == "static" else str(bert)
    config = settings(model=name, long_documents=long_documents, max_length=512)
    if model == "bert" and long_documents == "mean":
        texts[-1] = texts[-1][:50_000]
        corpus = Corpus(Path(corpus.work).parent, texts)
    ids, vectors, _ = embedded(corpus, config)
    assert len(ids) == len(texts)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=3e-3)


def test_mean_is_the_mean_of_the_windows(make_corpus: Make, bert: Path) -> None:
    texts = ["boats and water " * 5 + "people walk home " * 5, "short"]
    _, vectors, _ = embedded(
        make_corpus(texts), settings(model=str(bert), long_documents="mean", max_length=17, dtype="float32")
    )
    model = SentenceTransformer(str(bert), device="cpu")
    parts = model.encode(["boats and water " * 5, "people walk home " * 5])
    expected = parts.sum(axis=0) / np.linalg.norm(parts.sum(axis=0))
    assert np.abs(vectors[0] - expected).max() < 1e-3
    assert np.abs(vectors[1] - model.encode(["short"])[0]).max() < 1e-3


def test_truncated_to_the_dimensions_asked_for(make_corpus: Make, bert: Path) -> None:
    texts = sentences(20)
    _, vectors, _ = embedded(make_corpus(texts), settings(model=str(bert), dimensions=16, dtype="float32"))
    expected = SentenceTransformer(str(bert), device="cpu", truncate_dim=16).encode(texts, normalize_embeddings=True)
    assert vectors.shape == (20, 16) and np.abs(vectors - expected).max() < 1e-3


def test_a_prompt_is_put_before_every_text(make_corpus: Make, bert: Path) -> None:
    texts = sentences(20)
    config = settings(model=str(bert), prompt="the water: ", dtype="float32")
    _, vectors, _ = embedded(make_corpus(texts), config)
    expected = SentenceTransformer(str(bert), device="cpu").encode(texts, prompt="the water: ")
    assert np.abs(vectors - expected).max() < 1e-3


def test_other_settings_other_file(make_corpus: Make, bert: Path) -> None:
    corpus = make_corpus(sentences(10))
    paths = {
        embedded(corpus, settings(model=str(bert), **change))[2].path
        for change in ({}, {"prompt": "x "}, {"max_length": 16}, {"dimensions": 32}, {"long_documents": "mean"})
    }
    assert len(paths) == 5
    same = embedded(corpus, settings(model=str(bert), batch_tokens=99))[2]
    assert same.cached, "the batch size moves vectors by rounding only"


def test_nan_names_the_documents(make_corpus: Make, bert: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(bert), device="cpu")
    token = model.tokenizer.convert_tokens_to_ids("boats")
    model[0].model.embeddings.word_embeddings.weight.data[token] = float("nan")
    model.save(str(tmp_path / "broken"), create_model_card=False)
    corpus = make_corpus(["water", "people", "boats", "town", "boats and boats"])
    config = settings(model=str(tmp_path / "broken"), dtype="bfloat16")
    with pytest.raises(ModelError, match=r"2 document\(s\).*shard: chunk_id 2, 4; try encoder.dtype=float32"):
        embedded(corpus, config)
    assert not list(Path(corpus.work).glob("embeddings/*.parquet"))


def test_a_lost_row_is_a_conservation_error(make_corpus: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make_corpus(sentences(30))
    config = settings()
    encoder = prepare_encoder([corpus.shard], config, corpus.work)
    read = ShardReading.batches

    def short(reading: ShardReading, columns: Sequence[str]) -> Iterator[Batch]:
        for batch in read(reading, columns):
            yield Batch(batch.rows.slice(1), lambda rows: pa.nulls(rows.num_rows, pa.string()))

    monkeypatch.setattr(ShardReading, "batches", short)
    with pytest.raises(ConservationError, match="30 documents to embed, 29 rows made"):
        embed_shard(corpus.files, encoder, config, corpus.work)


def test_no_documents_no_rows(make_corpus: Make) -> None:
    config = settings()
    encoder = prepare_encoder([make_corpus(sentences(20)).shard], config, make_corpus(sentences(20)).work)
    corpus = make_corpus([None, None], quarantined=(0, 1))
    ids, _, output = embedded(corpus, config, encoder)
    assert len(ids) == 0 and output.rows == 0


def test_embeddings_of_the_corpus_are_used(make_corpus: Make) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(40, 80))
    values[3] = 0
    column = pa.array(list(values.astype(np.float32)), pa.list_(pa.float32()))
    corpus = make_corpus([*sentences(39), None], quarantined=[39], vec=column)
    ids, vectors, _ = embedded(corpus, settings(model="column", column="vec"))
    expected = values[:39, :64] / np.maximum(np.linalg.norm(values[:39, :64], axis=1, keepdims=True), 1e-9)
    expected[3] = 64**-0.5
    assert ids.tolist() == list(range(39)) and np.abs(vectors - expected).max() < 1e-3


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1.0] * 63] * 3), r"too short for 3 documents: doc-0 \(chunk_id 0\), doc-1"),
        (pa.array([[1.0] * 63] * 3), "embeddings of 63 to 63 numbers .* set encoder.dimensions to that size or less"),
        (pa.array([[1.0] * 64, None, [1.0] * 64]), "chunk_id 1"),
        (
            pa.array([[1.0] * 64, [float("nan")] * 64, [1.0] * 64]),
            r"shard\.parquet \(shard .*not finite.*doc-1 \(chunk_id 1\)",
        ),
        (pa.array([[1.0] * 64, [1.0] * 64, [float("-inf")] * 64]), r"not finite.*doc-2 \(chunk_id 2\)"),
        (pa.array([[1.0] * 64, [1.0] * 63 + [None], [1.0] * 64]), r"not finite, or null.*doc-1 \(chunk_id 1\)"),
        (pa.array([["1"] * 64] * 3), r"is of type list<.*string>; an embedding is a list of numbers"),
        (pa.array([1.0, 2.0, 3.0]), "an embedding is a list of numbers"),
    ],
)
def test_bad_embeddings_of_the_corpus(make_corpus: Make, column: pa.Array, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        embedded(make_corpus(sentences(3), vec=column), settings(model="column", column="vec"))


def test_embeddings_of_any_size_and_kind_of_number_are_used(make_corpus: Make) -> None:
    """A vector's length does not matter, nor how its numbers are stored: squares may be beyond a double's range."""
    values = np.random.default_rng(1).normal(size=(5, 64))
    scaled = values * np.array([[1e-300], [1e-30], [1.0], [1e30], [1e300]])
    tensor = pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).ravel()), 64)
    columns = {
        "scaled": pa.array(list(scaled), pa.large_list(pa.float64())),
        "half": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel().astype(np.float16)), 64),
        "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [64]), tensor),
        "views": pa.array(list(values), pa.list_view(pa.float64())),
    }
    expected = values / np.linalg.norm(values, axis=1, keepdims=True)
    for name, column in columns.items():
        _, vectors, _ = embedded(make_corpus(sentences(5), vec=column), settings(model="column", column="vec"))
        assert np.abs(vectors - expected).max() < 1e-3, name


def test_an_absent_column_of_embeddings(make_corpus: Make) -> None:
    corpus = make_corpus(sentences(3), vectors=pa.array([[1.0]] * 3))
    with pytest.raises(ModelError, match='no column vector; did you mean "vectors"'):
        prepare_encoder([corpus.shard], settings(model="column", column="vector"), corpus.work)


def test_tokens_are_counted_with_the_encoders_tokenizer(make_corpus: Make, bert: Path) -> None:
    corpus = make_corpus(sentences(30))
    for name in ("static", str(bert)):
        encoder = prepare_encoder([corpus.shard], settings(model=name), corpus.work)
        counts = load_tokenizer(encoder).count(["", *sentences(5)])
        tokenizer = SentenceTransformer(encoder.path, device="cpu").tokenizer
        lengths = [len(tokenizer.encode(text, add_special_tokens=False)) for text in ["", *sentences(5)]]
        assert counts.tolist() == lengths


def test_one_load_however_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    cache, loads = ModelCache(2), []
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: cache.get(i % 2, lambda: loads.append(i) or object()), range(64)))
    assert len(loads) == 2 and len({id(model) for model in found}) == 2
    cache.get("third", object)
    assert cache.get("third", lambda: None) is not None and len(cache._models) == 2


def test_models_are_kept_while_another_thread_loads_torch(tmp_path: Path) -> None:
    """The libraries of later stages load in a thread of their own: a half loaded torch says nothing about GPUs yet."""
    (tmp_path / "torch.py").write_text(
        "import time\ntime.sleep(0.5)\nclass cuda:\n    device_count = staticmethod(lambda: 0)\n"
    )
    program = f"""
import sys, threading
sys.path.insert(0, {str(tmp_path)!r})
from datamask.models.load import ModelCache
threading.Thread(target=__import__, args=("torch",)).start()
while "torch" not in sys.modules:
    pass
cache = ModelCache(1)
print([cache.get(key, lambda: key) for key in (1, 2)], len(cache._models))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[1, 2] 1\n", done.stderr


def test_a_fitted_encoder_in_an_object_store(
    make_corpus: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """memory:// stands for s3://: the folder is put there whole, and fetched once per machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    corpus = make_corpus(sentences(60))
    config = settings()
    ref = prepare_encoder([corpus.shard], config, "memory://bucket/work")
    assert ref.path.startswith("memory://bucket/work/encoder/")
    assert ref == prepare_encoder([corpus.shard], config, "memory://bucket/work")
    _, remote, output = embedded(corpus, config, ref)
    Path(output.path).unlink()
    _, local, _ = embedded(corpus, config)
    assert np.array_equal(remote, local) and load_tokenizer(ref).count(["water"]).tolist() == [1]


def test_reference_round_trip(make_corpus: Make, bert: Path) -> None:
    import json

    corpus = make_corpus(sentences(5))
    ref = prepare_encoder([corpus.shard], settings(model=str(bert)), corpus.work)
    assert EncoderRef.from_dict(json.loads(json.dumps(ref.as_dict()))) == ref
    assert ref == prepare_encoder([corpus.shard], settings(model=str(bert)), corpus.work)
    assert replace(ref, prompt="x") != ref and validate({}).encoder.model == "static"
