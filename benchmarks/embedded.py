"""What the selection's benchmarks select from: real text embedded by the static encoder, or synthetic clusters."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from datamask.config import EncoderSettings
from datamask.encoders.choose import fit_static_encoder
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model
from datamask.quality import rules, signals


@dataclass(frozen=True)
class Embedded:
    features: np.ndarray  # (N, d) float32, unit rows
    quality: np.ndarray  # (N,)

    def take(self, count: int, seed: int = 0) -> Embedded:
        """`count` of the documents at random."""
        index = np.random.default_rng(seed).permutation(len(self.quality))[:count]
        return Embedded(self.features[index], self.quality[index])


def real(pattern: str, cache: str | None = None) -> Embedded:
    """All documents of these parquet files with text; `cache`, an .npz, keeps them for the next run."""
    if cache and Path(cache).exists():
        with np.load(cache) as stored:
            return Embedded(stored["features"].astype(np.float32), stored["quality"].astype(np.float64))
    found = duckdb.sql(f"select text from read_parquet('{pattern}') where length(trim(text)) > 0 order by md5(id), id")
    texts = [text for (text,) in found.fetchall()]
    settings = EncoderSettings()
    with tempfile.TemporaryDirectory() as folder:
        fit_static_encoder(texts[: settings.fit_documents], settings, f"{folder}/model")
        pinned = pin_model(settings.model_copy(update={"model": f"{folder}/model"}), folder)
        encoder = load_encoder(pinned, "cpu")
        parts = [texts[start : start + 2000] for start in range(0, len(texts), 2000)]
        vectors = [encoder.compute(encoder.tokenise(part), settings.batch_tokens).vectors for part in parts]
    scores = [rules.score_rules(signals.compute(part)) for part in parts]
    features, quality = np.concatenate(vectors).astype(np.float32), np.concatenate(scores).astype(np.float64)
    if cache:
        np.savez(cache, features=features.astype(np.float16), quality=quality)
    return Embedded(features, quality)


def synthetic(count: int, dimensions: int = 768, clusters: int = 100, seed: int = 0) -> Embedded:
    """Gaussian clusters of unequal size on the sphere; quality leans towards some clusters."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(clusters, dimensions)).astype(np.float32)
    sizes = generator.dirichlet(np.full(clusters, 0.5))
    label = generator.choice(clusters, size=count, p=sizes)
    features = centres[label] + generator.normal(size=(count, dimensions)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return Embedded(features, generator.normal(size=clusters)[label] + generator.normal(size=count))
