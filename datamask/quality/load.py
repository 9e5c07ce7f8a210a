"""From a scorer's settings to the thing that scores: pinned once, loaded once per process."""

from __future__ import annotations

from datamask import storage
from datamask.config import Config
from datamask.config import Scorer as Settings
from datamask.quality.documents import Scorer
from datamask.quality.ref import ScorerRef

HEURISTIC_VERSION = 1  # raised when a rule, a signal or the score changes


def pin(settings: Settings, config: Config) -> ScorerRef:
    """What the settings name, found and fingerprinted.

    :raises ModelError: the model is not there.
    """
    if settings.kind == "heuristic":
        return ScorerRef(settings, "", None, storage.key("heuristic", HEURISTIC_VERSION))
    if settings.kind == "column":
        return ScorerRef(settings, "", None, storage.key("column", settings.column))
    if settings.kind == "encoder":
        return ScorerRef(settings, "", None, storage.key("encoder"))
    raise NotImplementedError(settings.kind)


def load_scorer(ref: ScorerRef, config: Config) -> Scorer:
    """The scorer of a reference.

    :raises ModelError: its model is broken or does not fit the settings.
    """
    from datamask.quality import simple

    settings = ref.settings
    if settings.kind == "heuristic":
        return simple.HeuristicScorer()
    if settings.kind == "column":
        assert settings.column is not None
        return simple.ColumnScorer(settings.column)
    return simple.EncoderScorer()
