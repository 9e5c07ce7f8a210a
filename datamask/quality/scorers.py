"""From a scorer's settings to the thing that scores: pinned once, loaded once per process.

Every scorer is a class: `pin` finds and fingerprints what the settings name, `load` gives the object, `score` scores.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from datamask.config import Config
from datamask.config import ScorerSettings as Settings
from datamask.models.load import ModelCache
from datamask.quality.documents import Scorer
from datamask.quality.quality_ref import ScorerRef

BUILT_IN = {
    "content": "datamask.quality.content:ContentScorer",
    "heuristic": "datamask.quality.simple:HeuristicScorer",
    "column": "datamask.quality.simple:ColumnScorer",
    "encoder": "datamask.quality.simple:EncoderScorer",
    "fasttext": "datamask.quality.fasttext:FastTextScorer",
    "probe": "datamask.quality.probe:ProbeScorer",
    "transformer": "datamask.quality.transformer:TransformerScorer",
    "prox": "datamask.quality.prox:ProxScorer",
}
OWN = "datamask.quality.simple:OwnScorer"  # of a kind that the user names
MODELS = ("fasttext", "probe", "transformer", "prox")  # are large: a process keeps those of its run


def scorer_class(kind: str) -> Any:
    """The class of a kind of scorer; what is heavy is loaded where it is used."""
    module, _, name = BUILT_IN.get(kind, OWN).partition(":")
    return getattr(import_module(module), name)


def pin_scorer(settings: Settings, config: Config) -> ScorerRef:
    """What the settings name, found and fingerprinted.

    :raises ModelError: the model is not there; says where it was looked for.
    :raises ConfigError: there is no such scorer.
    """
    found: ScorerRef = scorer_class(settings.kind).pin(settings, config)
    return found


def load_scorer(ref: ScorerRef, config: Config, work: str = "") -> Scorer:
    """The scorer of a reference, loaded once per process.

    :param work: the work folder, where a fitted scorer's file lies
    :raises ModelError: its model is broken or does not fit the settings.
    """
    found = scorer_class(ref.settings.kind)
    if ref.settings.kind not in MODELS:
        loaded: Scorer = found.load(ref, config, work)
        return loaded
    return _cache().get((ref.fingerprint, config.encoder.device), lambda: found.load(ref, config, work))


@cache
def _cache() -> ModelCache:
    return ModelCache(size=16)  # every scorer of a run is needed for every shard
