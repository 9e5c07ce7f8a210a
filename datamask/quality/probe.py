"""A quality score fitted to labels: a linear model on embeddings and heuristic signals, saved without pickle.

A probe is a folder: `probe.safetensors` (the weights) and `probe.json` (what it was fitted on, how good it is in cross
validation, and what the encoder it belongs to makes of a few sentences, so that another one is refused).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from datamask import storage
from datamask.config import Config, ScorerSettings
from datamask.errors import ModelError
from datamask.models.locate import local_path
from datamask.quality.documents import Documents, Need, Scorer, Scores, plain_scores
from datamask.quality.measures import CONTENT_VERSION, PLAIN
from datamask.quality.pool_model import measured
from datamask.quality.quality_ref import ScorerRef
from datamask.quality.rules import HEURISTIC_VERSION, SIGNALS, score_rules

WEIGHTS = ("probe.safetensors", "probe.json")
FORMAT = 5
CHECK_SENTENCES = (
    "The mill stood where the river bends, and its wheel turned for two hundred years.",
    "Click here to subscribe to our newsletter! Terms of use | Privacy policy",
    "Sei V ein Vektorraum über dem Körper der reellen Zahlen.",
)
CHECK_COSINE = 0.99  # bfloat16 and batch composition move a vector by far less, another encoder by far more


@dataclass(frozen=True)
class Probe:
    """A linear model: score = coefficients · (features − mean) / scale + intercept, through a sigmoid for "class".

    Features are those of `features`, (d,) each.
    """

    kind: Literal["class", "number"]
    mean: np.ndarray
    scale: np.ndarray
    coefficients: np.ndarray
    intercept: float

    def predict(self, features: np.ndarray) -> np.ndarray:
        """(n,) float32: the probability of the positive class, or the number, of (n, d) features."""
        linear = ((features - self.mean) / self.scale) @ self.coefficients + self.intercept
        return (1 / (1 + np.exp(-linear)) if self.kind == "class" else linear).astype(np.float32)


def features(vectors: np.ndarray | None, documents: Documents) -> np.ndarray:
    """(n, d) float64: embeddings (n, dimensions), if used; the heuristic signals and their score; what the content
    score measures of a document without a pool (`measures.PLAIN`).

    Signals are damped by log(1 + v), since counts and ratios have long tails; one that does not apply is 0.
    """
    signals = documents.signals
    damped = np.log1p(np.nan_to_num(signals.astype(np.float64), nan=0.0))
    words = np.sqrt(np.nan_to_num(measured(documents.texts), nan=0.0))
    rules = np.column_stack([damped, score_rules(signals), words])
    return rules if vectors is None else np.column_stack([vectors.astype(np.float64), rules])


def save_probe(folder: str | Path, probe: Probe, description: Mapping[str, Any], check: np.ndarray | None) -> None:
    """Writes the probe's two files; the same probe gives the same bytes.

    :param check: (len(CHECK_SENTENCES), dimensions), the encoder's vectors of CHECK_SENTENCES; None: no embeddings used
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    tensors = {
        "mean": probe.mean.astype(np.float32),
        "scale": probe.scale.astype(np.float32),
        "coefficients": probe.coefficients.astype(np.float32),
        "intercept": np.array([probe.intercept], dtype=np.float32),
        "check": np.zeros((0, 0), np.float32) if check is None else check.astype(np.float32),
    }
    save_file(tensors, target / WEIGHTS[0])
    described = {"format": FORMAT, "kind": probe.kind, "signals": [*SIGNALS, *PLAIN], **description}
    text = json.dumps(described, indent=2, sort_keys=True, ensure_ascii=False)
    (target / WEIGHTS[1]).write_text(text + "\n", encoding="utf-8")


def read_probe(folder: str | Path) -> tuple[Probe, np.ndarray | None, dict[str, Any]]:
    """The probe, its check vectors, and what `probe.json` says.

    :raises ModelError: there is no probe, or it is broken or of another version.
    """
    missing = [name for name in WEIGHTS if not (Path(folder) / name).is_file()]
    if missing:
        raise ModelError(
            f"probe {folder}: no {' and no '.join(missing)} there; fit one with "
            f"`datamask fit-quality --labels labelled.parquet --output {folder}`"
        )
    try:
        described: dict[str, Any] = json.loads((Path(folder) / WEIGHTS[1]).read_text(encoding="utf-8"))
        current = described["format"] == FORMAT and described["signals"] == [*SIGNALS, *PLAIN]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"probe {folder}: {WEIGHTS[1]} is broken ({error}); fit the probe again") from error
    if not current:
        raise ModelError(f"probe {folder} was fitted on other signals than this version's; fit it again")
    try:
        tensors = load_file(Path(folder) / WEIGHTS[0])
        size = {len(tensors[name]) for name in ("mean", "scale", "coefficients")}
        intercept = float(tensors["intercept"][0])
    except (SafetensorError, KeyError, IndexError, OSError, ValueError) as error:
        raise ModelError(f"probe {folder}: {WEIGHTS[0]} is broken ({error}); fit the probe again") from error
    if size != {described["dimensions"] + len(SIGNALS) + 1 + len(PLAIN)} or not all(
        np.isfinite(t).all() for t in tensors.values()
    ):
        raise ModelError(f"probe {folder}: {WEIGHTS[0]} does not hold the weights {WEIGHTS[1]} speaks of; fit it again")
    probe = Probe(described["kind"], tensors["mean"], tensors["scale"], tensors["coefficients"], intercept)
    return probe, tensors["check"] if len(tensors["check"]) else None, described


class ProbeScorer(Scorer):
    """A fitted probe's probability or number.

    :raises ModelError: see `read_probe`.
    """

    @classmethod
    def pin(cls, settings: ScorerSettings, config: Config) -> ScorerRef:
        path = local_path(str(settings.model))
        read_probe(path)
        files = [storage.fingerprint(str(Path(path) / name)) for name in WEIGHTS]
        return ScorerRef(settings, path, None, storage.key("probe", HEURISTIC_VERSION, CONTENT_VERSION, files))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> ProbeScorer:
        return cls(ref.path)

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._probe, self._check, self._described = read_probe(folder)
        self._dimensions = int(self._described["dimensions"])
        self.needs: frozenset[Need] = frozenset({"texts", "vectors"} if self._dimensions else {"texts"})

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`.

        :raises ModelError: the embeddings are of another width than the probe was fitted on.
        """
        vectors = documents.vectors if self._dimensions else None
        if vectors is not None and vectors.shape[1] != self._dimensions:
            raise ModelError(self._other(f"{vectors.shape[1]} dimensions instead of {self._dimensions}"))
        return plain_scores(self._probe.predict(features(vectors, documents)))

    def check_encoder(self, vectors: np.ndarray) -> None:
        """Checks that the vectors a run's encoder gives for CHECK_SENTENCES are those the probe was fitted with.

        :raises ModelError: they are not.
        """
        if self._check is None:
            return
        if vectors.shape != self._check.shape:
            raise ModelError(self._other(f"{vectors.shape[1]} dimensions instead of {self._check.shape[1]}"))
        cosine = (vectors * self._check).sum(axis=1)
        if cosine.min() < CHECK_COSINE:
            raise ModelError(self._other(f"cosine {cosine.min():.2f} where the same encoder gives 1"))

    def _other(self, found: str) -> str:
        return (
            f"probe {self._folder} was fitted with encoder {self._described['encoder']}, the run's encoder differs "
            f"({found}); set encoder.model to that one, or fit the probe again with the run's"
        )
