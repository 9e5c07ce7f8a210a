"""How the words of each group of a sample are spelt: the runs of letters that they hold.

A misprint has letters in an order that no other word of its language has; a term, or a form of a word, that comes for
the first time is spelt as others are. A small sample knows most runs of three letters long before it knows most words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from datamask.compiling import compiled
from datamask.quality.batch_words import BatchWords, folded
from datamask.quality.code_points import BASE, mix_hash
from datamask.quality.word_counts import HALVES, halves
from datamask.quality.word_tables import DIGIT, UPPER, tables

EDGE = np.uint64(1)  # stands in a run for the beginning and the end of a word
# A set with one bit a run: of a sample in 60 languages a million are set, so one run in 32 is taken for another.
BITS = 25


@dataclass(frozen=True)
class Spellings:
    """The runs of three letters of a sample's words, by the half and the group of their documents."""

    seen: np.ndarray  # (2**BITS / 8,) uint8, a bit a run

    @classmethod
    def of(cls, batches: Iterable[tuple[BatchWords, np.ndarray]]) -> Spellings:
        """Of documents and their (documents,) groups."""
        found = cls(np.zeros(1 << (BITS - 3), np.uint8))
        for words, group in batches:
            places = np.flatnonzero(words.is_word & (words.kinds & DIGIT == 0))
            found.strange(words, places, halves(words), group, note=True)
        return found

    def strange(
        self, words: BatchWords, places: np.ndarray, half: np.ndarray, group: np.ndarray, note: bool = False
    ) -> np.ndarray:
        """(n,) bool: which of these tokens, (n,) places, hold a run that no word of their document's group holds in a
        half of the sample, and no capital: names are strange everywhere.

        half, group: (documents,); note: whether their runs are held from now on
        """
        found = np.empty(len(places), bool)
        own = mix_hash((HALVES * group + half).astype(np.uint64) + BASE)[words.document[places]]
        find_strange(words.points, tables().packed, words.start[places], words.end[places], own, self.seen, note, found)
        return found


@compiled
def find_strange(points, table, start, end, own, seen, note, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) with whether words hold a run that is not in `seen`; `note`: puts each run there.

    start, end: (n,) of each word among the points; own: (n,) a hash of its half and group.
    """
    for word in range(len(start)):
        first, second, strange, name = np.uint64(0), EDGE, False, False
        for at in range(start[word], end[word] + 1):
            last = EDGE if at == end[word] else folded(table[points[at]])
            name |= at < end[word] and table[points[at]] & np.uint64(UPPER) != 0
            if not last:  # it is invisible
                continue
            if first:
                key = mix_hash(((own[word] + first) * BASE + second) * BASE + last) >> np.uint64(64 - BITS)
                place, bit = np.int64(key >> np.uint64(3)), np.uint8(1) << np.uint8(key & np.uint64(7))
                strange |= seen[place] & bit == 0
                if note:
                    seen[place] |= bit
            first, second = second, last
        found[word] = strange and not name
