"""The scorers that need no model: heuristic rules, a column of the corpus, the encoder's own quality head."""

from __future__ import annotations

import numpy as np

from datamask.quality import rules
from datamask.quality.documents import Documents, Need, Scores, plain


class HeuristicScorer:
    """Gopher's, C4's and FineWeb's rules as one score in [0, 1]; see `rules.score` and `rules.explain`."""

    signals = rules.SIGNALS
    needs: frozenset[Need] = frozenset({"texts"})
    columns: tuple[str, ...] = ()

    def score(self, documents: Documents) -> Scores:
        return Scores(rules.score(documents.signals), documents.signals)


class ColumnScorer:
    """Scores that the corpus brings. A null score is not a number, and an error like any other."""

    signals: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset()

    def __init__(self, column: str) -> None:
        self.columns: tuple[str, ...] = (column,)

    def score(self, documents: Documents) -> Scores:
        return plain(documents.columns[self.columns[0]])


class EncoderScorer:
    """The score that encoder.quality_head gave in the same pass as the embedding."""

    signals: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset({"encoder_scores"})
    columns: tuple[str, ...] = ()

    def score(self, documents: Documents) -> Scores:
        assert documents.encoder_scores is not None
        return plain(np.asarray(documents.encoder_scores))
