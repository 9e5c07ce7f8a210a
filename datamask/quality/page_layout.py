"""A batch of documents as arrays: code points, words, lines, paragraphs. What the rules count is counted here.

Everything is vectorised over the whole batch, so that the cost is per character and not per document:
documents are joined by newlines, and each sum is a difference of two prefix sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from datamask.compiling import compiled
from datamask.quality import characters as ch

AS_FOLDED = np.uint64(0x51ED270B)  # added to a folded code point before it is hashed
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: of the polynomial of a word's code points


@dataclass(frozen=True)
class Spans:
    """Pieces of the batch in order of appearance: words or lines. Positions are of code points in the batch."""

    start: np.ndarray  # (n,) int64
    end: np.ndarray  # (n,) int64, one past the last code point
    first: np.ndarray  # (documents + 1,) int64: document d has the pieces first[d] to first[d + 1]

    @cached_property
    def length(self) -> np.ndarray:
        """(n,) int64: characters of each piece."""
        return self.end - self.start

    @property
    def count(self) -> np.ndarray:
        """(documents,) int64."""
        return np.diff(self.first)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """(documents,) sums of a value per piece."""
        sums = np.append(0, np.cumsum(values, dtype=np.int64))
        return np.diff(sums[self.first])

    def number_of(self, places: np.ndarray) -> np.ndarray:
        """(n,) how many of some ascending positions lie in each piece."""
        return np.searchsorted(places, self.end) - np.searchsorted(places, self.start)

    def where(self, mask: np.ndarray) -> Spans:
        """The pieces for which mask (n,) is true."""
        kept = np.concatenate([[0], np.cumsum(mask)])
        return Spans(self.start[mask], self.end[mask], kept[self.first])


def code_points(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """uint32 code points of the texts, a newline before and after each, so that every neighbour exists; (texts,) where
    each starts, and ends."""
    joined = "\n".join(["", *texts, ""])
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    ends = np.cumsum(sizes + 1)
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32), ends - sizes, ends


class PageLayout:
    """The arrays of a batch of documents (any strings: empty, of megabytes, with NULs or lone surrogates)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.points, self.starts, self.ends = code_points(texts)
        self.texts = Spans(self.starts, self.ends, np.arange(len(texts) + 1))
        self.characters = self.texts.length
        table = ch.tables()
        self.flags = table.flags[self.points]
        self.kinds = table.kinds[self.points]

    def spans(self, start: np.ndarray, end: np.ndarray) -> Spans:
        """Pieces given in order of appearance, none reaching over a document's end."""
        return Spans(start, end, np.append(np.searchsorted(start, self.starts), len(start)))

    def total(self, mask: np.ndarray) -> np.ndarray:
        """(documents,) number of True in a mask over code points."""
        return self.texts.number_of(np.flatnonzero(mask))

    @cached_property
    def chunks(self) -> Spans:
        """What str.split() gives."""
        ink = (self.flags & ch.SPACE) == 0
        edges = np.flatnonzero(ink[1:] != ink[:-1]) + 1
        return self.spans(edges[::2], edges[1::2])

    @cached_property
    def words(self) -> Spans:
        """Words and punctuation as English tokenizers split them; in scripts without spaces each letter.

        The rules are spaCy's for English, which datatrove's filters use, as far as three neighbouring characters
        show them: punctuation at the edge of a chunk is a word of its own, a hyphen or slash between letters
        splits, "don't" is two words, "3.14", "e-mail@x.org" and a URL are one. spaCy's lists of exceptions
        (abbreviations, emoticons) are left out.
        """
        start, end = np.empty((2, len(self.points)), np.int64)
        words = find_words(self.points, self.kinds, self.chunks.start, self.chunks.end, start, end)
        return self.spans(start[:words].copy(), end[:words].copy())

    @cached_property
    def word_flags(self) -> np.ndarray:
        """(words,) uint8: the flags any character of the word has; SYMBOL is only set where all have it."""
        if not len(self.words.start):
            return np.zeros(0, dtype=np.uint8)
        flags = self.flags ^ np.uint8(ch.SYMBOL)  # now "not a symbol"; blanks after a word must not count
        flags[self.kinds == ch.BLANK] = 0
        return np.bitwise_or.reduceat(flags, self.words.start) ^ np.uint8(ch.SYMBOL)

    @cached_property
    def newlines(self) -> np.ndarray:
        """Positions of every newline, those between documents too."""
        return np.flatnonzero(self.points == 10)

    @cached_property
    def lines(self) -> Spans:
        """What text.split("\\n") gives, empty lines too."""
        return self.spans(self.newlines[:-1] + 1, self.newlines[1:])

    @cached_property
    def split_lines(self) -> Spans:
        """What text.splitlines() gives: other line breaks count, and there is no empty last line."""
        breaks = np.flatnonzero(self.flags & ch.LINE_BREAK)
        if len(breaks) == len(self.newlines):
            start, end = self.lines.start, self.lines.end
        else:
            pair = (self.points[breaks] == 10) & (self.points[breaks - 1] == 13) & ~np.isin(breaks, self.ends)
            start, end = breaks[:-1][~pair[1:]] + 1, breaks[1:][~pair[1:]]  # nothing lies between \r and \n
        last = (start == end) & np.isin(end, self.ends)
        return self.spans(start[~last], end[~last])

    def stripped(self, lines: Spans) -> tuple[np.ndarray, np.ndarray]:
        """First and one past the last position that is no white space; equal where a line is blank."""
        ink = self.ink
        first = np.searchsorted(ink, lines.start)
        last = np.searchsorted(ink, lines.end)
        blank = first == last
        if not len(ink):
            return lines.start, lines.start
        start = np.where(blank, lines.start, ink[np.minimum(first, len(ink) - 1)])
        return start, np.where(blank, lines.start, ink[last - 1] + 1)

    @cached_property
    def ink(self) -> np.ndarray:
        """Positions of what is no white space."""
        return np.flatnonzero(self.kinds != ch.BLANK)

    @cached_property
    def paragraphs(self) -> Spans:
        """What re.split(r"\\n{2,}", text.strip()) gives."""
        text_start, text_end = self.stripped(self.texts)
        run_start = self.newlines[np.append(True, np.diff(self.newlines) > 1)]
        run_end = self.newlines[np.append(np.diff(self.newlines) > 1, True)] + 1
        document = np.searchsorted(self.starts, run_start, "right") - 1
        inside = (run_end - run_start >= 2) & (document >= 0)
        inside &= (run_start > text_start[document]) & (run_end < text_end[document])
        start = np.sort(np.concatenate([text_start, run_end[inside]]), kind="stable")
        end = np.sort(np.concatenate([text_end, run_start[inside]]), kind="stable")
        return self.spans(start, end)

    def hashes(self, spans: Spans) -> np.ndarray:
        """(n,) uint64: equal texts have equal hashes; others differ (odds of a collision: about 2**−50)."""
        found = np.empty(len(spans.start), np.uint64)
        span_hashes(self.points, spans.start, spans.end, found)
        return found


@compiled
def mix_hash(value):  # type: ignore[no-untyped-def]
    """A hash, or an array of them in place, scrambled: every bit depends on every bit."""
    value ^= value >> np.uint64(31)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(29)
    return value


@compiled
def hashed(point, total, power):  # type: ignore[no-untyped-def]
    """(total, power) of a hash, a polynomial in BASE, with one code point more."""
    return total + (point + AS_FOLDED) * power, power * BASE


@compiled
def span_hashes(points, start, end, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) uint64 with hashes of the code points from start (n,) to end (n,)."""
    for span in range(len(start)):
        total, power = np.uint64(0), np.uint64(1)
        for at in range(start[span], end[span]):
            total, power = hashed(np.uint64(points[at]), total, power)
        found[span] = mix_hash(total)


@compiled
def find_words(points, kinds, first, last, start, end):  # type: ignore[no-untyped-def]
    """Fills start and end, with room for all, with `PageLayout.words`, and returns how many there are.

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
