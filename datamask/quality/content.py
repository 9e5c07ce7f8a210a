"""The default scorer: what a document's words are like beside those of the pool. See `terms.py` for the score."""

from __future__ import annotations

import numpy as np

from datamask import storage
from datamask.config import Config, ScorerSettings
from datamask.quality import pool_model as pool
from datamask.quality import terms
from datamask.quality.documents import Documents, Need, Scorer, Scores
from datamask.quality.measures import CONTENT_VERSION, measure
from datamask.quality.quality_ref import ScorerRef


class ContentScorer(Scorer):
    """A score in [0, 1], comparable within and between languages, with its measures and faults as signals."""

    signals = terms.SIGNALS
    needs: frozenset[Need] = frozenset({"texts", "languages"})

    def __init__(self, model: pool.PoolModel) -> None:
        self._model = model

    @classmethod
    def pin_fitted(cls, settings: ScorerSettings, path: str, work: str) -> ScorerRef:
        """The scorer whose model is at `path` in the work folder; the key holds the file's bytes."""
        fingerprint = storage.fingerprint(storage.join(work, path))
        return ScorerRef(settings, path, None, storage.key("content", CONTENT_VERSION, fingerprint))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> ContentScorer:
        return cls(pool.read_pool_model(storage.join(work, ref.path)))

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`; the signals are the measures and the faults."""
        given = documents.languages or [None] * len(documents)
        scores, signals = [np.zeros(0, np.float32)], [np.zeros((0, len(self.signals)), np.float32)]
        for words, names in pool.batches(documents.texts, given):
            measured, group = measure(words, names, self._model.pool)
            found, faults = terms.score_terms(measured, group, self._model.usual)
            scores.append(found)
            signals.append(np.concatenate([measured, faults.astype(np.float32)], axis=1))
        return Scores(np.concatenate(scores), np.concatenate(signals))
