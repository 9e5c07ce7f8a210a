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
from datamask.quality.character_ngrams import HALVES, PAIR, Table, halves
from datamask.quality.copy_loops import counts_without, missing_from, pair_keys, times_among
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
        if max(len(one), len(other)) > CHARACTERS:
            held = self._held(BatchWords([one[:CHARACTERS], other[:CHARACTERS]]))
        else:
            held = self._held(words)
        differing = _Differing(words, held, self.model)
        size = max(HALVES * float(self.model.pool.languages.words[self._groups(words)[0]]), LEAST)
        said = differing.order(size) + differing.at_home(size)
        return float(said[0] - said[1])

    def _groups(self, words: BatchWords) -> np.ndarray:
        found = self.model.pool.languages.groups(words, [None] * len(words), np.zeros(len(words)))
        found[:] = found[0]
        return found

    def _held(self, words: BatchWords) -> np.ndarray:
        """(texts,) the half of the sample that each text was counted in, −1 if it is not there.

        :param words: of the texts' beginnings.
        """
        half, found = halves(words), np.full(len(words), -1)
        for text in range(len(words)):
            keys = pair_keys(words.hashes, words.hashes, words.first, text, PAIR)
            if len(keys) + 1 >= SHORTEST:
                there = self.model.pool.counts.pairs.count(keys, np.full(len(keys), half[text])) > 0
                found[text] = half[text] if there.mean() > HELD else -1
        return found


class _Differing:
    """The pairs of neighbours, and the words, that only one of two texts has; counts are of both halves.

    :param held: (2,) the half that each text was counted in, or −1.
    """

    def __init__(self, words: BatchWords, held: np.ndarray, model: Model) -> None:
        self._words, self._held, self._counts = words, held, model.pool.counts
        hashes, tails, heads, first = words.hashes, words.tails, words.heads, words.first
        self._by_word = [pair_keys(hashes, hashes, first, text, PAIR) for text in (0, 1)]
        self._by_joint = [pair_keys(tails, heads, first, text, PAIR) for text in (0, 1)]
        mine, theirs = self._by_word
        self._own = [missing_from(mine, theirs), missing_from(theirs, mine)]  # places among a text's pairs

    def order(self, size: float) -> np.ndarray:
        """(2,) nats: how much likelier each text's own pairs are than by chance. size: words of the language."""
        counts, words = self._counts, self._words
        hashes, tails, heads = (self._by_text(values) for values in (words.hashes, words.tails, words.heads))
        known, known_next = (self._count(counts.words, hashes, self._of_own(hashes, step)) for step in (0, 1))
        before = self._count(counts.tails, tails, self._of_own(tails))
        after = self._count(counts.heads, heads, self._of_own(heads, 1))
        by_word = self._count(counts.pairs, self._by_word, self._of_own(self._by_word))
        by_joint = self._count(counts.joints, self._by_joint, self._of_own(self._by_joint))
        everywhere = np.full(len(known), size)
        said = _nats(lift(known, known_next, by_word, everywhere, "pairs"))
        said += JOINTS * _nats(lift(before, after, by_joint, everywhere, "joints"))
        return np.bincount(np.repeat([0, 1], [len(own) for own in self._own]), weights=said, minlength=2)

    def _of_own(self, values: Sequence[np.ndarray], step: int = 0) -> np.ndarray:
        """What each text's own pairs have of these values of its words or pairs; step 1: their second words."""
        return np.concatenate([mine[own + step] for mine, own in zip(values, self._own, strict=True)])

    def at_home(self, size: float) -> np.ndarray:
        """(2,) nats: how much likelier each text's own words are in the rest of it than in the corpus; less STRANGE for
        each word that neither has."""
        hashes, found = self._by_text(self._words.hashes), np.zeros(2)
        is_word = self._by_text(self._words.is_word)
        for text, own_pairs in enumerate(self._own):
            before, after = np.zeros((2, len(hashes[text])), bool)
            after[own_pairs] = before[own_pairs + 1] = True
            begun, ended = before.copy(), after.copy()
            begun[:1] = ended[-1:] = True
            own = begun & ended & (before | after)
            mine = hashes[text][own]
            rest = hashes[text][~own]
            known = self._count(self._counts.words, hashes, mine)
            times = times_among(rest, mine)
            likelier = np.log((times / ((known + 0.5) / size) + REST) / (len(rest) + REST))
            strange = (times == 0) & (known == 0) & is_word[text][own]
            found[text] = np.clip(likelier, -MOST, MOST).sum() - STRANGE * strange.sum()
        return found

    def _by_text(self, values: np.ndarray) -> list[np.ndarray]:
        first = self._words.first
        return [values[first[text] : first[text + 1]] for text in (0, 1)]

    def _count(self, table: Table, keys: Sequence[np.ndarray], wanted: np.ndarray) -> np.ndarray:
        """(m,) float64 counts in both halves of these keys (m,), without what the texts were counted for.

        :param keys: all of each text.
        """
        found: np.ndarray = counts_without(*table.places, wanted, *keys, self._held)
        return found


def _nats(lifts: np.ndarray) -> np.ndarray:
    """(n,) float64; 0 where the pool lacks one of the words."""
    return np.where(lifts == UNKNOWN, 0, lifts) / UNIT
