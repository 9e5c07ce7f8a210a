"""Which of two copies of a text has words put in the place of others: what the pool's counts say where they differ.

    counts = CopyCounts(model)
    counts.altered(one, other)      # 12.3: where they differ, the words of `one` are likelier by so many nats

A copy that the sample holds has been counted itself: its own counts say nothing about it and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datamask.quality.batch_words import BatchWords
from datamask.quality.character_ngrams import HALVES, Table, halves, neighbours, pairs
from datamask.quality.measures import JOINTS, UNIT, UNKNOWN, lift, order
from datamask.quality.pool_model import CHARACTERS, Model

# A text of the sample finds most of its pairs of words in the half that it was counted in, but for those whose slot a
# more frequent pair took (a fifth, at most). What other texts have of a text's pairs is two thirds at most in English.
HELD = 0.72
SHORTEST = 8  # words, below which nothing is said of this
REST = 100.0  # words of the corpus that a text's own words are mixed with: one that recurs in it is at home there
MOST = 4.0  # nats that one word may say
STRANGE = 2.0  # nats against a word that neither the rest of its text nor the corpus has: typing errors, broken words
LEAST = 100_000.0  # words of a language: where its group has fewer, most that hold its words are in other groups


@dataclass(frozen=True, eq=False)
class CopyCounts:
    """The counts of the pool by which copies of one text are told apart."""

    model: Model

    def natural(self, texts: Sequence[str]) -> list[float]:
        """How naturally the words of copies of one text follow one another, by the counts of both halves; nan: unknown.

        The texts' own counts are among them, so this is for telling copies from other texts, not for choosing one.
        """
        words = BatchWords(texts)
        return [float(value) for value in order(words, self.model.pool, self._groups(words))]

    def altered(self, one: str, other: str) -> float:
        """By how many nats the words that `one` has of its own are likelier than those of `other`: after and before
        their neighbours by the corpus's counts, and in this text by what the rest of it says. 0: nothing is known.

        :param one: a text. :param other: a copy of it.
        """
        words = BatchWords([one, other])
        differing = _Differing(words, [self._holds(text) for text in (one, other)], self.model)
        size = max(HALVES * float(self.model.pool.languages.words[self._groups(words)[0]]), LEAST)
        said = differing.order(size) + differing.at_home(size)
        return float(said[0] - said[1])

    def _groups(self, words: BatchWords) -> np.ndarray:
        found = self.model.pool.languages.groups(words, [None] * len(words), np.zeros(len(words)))
        found[:] = found[0]
        return found

    def _holds(self, text: str) -> int:
        """The half of the sample that the text was counted in, −1 if it is not there."""
        words = BatchWords([text[:CHARACTERS]])
        if len(words.start) < SHORTEST:
            return -1
        half = int(halves(words)[0])
        by_word, _ = pairs(words, neighbours(words))
        counts = self.model.pool.counts.pairs.count(by_word, np.full(len(by_word), half))
        return half if np.mean(counts > 0) > HELD else -1


class _Differing:
    """The pairs of neighbours, and the words, that only one of two texts has; counts are of both halves.

    :param held: the half that each text was counted in, or −1.
    """

    def __init__(self, words: BatchWords, held: Sequence[int], model: Model) -> None:
        self._words, self._held, self._counts = words, held, model.pool.counts
        self._place = neighbours(words)
        self._by_word, self._by_joint = pairs(words, self._place)
        self._document = words.document[self._place]
        self._own = np.zeros(len(self._place), bool)
        for text in (0, 1):
            mine = self._document == text
            self._own[mine] = ~np.isin(self._by_word[mine], self._by_word[~mine])

    def order(self, size: float) -> np.ndarray:
        """(2,) nats: how much likelier each text's own pairs are than by chance. size: words of the language."""
        counts, words, first = self._counts, self._words, self._place[self._own]
        known = self._count(counts.words, words.hashes, words.document)
        tails = self._count(counts.tails, words.tails, words.document)
        heads = self._count(counts.heads, words.heads, words.document)
        by_word = self._count(counts.pairs, self._by_word, self._document)[self._own]
        by_joint = self._count(counts.joints, self._by_joint, self._document)[self._own]
        everywhere = np.full(len(first), size)
        said = _nats(lift(known[first], known[first + 1], by_word, everywhere, "pairs"))
        said += JOINTS * _nats(lift(tails[first], heads[first + 1], by_joint, everywhere, "joints"))
        return np.bincount(self._document[self._own], weights=said, minlength=2)

    def at_home(self, size: float) -> np.ndarray:
        """(2,) nats: how much likelier each text's own words are in the rest of it than in the corpus; less STRANGE for
        each word that neither has."""
        words, hashes = self._words, self._words.hashes
        before, after = np.zeros((2, len(hashes)), bool)
        after[self._place[self._own]] = before[self._place[self._own] + 1] = True
        begins, ends = np.zeros((2, len(hashes)), bool)
        some = np.diff(words.first) > 0
        begins[words.first[:-1][some]] = ends[words.first[1:][some] - 1] = True
        own = (before | begins) & (after | ends) & (before | after)
        said = np.zeros(2)
        known = self._count(self._counts.words, hashes, words.document)
        for text in (0, 1):
            mine = words.document == text
            rest, mine = np.sort(hashes[mine & ~own]), mine & own
            times = _times(rest, hashes[mine])
            likelier = np.log((times / ((known[mine] + 0.5) / size) + REST) / (len(rest) + REST))
            strange = (times == 0) & (known[mine] == 0) & words.is_word[mine]
            said[text] = np.clip(likelier, -MOST, MOST).sum() - STRANGE * strange.sum()
        return said

    def _count(self, table: Table, keys: np.ndarray, document: np.ndarray) -> np.ndarray:
        """(n,) float64 counts of keys (n,) of both texts in both halves, without what the texts were counted for."""
        total = np.zeros(len(keys))
        for half in range(HALVES):
            found = table.count(keys, np.full(len(keys), half)).astype(np.float64)
            for text, held in enumerate(self._held):
                if held == half:
                    found -= _times(np.sort(keys[document == text]), keys)
            total += np.where(found < 0.5, 0, found)  # counts are kept within 9 %
        return total


def _nats(lifts: np.ndarray) -> np.ndarray:
    """(n,) float64; 0 where the pool lacks one of the words."""
    return np.where(lifts == UNKNOWN, 0, lifts) / UNIT


def _times(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n,) how often each value is among the ascending ones."""
    return np.searchsorted(ascending, values, "right") - np.searchsorted(ascending, values, "left")
