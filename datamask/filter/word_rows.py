"""Words in a row: which texts hold 13 words in a row of others, whatever lies between the words and in whatever case.

    rows = WordRows(texts)                                    # what is looked for
    for single, _, document, count in hashed_words(pool):     # datamask.text.ngrams
        gram, at = rows.find(single, document)                # in which word of the block which row begins
        rows.text[rows.starts[gram]]                          # the first text that has it

Of a text of 8 to 13 words all of them in a row (Brown et al., arXiv 2005.14165, appendix C: 13, and at least 8 for
short texts); shorter ones are not looked for. One search for all that asks for leaks: the filter, coverage's target,
the judge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datamask.maps import records_of
from datamask.text.ngrams import FIRST, hashed_words, letters

ROW, SHORTEST = 13, 8  # words
VARIED = 0.5  # of a row's words
# a row that stands in a text: its hash, its words, its first word there, and whether it is varied
STANDING = np.dtype([("hash", "<u8"), ("length", "<i8"), ("text", "<i8"), ("place", "<i8"), ("varied", "?")])


class WordRows:
    """The rows of words of some texts, numbered (`gram`), and where in which text each stands.

    words: (texts,) int64, words of each text; length: (grams,) words of a row; starts: (grams + 1,) into text and
    place: the texts, ascending, that have the row, and its first word there. varied: (grams,) bool, whether half of a
    row's words are different ones, letters and digits that stand alone not counted; the others tell of nothing: an
    alphabet, a scale of marks, a name with its link and its file.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        words, found = [np.zeros(0, np.int64)], [np.zeros(0, STANDING)]
        for single, _, document, count in hashed_words(texts):
            begins = np.searchsorted(document, np.arange(count + 1))
            lengths, before, first = np.diff(begins), _before(single), sum(map(len, words))
            words.append(lengths)
            for length in range(SHORTEST, ROW + 1):
                hashes, at = in_a_row(single, document, length)
                kept = np.ones(len(at), bool) if length == ROW else lengths[document[at]] == length
                at = at[kept]
                own = records_of(
                    STANDING, hash=hashes[kept], text=first + document[at], place=at - begins[document[at]]
                )
                own["length"], own["varied"] = length, _different(before, at, length) >= VARIED * length
                found.append(own)
        self.words = np.concatenate(words)
        rows = np.concatenate(found)
        rows = rows[np.lexsort((rows["hash"], rows["length"]))]
        self.text, self.place = rows["text"], rows["place"]
        new = (np.diff(rows["length"], prepend=0) != 0) | (np.diff(rows["hash"], prepend=np.uint64(0)) != 0)
        self.starts = np.append(np.flatnonzero(new), len(rows))
        grams = rows[new]
        self.length, self.varied = grams["length"], grams["varied"]
        self._known: list[tuple[int, np.ndarray, int]] = []  # words, hashes in order, number of the first
        for length in np.unique(self.length).tolist():
            first, last = np.searchsorted(self.length, [length, length + 1])
            self._known.append((length, np.ascontiguousarray(grams["hash"][first:last]), int(first)))

    def find(self, single: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(gram, at) int64 of every row that stands in a block of `hashed_words`: shorter rows first, then in order."""
        grams, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for length, known, first in self._known:
            hashes, at = in_a_row(single, document, length)
            number = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            hit = known[number] == hashes
            grams.append(first + number[hit])
            places.append(at[hit])
        return np.concatenate(grams), np.concatenate(places)

    def texts_with(self, gram: int) -> list[tuple[int, int]]:
        """(text, its word) wherever a row stands."""
        part = slice(self.starts[gram], self.starts[gram + 1])
        return list(zip(self.text[part].tolist(), self.place[part].tolist(), strict=True))


def in_a_row(single: np.ndarray, document: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of every `length` words in a row of one text, and the places of their first words."""
    count = len(single) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    total = np.zeros(count, np.uint64)
    for place in range(length):
        total = total * FIRST + single[place : place + count]
    at = np.flatnonzero(document[:count] == document[length - 1 :])
    return total[at], at


def _before(single: np.ndarray) -> np.ndarray:
    """(n,) int64: where each word stood before, −1 if nowhere; of letters and digits that stand alone the word itself,
    so that they are new in no row."""
    order = np.argsort(single, kind="stable")
    before = np.full(len(single), -1)
    same = single[order[1:]] == single[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    alone = np.isin(single, letters())
    before[alone] = np.flatnonzero(alone)
    return before


def _different(before: np.ndarray, at: np.ndarray, length: int) -> np.ndarray:
    """How many different words the rows of so many words have that begin `at`, by `_before`."""
    found = np.zeros(len(at), np.int64)
    for place in range(length):
        found += before[at + place] < at
    return found
