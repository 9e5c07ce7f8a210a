"""What the other stages know of the quality scores, and how several become one: small, frozen and JSON-able."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from datamask import config as settings
from datamask import storage

GRID = 1001  # quantiles kept, in steps of a tenth of a per cent


@dataclass(frozen=True)
class ScorerRef:
    """A prepared scorer: its settings, and the fingerprint of the model's files or the rules' version."""

    settings: settings.ScorerSettings
    path: str  # what is loaded: a file, a folder or a hub name; of a fitted one in the work folder; "": nothing
    revision: str | None  # the commit of a hub model
    fingerprint: str
    dtype: str | None = None  # what a transformer computes in, wherever it is loaded

    @property
    def name(self) -> str:
        """The scorer's name in the settings."""
        return self.settings.name


@dataclass(frozen=True)
class Statistics:
    """What a scorer's raw scores are measured against: fitted on a sample once, kept by refreshes."""

    documents: int
    mean: float
    deviation: float
    percentiles: tuple[float, ...]  # of the sample, evenly spaced from the least to the greatest

    @classmethod
    def of(cls, scores: np.ndarray) -> Statistics:
        """Of a sample of finite scores (n,)."""
        values = np.asarray(scores, dtype=np.float64)
        grid = np.quantile(values, np.linspace(0, 1, GRID))
        return cls(len(values), float(values.mean()), float(values.std()), tuple(grid.tolist()))

    def percentile(self, values: np.ndarray) -> np.ndarray:
        """(n,) in [0, 1]: the share of the sample below each value; equal scores of the sample share their mean rank.

        Between the sample's percentiles it is interpolated; beyond its extremes it is 0 or 1.
        """
        grid = np.array(self.percentiles)
        distinct, inverse = np.unique(grid, return_inverse=True)
        ranks = np.bincount(inverse, np.linspace(0, 1, len(grid))) / np.bincount(inverse)
        return np.interp(values, distinct, ranks, left=0.0, right=1.0)


@dataclass(frozen=True)
class QualityRef:
    """The scorers and how they are combined."""

    scorers: tuple[ScorerRef, ...]
    combine: Literal["sum", "standard", "rank"]
    statistics: Mapping[str, Statistics]  # by scorer; empty for combine "sum"

    def combined(self, scores: Mapping[str, np.ndarray]) -> np.ndarray:
        """(n,) float32: Σ weight · score, the scores raw, standardised or as percentiles in [0, 1] of the sample."""
        total = np.zeros(len(next(iter(scores.values()))), dtype=np.float64)
        for scorer in self.scorers:
            values = scores[scorer.name].astype(np.float64)
            if self.combine == "standard":
                statistics = self.statistics[scorer.name]
                values = (values - statistics.mean) / (statistics.deviation or 1.0)
            elif self.combine == "rank":
                values = self.statistics[scorer.name].percentile(values)
            total += scorer.settings.weight * values
        return total.astype(np.float32)

    @property
    def fingerprint(self) -> str:
        """Stands for everything that determines the scores."""
        return storage.key("quality", self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the manifest's entry."""
        scorers = [asdict(ref) for ref in self.scorers]
        for described, ref in zip(scorers, self.scorers, strict=True):  # in the key without options that it lacks
            described["settings"] = ref.settings.model_dump(
                mode="json", exclude=set() if ref.settings.options else {"options"}
            )
        statistics = {name: {**asdict(s), "percentiles": list(s.percentiles)} for name, s in self.statistics.items()}
        return {"scorers": scorers, "combine": self.combine, "statistics": statistics}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QualityRef:
        """The inverse of `as_dict`."""
        return TypeAdapter(cls).validate_python(values)
