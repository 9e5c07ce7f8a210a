"""From a scorer's settings to the thing that scores: pinned once, loaded once per process. And the small scorers.

Every scorer is a class: `pin` finds and fingerprints what the settings name, `load` gives the object, `score` scores.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any, Self, get_args

import numpy as np

from datamask import extensions, storage
from datamask.config import Config
from datamask.config import ScorerSettings as Settings
from datamask.errors import ConfigError
from datamask.models.load import ModelCache
from datamask.quality import pool_model, rules, terms
from datamask.quality.documents import Documents, Need, Scorer, Scores, plain_scores
from datamask.quality.measures import CONTENT_VERSION, measure
from datamask.quality.quality_ref import ScorerRef

BUILT_IN = {
    "content": "datamask.quality.scorers:ContentScorer",
    "heuristic": "datamask.quality.scorers:HeuristicScorer",
    "column": "datamask.quality.scorers:ColumnScorer",
    "encoder": "datamask.quality.scorers:EncoderScorer",
    "fasttext": "datamask.quality.fasttext:FastTextScorer",
    "probe": "datamask.quality.probe:ProbeScorer",
    "transformer": "datamask.quality.transformer:TransformerScorer",
    "prox": "datamask.quality.transformer:ProxScorer",
}
OWN = "datamask.quality.scorers:OwnScorer"  # of a kind that the user names
_LOADED = ModelCache(size=16)  # every scorer of a run is needed for every shard
MODELS = ("content", "fasttext", "probe", "transformer", "prox")  # are large: a process keeps those of its run


def scorer_class(kind: str) -> Any:
    """The class of a kind of scorer; what is heavy is loaded where it is used."""
    module, _, name = BUILT_IN.get(kind, OWN).partition(":")
    return getattr(import_module(module), name)


def pin_scorer(settings: Settings, config: Config) -> ScorerRef:
    """What the settings name, found and fingerprinted.

    :raises ModelError: the model is not there; says where it was looked for.
    :raises ConfigError: there is no such scorer.
    """
    return scorer_class(settings.kind).pin(settings, config)


def load_scorer(ref: ScorerRef, config: Config, work: str = "") -> Scorer:
    """The scorer of a reference, loaded once per process.

    :param work: the work folder, where a fitted scorer's file lies
    :raises ModelError: its model is broken or does not fit the settings.
    """
    found = scorer_class(ref.settings.kind)
    if ref.settings.kind not in MODELS:
        return found.load(ref, config, work)
    return _LOADED.get((ref.fingerprint, config.encoder.device), lambda: found.load(ref, config, work))


def reasons(scores: Mapping[str, float | None]) -> list[str]:
    """The sentences for a row of a scores file: one for each fault, and for each published rule that it breaks.

    A scorer is recognised by its signals, whatever its name.
    """
    found: dict[str, None] = {}
    for signals, explain in ((terms.SIGNALS, terms.explain), (rules.SIGNALS, rules.explain)):
        for name in (column.removesuffix(f".{signals[1]}") for column in scores if column.endswith(f".{signals[1]}")):
            if all(f"{name}.{signal}" in scores for signal in signals):
                found |= dict.fromkeys(explain({signal: scores[f"{name}.{signal}"] for signal in signals}))
    return list(found)


class ContentScorer(Scorer):
    """The default scorer: what a document's words are like beside those of the pool, with its measures and faults as
    signals. A score in [0, 1], comparable within and between languages; see `terms.py`."""

    signals = terms.SIGNALS
    needs: frozenset[Need] = frozenset({"texts", "languages"})

    def __init__(self, model: pool_model.PoolModel) -> None:
        self._model = model

    @classmethod
    def pin_fitted(cls, settings: Settings, path: str, work: str) -> ScorerRef:
        """The scorer whose model is at `path` in the work folder; the key holds the file's bytes."""
        fingerprint = storage.fingerprint(storage.join(work, path))
        return ScorerRef(settings, path, None, storage.key("content", CONTENT_VERSION, fingerprint))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> Self:
        return cls(pool_model.read_pool_model(storage.join(work, ref.path)))

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`; the signals are the measures and the faults."""
        given = documents.languages or [None] * len(documents)
        scores, signals = [np.zeros(0, np.float32)], [np.zeros((0, len(self.signals)), np.float32)]
        for words, names in pool_model.batches(documents.texts, given):
            measured, group = measure(words, names, self._model.pool)
            found, faults = terms.score_terms(measured, group, self._model.usual)
            scores.append(found)
            signals.append(np.concatenate([measured, faults.astype(np.float32)], axis=1))
        return Scores(np.concatenate(scores), np.concatenate(signals))


class PlainScorer(Scorer):
    """What scorers share that load nothing."""

    facts: tuple[Any, ...] = ()  # what is in the key beside the kind

    def __init__(self, settings: Settings) -> None:
        """settings: of the scorer; not every one needs them."""

    @classmethod
    def pin(cls, settings: Settings, config: Config) -> ScorerRef:
        return ScorerRef(settings, "", None, storage.key(settings.kind, *cls(settings).facts))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> Self:
        return cls(ref.settings)


class HeuristicScorer(PlainScorer):
    """Gopher's, C4's and FineWeb's rules as one score in [0, 1]; see `rules.score_rules` and `rules.explain`."""

    signals = rules.SIGNALS
    facts = (rules.HEURISTIC_VERSION,)

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: how well the published rules are kept, in [0, 1]."""
        return Scores(rules.score_rules(documents.signals), documents.signals)


class EncoderScorer(PlainScorer):
    """The score that encoder.quality_head gave in the same pass as the embedding."""

    needs: frozenset[Need] = frozenset({"encoder_scores"})

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the encoder's own scores."""
        assert documents.encoder_scores is not None
        return plain_scores(np.asarray(documents.encoder_scores))


class ColumnScorer(PlainScorer):
    """Scores that the corpus brings. A null score is not a number, and an error like any other."""

    needs: frozenset[Need] = frozenset()

    def __init__(self, settings: Settings) -> None:
        self.columns = (str(settings.column),)
        self.facts = (settings.column,)

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the column's values."""
        return plain_scores(documents.columns[self.columns[0]])


class OwnScorer:
    """A scorer of the user's own: what it does not declare is filled in, and what it answers is checked.

    Its `score(documents)` gives (n,) numbers, or `Scores` where it explains them by `signals`.
    """

    def __init__(self, scorer: Any, name: str) -> None:
        """
        :param scorer: an object with `score`; may have `signals` (), `needs` {"texts"} and `columns` ().
        :param name: of the scorer, for messages.
        :raises ConfigError: one of these is no list of names, or `needs` has a name that there is not.
        """
        self._scorer, self._name = scorer, name
        self.signals: tuple[str, ...] = tuple(self._names("signals", ()))
        self.needs: frozenset[Need] = frozenset(self._names("needs", {"texts"}))  # type: ignore[arg-type]
        self.columns: tuple[str, ...] = tuple(self._names("columns", ()))
        if unknown := sorted(self.needs - set(get_args(Need))):
            raise ConfigError(f"scorer {name} needs {', '.join(unknown)}; valid: {', '.join(get_args(Need))}")

    @classmethod
    def pin(cls, settings: Settings, config: Config) -> ScorerRef:
        own = extensions.require("scorer", settings.kind)
        return ScorerRef(settings, "", None, storage.key("own", own.fingerprint(), dict(settings.options)))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> OwnScorer:
        own, settings = extensions.require("scorer", ref.settings.kind), ref.settings
        own.check_key(cls.pin(settings, config).fingerprint, ref.fingerprint)
        return cls(own.make(settings.options), settings.name)

    def _names(self, attribute: str, default: Collection[str]) -> Collection[str]:
        return extensions.declared_names(self._scorer, f"scorer {self._name}", attribute, default)

    def score(self, documents: Documents) -> Scores:
        """The documents' scores.

        :raises ConfigError: the scorer raises, or gives something else than a number for each, or not its signals.
        """
        with extensions.named_in_errors(f"scorer {self._name}: score(documents) gives (n,) numbers"):
            found = self._scorer.score(copy.deepcopy(documents))  # it may change in place what it is given
            found = found if isinstance(found, Scores) else plain_scores(found)
            found = Scores(np.asarray(found.score, np.float32), np.asarray(found.signals, np.float32))
        shapes = (np.shape(found.score), np.shape(found.signals))
        wanted = ((len(documents),), (len(documents), len(self.signals)))
        if shapes != wanted:
            raise ConfigError(
                f"scorer {self._name} gave arrays of shapes {shapes[0]} (score) and {shapes[1]} (signals) "
                f"for {len(documents)} documents; expected {wanted[0]} and {wanted[1]}"
            )
        return found
