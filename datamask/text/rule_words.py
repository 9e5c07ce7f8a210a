"""The words that the published rules count, of a batch of documents.

The rules of splitting are spaCy's for English, which datatrove's filters use, as far as three neighbouring characters
show them: punctuation at the edge of a chunk is a word of its own, a hyphen or slash between letters splits, "don't" is
two words, "3.14", "e-mail@x.org" and a URL are one. spaCy's lists of exceptions (abbreviations, emoticons) are left
out. In scripts without spaces each letter is a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datamask.compiling import compiled
from datamask.text import characters as ch
from datamask.text.code_points import code_points, span_hashes


class RuleWords:
    """Words and punctuation of documents (any strings: empty, of megabytes, with NULs or lone surrogates), in order;
    `first[d]` to `first[d + 1]` are document d's.

    Of each (words,): start and end among the batch's code points, where document d begins at starts[d]; length in
    characters; hashes, uint64; flags, uint8: those that any character of the word has, SYMBOL where all have it.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        points, self.starts, _ = code_points(texts)
        table = ch.tables()
        kinds, flags = table.kinds[points], table.flags[points] ^ np.uint8(ch.SYMBOL)  # now "not a symbol"
        edges = np.flatnonzero(np.diff(kinds == ch.BLANK)) + 1
        start, end = np.empty((2, len(points)), np.int64)
        words = find_words(points, kinds, edges[::2], edges[1::2], start, end)
        self.start, self.end = start[:words].copy(), end[:words].copy()
        self.first = np.append(np.searchsorted(self.start, self.starts), words)
        self.length = self.end - self.start
        flags[kinds == ch.BLANK] = 0  # blanks after a word do not count
        self.flags = np.bitwise_or.reduceat(flags, self.start) if words else np.zeros(0, np.uint8)
        self.flags ^= np.uint8(ch.SYMBOL)
        self.hashes = np.empty(words, np.uint64)
        span_hashes(points, self.start, self.end, self.hashes)

    @property
    def count(self) -> np.ndarray:
        """(documents,) int64."""
        return np.diff(self.first)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """(documents,) sums of a value per word."""
        sums = np.append(0, np.cumsum(values, dtype=np.int64))
        return np.diff(sums[self.first])


@compiled
def find_words(points, kinds, first, last, start, end):  # type: ignore[no-untyped-def]
    """Fills start and end, with room for all, with those of `RuleWords`, and returns how many there are.

    first, last: (n,) where chunks begin and end. Punctuation between two word characters of a chunk belongs to the
    word; a link is one word.
    """
    words = 0
    for chunk in range(len(first)):
        low, high = first[chunk], last[chunk]
        opens, closes, link = high, low, False  # what lies between is not split off at the edge
        for at in range(low, high):
            if kinds[at] not in (ch.EDGE, ch.COLON, ch.PERIOD, ch.COMMA, ch.APOSTROPHE):
                opens, closes = min(opens, at), at + 1
            link |= points[at] == ord(":") and points[at + 1] == ord("/") and points[at + 2] == ord("/")
        before = 0
        for at in range(low, high):
            here, inside = kinds[at], opens <= at < closes
            if inside and (link or here == ch.EDGE):
                inner = 1
            else:
                inner = place_in_word(kinds[at - 1], here, kinds[at + 1]) if inside or here != ch.COLON else 0
            run = points[at] == points[at - 1] and here in (ch.PERIOD, ch.HYPHEN)
            if not run and (not inner & before & 1 or inner & 2):
                start[words] = at
                words += 1
            end[words - 1] = at + 1
            before = inner
    return words


@compiled
def place_in_word(before, here, after):  # type: ignore[no-untyped-def]
    """Of the middle one of three kinds: 1 where it is of a word, 3 where it begins one, else 0."""
    solid = ch.LOWER <= after <= ch.OTHER
    letters = ch.LOWER <= before <= ch.UPPER and ch.LOWER <= after <= ch.UPPER
    splits = letters or (before == ch.DIGIT and ch.LOWER <= after <= ch.UPPER)
    if here == ch.PERIOD:  # a.b, 3.14, .com, but end.Begin is two
        return int(solid and not (before == ch.LOWER and after == ch.UPPER))
    if here == ch.COMMA:  # 1,000, but one,two is three words
        return int(solid and ch.LOWER <= before <= ch.OTHER and not letters)
    if here == ch.HYPHEN:
        return int(not splits and not (before == ch.DIGIT and after == ch.DIGIT) and ch.HYPHEN not in (before, after))
    if here in (ch.INFIX, ch.COLON):
        return int(not splits)
    if here == ch.APOSTROPHE:
        return 3 * letters
    return int(ch.LOWER <= here <= ch.OTHER)
