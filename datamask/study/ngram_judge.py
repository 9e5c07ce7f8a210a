"""The judge of words alone: what a target's words cost, each given the one before it, by a choice's counts.

    read = Ngrams().read(cut_texts(texts, 4_600_000), targets)
    read["arc_easy"].bits_per_byte

Words are hashed into BUCKETS. A word costs its cross-entropy under the choice's pairs, interpolated with its words by
method C of Witten and Bell ("The zero-frequency problem", IEEE Transactions on Information Theory 37, 1991): after the
word v, w has the probability (n(v, w) + t(v) P(w)) / (n(v) + t(v)), where n counts and t(v) is how many different words
were seen after v; P is the words' own distribution with one added to every bucket, as in DSIR (arXiv 2302.03169).
DSIR's KL reduction, which adds words and pairs up in one bag, does not see words out of order: half of its cost is the
words', which no order changes, and the hashed pairs of a shuffled text fall into buckets as full as before. The
cross-entropy of a model of pairs does, and is what Moore and Lewis choose text by (ACL 2010). It knows nothing beyond.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from datamask.errors import InputError
from datamask.maps import places_of
from datamask.study.coder import CodedItems
from datamask.study.targets import BETWEEN, Target

BUCKETS = 10_000
_WORDS = re.compile(rb"[0-9A-Za-z_\x80-\xff]+|[^0-9A-Za-z_\x80-\xff\s]+")
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def words_of(text: bytes) -> Integers:
    """The buckets of a text's words and signs, in their order, (n,)."""
    return np.array([word_hash(word) for word in _WORDS.findall(text.lower())], dtype=np.int64) % BUCKETS


@lru_cache(1 << 20)
def word_hash(word: bytes) -> int:
    """32 bits, the same on every machine and in every run."""
    return zlib.crc32(word)


class WordPairs:
    """What was counted in a text: its words, and its pairs of words."""

    def __init__(self, text: bytes) -> None:
        words = words_of(text)
        counts = np.bincount(words, minlength=BUCKETS) + 1.0  # a bucket never seen still has a probability
        self._word = counts / counts.sum()
        self._keys, self._counts = np.unique(words[:-1] * BUCKETS + words[1:], return_counts=True)
        first = self._keys // BUCKETS
        self._kinds = np.bincount(first, minlength=BUCKETS)  # t(v)
        self._after = np.bincount(first, weights=self._counts, minlength=BUCKETS) + self._kinds  # n(v) + t(v)

    def bits(self, words: Integers) -> float:
        """What words in a row cost; the first of them by itself."""
        if not len(words):
            return 0.0
        return float(-np.log2(self._word[words[0]]) - np.log2(self.given(words[:-1], words[1:])).sum())

    def given(self, before: Integers, words: Integers) -> Floats:
        """(n,): the probability of each word after the one before it."""
        seen = np.append(self._counts, 0)[places_of(before * BUCKETS + words, self._keys)]
        kinds, after = self._kinds[before], self._after[before]
        return np.where(kinds, (seen + kinds * self._word[words]) / np.maximum(after, 1), self._word[words])


class Ngrams:
    name, kind = "n-grams", "counts"
    parameters, epochs = 0, 1.0

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, CodedItems]:
        """Each target's cost, by name.

        :raises InputError: no targets.
        """
        if not targets:
            raise InputError("no targets to judge by; name files from outside the pool")
        pairs = WordPairs(choice)
        return {target.name: _cost(target, pairs) for target in targets}


def _cost(target: Target, pairs: WordPairs) -> CodedItems:
    zeros = np.zeros(len(target.items))
    return CodedItems(
        target=target.name,
        bits=np.array([pairs.bits(words_of(item.whole)) for item in target.items]),
        bytes=np.array([len(BETWEEN) + len(item.whole) for item in target.items]),
        answer_bits=zeros,
        answer_bytes=zeros.astype(np.int64),
    )
