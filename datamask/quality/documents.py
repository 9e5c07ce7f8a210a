"""The protocol of scorers: what each is given and returns. Tests implement it without model weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from datamask.quality.signals import compute
from datamask.text.utf8 import blocks

Need = Literal["texts", "languages", "vectors", "encoder_scores"]

BATCH = 250_000  # characters measured at a time, so that the arrays stay in the processor's cache


@dataclass(frozen=True)
class Documents:
    """Some documents of a shard, with what its scorers need of them."""

    chunk_ids: np.ndarray  # (n,) int64
    texts: Sequence[str]
    vectors: np.ndarray | None = None  # (n, dimensions) float32, the embeddings
    encoder_scores: np.ndarray | None = None  # (n,) float32, of the encoder's quality head
    languages: Sequence[str | None] | None = None  # as the corpus states them
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # (n,) float64, NaN where null

    def __len__(self) -> int:
        return len(self.chunk_ids)

    @cached_property
    def signals(self) -> np.ndarray:
        """(n, signals) float32: the heuristic signals, computed once however many scorers use them."""
        return np.concatenate([compute([]), *(compute(block) for block in blocks(self.texts, BATCH))])


@dataclass(frozen=True)
class Scores:
    """A scorer's result."""

    score: np.ndarray  # (n,) float32
    signals: np.ndarray  # (n, len(scorer.signals)) float32; NaN: does not apply


class Scorer(Protocol):
    """One quality score. Any object of this shape can be scored with."""

    signals: tuple[str, ...] = ()  # names of the columns that explain the score
    needs: frozenset[Need] = frozenset({"texts"})
    columns: tuple[str, ...] = ()  # of the corpus

    def score(self, documents: Documents) -> Scores:
        """The documents' scores. Scores may be infinite or NaN; the caller reports these as errors."""


def plain_scores(score: np.ndarray) -> Scores:
    """Scores without signals."""
    return Scores(np.asarray(score, dtype=np.float32), np.zeros((len(score), 0), dtype=np.float32))
