"""What the other stages know of the quality scores: a QualityRef, small, frozen and JSON-able."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from datamask import config as settings
from datamask import storage


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


@dataclass(frozen=True)
class QualityRef:
    """The scorers and how they are combined."""

    scorers: tuple[ScorerRef, ...]
    combine: Literal["sum", "standard", "rank"]
    statistics: Mapping[str, Statistics]  # by scorer; empty for combine "sum"

    @property
    def fingerprint(self) -> str:
        """Stands for everything that determines the scores."""
        return storage.key("quality", self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the manifest's entry."""
        scorers = [{**asdict(ref), "settings": _settings(ref.settings)} for ref in self.scorers]
        statistics = {name: {**asdict(s), "percentiles": list(s.percentiles)} for name, s in self.statistics.items()}
        return {"scorers": scorers, "combine": self.combine, "statistics": statistics}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QualityRef:
        """The inverse of `as_dict`."""
        found: QualityRef = TypeAdapter(cls).validate_python(values)
        return found


def _settings(scorer: settings.ScorerSettings) -> dict[str, Any]:
    """A scorer's settings as they enter the key of its scores: without the options it does not have."""
    return scorer.model_dump(mode="json", exclude=set() if scorer.options else {"options"})
