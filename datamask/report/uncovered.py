"""What the choice covers badly: words and word pairs of which it holds less, or more, than it should.

    drawn, reference = draw_rows(arms, candidates, generator)       # rows whose texts are needed
    found = uncovered_words(texts, weights, drawn, reference, "selected", target)

t is what the candidates hold (or the target's texts, where the run has one), c what the choice holds, each the mean of
the documents' own shares. A word that is lacking stands in t·log(t/c), one of too much in c·log(c/t): their sums over
all words are the divergences KL(t ‖ c), what `coverage` makes small, and KL(c ‖ t). Everything is estimated on texts
drawn at random, and what could be chance is not listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from datamask.text.ngrams import hashed_words, words_of

TEXTS = 1500  # documents of an arm whose words are counted
CHARACTERS = 4000  # of each, the beginning
LISTED = 15  # words on each side
FEWEST = 8  # documents that hold a word, at least
SURE = 4.0  # standard errors by which two shares differ: one in ten thousand by chance
SMOOTHED = 0.5  # documents' worth of the reference's shares that are mixed into the choice's

Indices = npt.NDArray[np.intp]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class WordShares:
    """Words and pairs of some texts as shares of each text."""

    shares: csr_array  # (texts, V), rows that add up to 1
    hashes: npt.NDArray[np.uint64]  # (V,) ascending

    @classmethod
    def of(cls, texts: Sequence[str]) -> WordShares:
        """The hashed words and word pairs of the first `CHARACTERS` characters of each text."""
        singles, pairs, first = [], [], 0
        for single, pair, document, count in hashed_words(text[:CHARACTERS] for text in texts):
            together = document[1:] == document[:-1]
            singles.append((single, document + first))
            pairs.append((pair[together], document[1:][together] + first))
            first += count
        parts = [*singles, *pairs]
        hashes = np.concatenate([part for part, _ in parts]) if parts else np.zeros(0, np.uint64)
        rows = np.concatenate([row for _, row in parts]) if parts else np.zeros(0, np.int64)
        known, columns = np.unique(hashes, return_inverse=True)
        counts = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(known)))
        lengths = np.maximum(counts.sum(axis=1), 1)
        counts.data /= np.repeat(lengths, np.diff(counts.indptr))
        return cls(counts, known)

    def names(self, columns: Sequence[int], texts: Sequence[str]) -> list[str]:
        """The words of these columns, found in a text that holds each."""
        found = []
        by_column = self.shares.tocsc()
        for column in columns:
            row = int(by_column.indices[by_column.indptr[column]])
            words = words_of(texts[row][:CHARACTERS])
            single, pair, _, _ = next(iter(hashed_words([texts[row][:CHARACTERS]])))
            wanted = self.hashes[column]
            at = np.flatnonzero(single == wanted)
            if len(at):
                found.append(words[at[0]])
            else:
                place = int(np.flatnonzero(pair == wanted)[0])
                found.append(f"{words[place]} {words[place + 1]}")
        return found


@dataclass(frozen=True)
class WeightedMean:
    """Weighted mean of the rows, and its standard error: (V,) each."""

    share: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64]

    @classmethod
    def of(cls, shares: csr_array, weights: npt.NDArray[np.floating]) -> WeightedMean:
        """The weighted mean of sparse rows (n, J), with its standard error. weights: (n,)."""
        w = np.asarray(weights, np.float64) / max(float(np.sum(weights)), 1e-12)
        mean = np.asarray(w @ shares)
        squares = shares.copy()
        squares.data = squares.data**2
        spread = (w**2) @ squares - 2 * mean * ((w**2) @ shares) + mean**2 * float((w**2).sum())
        return cls(mean, np.sqrt(np.maximum(spread, 0)))


def draw_rows(
    arms: Mapping[str, Indices], reference: Indices, generator: np.random.Generator
) -> tuple[dict[str, Indices], Indices]:
    """Rows of each arm, and of the reference, whose words are counted."""
    drawn = {arm: np.sort(generator.permutation(rows)[:TEXTS]) for arm, rows in arms.items()}
    return drawn, np.sort(generator.permutation(reference)[:TEXTS])


def uncovered_words(
    texts: Mapping[int, str],
    weights: npt.NDArray[np.floating],
    drawn: Mapping[str, Indices],
    reference: Indices,
    chosen: str,
    target: Sequence[str] = (),
    worth: npt.NDArray[np.floating] | None = None,
) -> dict[str, Any]:
    """{"lacking": rows, "excess": rows, "divergence": {arm: nats a word}, "target": bool, "weighed": bool, "texts": n}.

    texts: of rows; weights: (rows of the sample,), what a document counts. target: texts to be explained; none: the
    reference's documents, each counted by its `worth` (rows of the sample,) besides, if that is given.
    """
    rows = np.unique(np.concatenate([reference, *drawn.values()]))
    every = [texts[int(row)] for row in rows] + list(target)
    counted = WordShares.of(every)
    of = {arm: np.searchsorted(rows, some) for arm, some in {**drawn, "": reference}.items()}
    by = {arm: weights[rows[place]] for arm, place in of.items()}
    if worth is not None and (target or not worth[reference].any()):
        worth = None
    if worth is not None:
        by[""] = by[""] * worth[reference]
    means = {arm: WeightedMean.of(counted.shares[place], by[arm]) for arm, place in of.items() if len(place)}
    if chosen not in means or "" not in means:
        return {}
    pool, ours = means[""], means[chosen]
    wanted = pool
    if target:
        wanted = WeightedMean.of(counted.shares[len(rows) :], np.ones(len(target)))
    part = SMOOTHED / max(len(of[chosen]), 1)

    def smooth(mean: WeightedMean) -> npt.NDArray[np.float64]:
        return (1 - part) * mean.share + part * (wanted.share + pool.share + ours.share) / 3

    def lost(t: npt.NDArray[np.float64], c: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(t > 0, t * np.log(t / np.maximum(c, 1e-12)), 0.0)

    holders = np.diff(counted.shares.tocsc().indptr)
    sure = np.abs(wanted.share - ours.share) > SURE * np.hypot(wanted.error, ours.error)
    listed = sure & (holders >= FEWEST)
    lacking, excess = lost(wanted.share, smooth(ours)), lost(ours.share, smooth(wanted))

    def divergence(c: npt.NDArray[np.float64]) -> float:
        """KL(t ‖ c), the words of few documents as one: of them, the drawing alone makes most of it."""
        common = holders >= FEWEST
        t, c = (np.append(share[common], share[~common].sum()) for share in (wanted.share, c))
        return float(lost(t, c).sum())

    def listing(value: npt.NDArray[np.float64]) -> Rows:
        order = np.argsort(-np.where(listed, value, -np.inf), kind="stable")[:LISTED]
        best = [int(column) for column in order if listed[column] and value[column] > 0]
        return [
            {
                "name": name,
                "target": float(wanted.share[column]) if target else None,
                "pool": float(pool.share[column]),
                "choice": float(ours.share[column]),
                "nats": float(value[column]),
            }
            for name, column in zip(counted.names(best, every), best, strict=True)
        ]

    return {
        "lacking": listing(lacking),
        "excess": listing(excess),
        "divergence": {arm: divergence(smooth(means[arm])) for arm in drawn if arm in means},
        "target": bool(target),
        "weighed": worth is not None,
        "texts": len(rows),
    }
