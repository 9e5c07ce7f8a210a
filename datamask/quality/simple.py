"""The scorers that need no model: heuristic rules, a column, the encoder's quality head, one of the user's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Self, get_args

import numpy as np

from datamask import extensions, storage
from datamask.config import Config, ScorerSettings
from datamask.errors import ConfigError
from datamask.quality import rules
from datamask.quality.documents import Documents, Need, Scorer, Scores, plain_scores
from datamask.quality.quality_ref import ScorerRef
from datamask.quality.versions import HEURISTIC_VERSION


class PlainScorer(Scorer):
    """What scorers share that load nothing."""

    version: tuple[int, ...] = ()  # in the key

    @classmethod
    def pin(cls, settings: ScorerSettings, config: Config) -> ScorerRef:
        return ScorerRef(settings, "", None, storage.key(settings.kind, *cls.version))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> Self:
        return cls()


class HeuristicScorer(PlainScorer):
    """Gopher's, C4's and FineWeb's rules as one score in [0, 1]; see `rules.score_rules` and `rules.explain`."""

    signals = rules.SIGNALS
    version = (HEURISTIC_VERSION,)

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: how well the published rules are kept, in [0, 1]."""
        return Scores(rules.score_rules(documents.signals), documents.signals)


class ColumnScorer(Scorer):
    """Scores that the corpus brings. A null score is not a number, and an error like any other."""

    needs: frozenset[Need] = frozenset()

    def __init__(self, column: str) -> None:
        self.columns: tuple[str, ...] = (column,)

    @classmethod
    def pin(cls, settings: ScorerSettings, config: Config) -> ScorerRef:
        return ScorerRef(settings, "", None, storage.key("column", settings.column))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> ColumnScorer:
        return cls(str(ref.settings.column))

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the column's values."""
        return plain_scores(documents.columns[self.columns[0]])


class EncoderScorer(PlainScorer):
    """The score that encoder.quality_head gave in the same pass as the embedding."""

    needs: frozenset[Need] = frozenset({"encoder_scores"})

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the encoder's own scores."""
        assert documents.encoder_scores is not None
        return plain_scores(np.asarray(documents.encoder_scores))


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
    def pin(cls, settings: ScorerSettings, config: Config) -> ScorerRef:
        own = extensions.require("scorer", settings.kind)
        return ScorerRef(settings, "", None, storage.key("own", own.fingerprint(), dict(settings.options)))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> OwnScorer:
        settings = ref.settings
        return cls(extensions.require("scorer", settings.kind).make(settings.options), settings.name)

    def _names(self, attribute: str, default: Collection[str]) -> Collection[str]:
        found = getattr(self._scorer, attribute, default)
        if isinstance(found, str) or not all(isinstance(name, str) for name in found):
            raise ConfigError(f"scorer {self._name}: {attribute} is {found!r}; it must be a tuple of names")
        return found

    def score(self, documents: Documents) -> Scores:
        """The documents' scores.

        :raises ConfigError: the scorer raises, or gives something else than a number for each, or not its signals.
        """
        with extensions.named_in_errors():
            found = self._scorer.score(documents)
        found = found if isinstance(found, Scores) else plain_scores(found)
        shapes = (np.shape(found.score), np.shape(found.signals))
        wanted = ((len(documents),), (len(documents), len(self.signals)))
        if shapes != wanted:
            raise ConfigError(
                f"scorer {self._name} gave arrays of shapes {shapes[0]} (score) and {shapes[1]} (signals) "
                f"for {len(documents)} documents; expected {wanted[0]} and {wanted[1]}"
            )
        return Scores(np.asarray(found.score, np.float32), np.asarray(found.signals, np.float32))
