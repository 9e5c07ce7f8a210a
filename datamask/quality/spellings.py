"""How the words of each group of a sample are spelt: the runs of letters that they hold.

A misprint has letters in an order that hardly another word of its language has; a term, or a form of a word, that
comes for the first time is spelt as others are. A small sample knows most runs of three letters long before it knows
most words. A large one holds misprints itself, so a run must come more often there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from datamask.compiling import compiled
from datamask.quality.word_counts import HALVES, halves
from datamask.text.batch_words import BatchWords, folded
from datamask.text.code_points import BASE, mix_hash
from datamask.text.word_tables import DIGIT, UPPER, tables

EDGE = np.uint64(1)  # stands in a run for the beginning and the end of a word
APOSTROPHE = np.uint64(ord("'"))  # what stands before and behind one is spelt as words are
# A set with one bit a run: of a sample in 60 languages a million are set, so one run in 32 is taken for another.
BITS = 25
# Times a word that a run must come to be held. Letters lost in English and Pidgin of no stated language, of whose half
# of the sample 1.3 million words are read: .94 and .75 with any run, 1.00 and .98 with these.
RARE = 1e-5
MANY = 255  # counts of runs end there


@dataclass(frozen=True)
class Spellings:
    """The runs of three letters of a sample's words, by the half and the group of their documents."""

    seen: np.ndarray  # (2**BITS / 8,) uint8, a bit a run

    @classmethod
    def of(cls, batches: Iterable[tuple[BatchWords, np.ndarray]]) -> Spellings:
        """Of documents and their (documents,) groups."""
        found, counts = cls(np.zeros(1 << (BITS - 3), np.uint8)), np.zeros(1 << BITS, np.uint8)
        parts = [(words, HALVES * group + halves(words)) for words, group in batches]
        sizes = zip(*((own, words.count(words.is_word)) for words, own in parts), strict=True)
        number = np.bincount(*map(np.concatenate, sizes))  # of words of each half of a group
        least = np.clip(np.ceil(RARE * number), 1, MANY).astype(np.uint8)
        for words, own in parts:
            places = np.flatnonzero(words.is_word & (words.kinds & DIGIT == 0))
            found._look_up(words, places, own, least, counts)
        return found

    def strange(self, words: BatchWords, places: np.ndarray, half: np.ndarray, group: np.ndarray) -> np.ndarray:
        """(n,) bool: which of these tokens, (n,) places, hold a run that hardly a word of their document's group holds
        in a half of the sample, and no capital: names are strange everywhere.

        half, group: (documents,)
        """
        return self._look_up(words, places, HALVES * group + half, np.zeros(0, np.uint8), np.zeros(0, np.uint8))

    def _look_up(
        self, words: BatchWords, places: np.ndarray, own: np.ndarray, least: np.ndarray, counts: np.ndarray
    ) -> np.ndarray:
        found, own = np.empty(len(places), bool), own[words.document[places]]
        of_words = words.start[places], words.end[places], own
        find_strange(words.points, tables().packed, of_words, self.seen, least, counts, found)
        return found


@compiled
def find_strange(points, table, of_words, seen, least, counts, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) with whether words hold a run that is not in `seen`.

    of_words: (n,) each: start and end among the points, half and group; counts: (2**BITS,) of runs, where these are
    counted, else empty: of what comes `least` times, (halves and groups,), a bit is set in `seen`.
    """
    start, end, own = of_words
    for word in range(len(start)):
        first, second, strange, name = np.uint64(0), EDGE, False, False
        mine = mix_hash(np.uint64(own[word]) + BASE)
        for at in range(start[word], end[word] + 1):
            last = EDGE if at == end[word] else folded(table[points[at]])
            parts = last == APOSTROPHE
            last = EDGE if parts else last
            name |= at < end[word] and table[points[at]] & np.uint64(UPPER) != 0
            if not last:  # it is invisible
                continue
            if first:
                key = np.int64(mix_hash(((mine + first) * BASE + second) * BASE + last) >> np.uint64(64 - BITS))
                place, bit = key >> 3, np.uint8(1) << np.uint8(key & 7)
                strange |= seen[place] & bit == 0
                if len(counts):
                    counts[key] += counts[key] < MANY
                    if counts[key] >= least[own[word]]:
                        seen[place] |= bit
            first, second = (np.uint64(0), EDGE) if parts else (second, last)
        found[word] = strange and not name
