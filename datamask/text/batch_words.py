"""A batch of documents as words, whatever its lines look like: what the content score reads.

White space only separates words here. Line ends, empty lines, trailing spaces and tabs change nothing that is counted,
so two layouts of one text have the same numbers to the bit. Letters are folded to lower case, digits to one digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from datamask.compiling import compiled
from datamask.text import word_tables as wt
from datamask.text.code_points import code_points, hashed, mix_hash

REACH = 12  # words on either side: what stands among them is judged in 25 words at a time, whatever the lines are
CLOSES, CUTS = 1, 2  # what a mark does to the sentence before it
FIGURES = 0.3  # share of numbers and marks; .05 is usual in prose, .4 to .8 in tables
POINT = np.uint64(0x1FFFFF)
LESS, AMPERSAND, PIPE = (ord(char) for char in "<&|")
LEFT_QUOTES = (ord("«"), ord("‹"))
COLON, SLASH, WORDSPACE, FULL_STOP, ELLIPSIS = map(ord, ":/፡.…")
NOT_OF_LINKS = tuple(map(ord, '<>"{}|\\^`'))  # RFC 3986 has none of them in an address


class BatchWords:
    """The words and marks of a batch, in order; `first[d]` to `first[d + 1]` are document d's.

    Of each (tokens,): start and end among `points`, the kind of its first code point, whether it is a word, whether
    most of it is capitals, whether it CLOSES a sentence or a clause or, an ellipsis, CUTS one off, and the uint64
    hashes of the folded word, of its first LETTERS (`heads`) and of its last (`tails`).
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.points, self.starts, self.ends = code_points(texts)
        self.characters = np.zeros((len(texts), 5), np.int64)  # numbers of code points, see `find_tokens`
        room, marks = len(self.points), np.empty(len(self.points), np.int64)
        kinds = (np.int64, np.int64, np.uint8, bool, bool, np.uint8, *[np.uint64] * 3)
        found = tuple(np.empty(room, kind) for kind in kinds)
        tokens, angles = find_tokens(self.points, wt.tables().packed, self.ends, found, self.characters, marks)
        self.start, self.end, self.kinds, self.is_word, self.shouted, self.closes, *hashes = (
            values[:tokens].copy() for values in found
        )
        self.hashes, self.heads, self.tails = hashes
        # Two of Ethiopic's word spaces end a sentence in 25 of 581 Amharic and Tigrinya pages of news; one is no mark.
        mark, size = self.points[self.start], self.end - self.start
        self.closes[(mark == WORDSPACE) & (size > 1)] = CLOSES
        self.closes[(mark == ELLIPSIS) | (mark == FULL_STOP) & (size > 2)] = CUTS
        self.marks = marks[:angles].copy()  # places of "<" and "&"
        self.first = np.append(np.searchsorted(self.start, self.starts), len(self.start))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def document(self) -> np.ndarray:
        """(tokens,) int64."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.first))

    def count(self, which: np.ndarray) -> np.ndarray:
        """(documents,) how many of its tokens are so. which: (tokens,) bool."""
        found = np.empty(len(self), np.int64)
        count_tokens(self.first, which, found)
        return found

    def near(self, which: np.ndarray) -> np.ndarray:
        """(tokens,) how many of a document's tokens up to REACH away are so. which: (tokens,) bool."""
        found = np.empty(len(which), np.int64)
        count_near(self.first, which, found)
        return found

    @cached_property
    def figures(self) -> np.ndarray:
        """(tokens,) bool: which stand in a passage of figures: a table, a formula, a head of mail, a link. There more
        than FIGURES of the tokens up to REACH away are numbers or marks that end no sentence; links are not counted."""
        marks = np.where(self.is_word, self.kinds & wt.DIGIT != 0, self.kinds & wt.STOP == 0)
        return (self.near(marks & ~self.linked) > FIGURES * self.near(~self.linked)) | self.linked

    @cached_property
    def linked(self) -> np.ndarray:
        """(tokens,) bool: which are of a link, `https://…`, but for a full stop or the like at its end."""
        found = np.empty(len(self.start), bool)
        find_links(self.points, wt.tables().packed, self.start, self.end, self.is_word, found)
        return found

    @cached_property
    def meanings(self) -> np.ndarray:
        """(tokens,) uint8: of each one's first code point, `WordTables.meaning`."""
        return wt.tables().meaning[self.points[self.start]]

    @cached_property
    def script(self) -> np.ndarray:
        """(tokens,) uint8: of the first letter of each, its place in `WordTables.scripts`; 0 where it is none."""
        return wt.tables().script[self.points[self.start]]

    @cached_property
    def main_script(self) -> np.ndarray:
        """(documents,) the script that most of its words are written in, 0 where there are none."""
        keys = (256 * self.document + self.script)[self.script > 0]
        return np.bincount(keys, minlength=256 * len(self)).reshape(len(self), 256).argmax(axis=1)

    def first_among(self, which: np.ndarray) -> np.ndarray:
        """As `first`, among the tokens that are so. which: (tokens,) bool."""
        return np.append(0, np.cumsum(which))[self.first]

    @cached_property
    def parted(self) -> np.ndarray:
        """(tokens,) bool: white space stands before it, or it or the one before it is a letter that is a word."""
        single = self.kinds & wt.SINGLE != 0
        follows = np.append(-1, self.end[:-1])[: len(single)]
        before = np.append(False, single[:-1])[: len(single)]
        return single | before | (self.start > follows)


@compiled
def count_tokens(first, which, found):  # type: ignore[no-untyped-def]
    """Fills found (documents,) with `BatchWords.count`."""
    for document in range(len(found)):
        found[document] = np.sum(which[first[document] : first[document + 1]])


@compiled
def find_links(points, table, start, end, is_word, found):  # type: ignore[no-untyped-def]
    """Fills found (tokens,) with `BatchWords.linked`: a word, ":" and "//", and what goes on from there without white
    space, a mark that no address holds, or a letter of a script without spaces."""
    inside = False
    for at in range(len(found)):
        point = points[start[at]]
        glued = at > 0 and start[at] == end[at - 1]
        if inside:
            inside = glued and point not in NOT_OF_LINKS and not table[point] & np.uint64(wt.SINGLE)
            inside = inside and (point < 128 or is_word[at])
        elif glued and at > 1 and point == SLASH and end[at] - start[at] == 2 and is_word[at - 2]:
            inside = points[start[at - 1]] == COLON and start[at - 1] == end[at - 2]
            found[at - 2] = found[at - 1] = inside
        found[at] = inside
        last = inside and (at + 1 == len(found) or start[at + 1] > end[at])
        if last and not is_word[at] and point != SLASH:
            found[at] = False


@compiled
def count_near(first, which, found):  # type: ignore[no-untyped-def]
    """Fills found (tokens,) with `BatchWords.near`."""
    for document in range(len(first) - 1):
        low, high, number = first[document], first[document + 1], 0
        for at in range(low - REACH, high):
            if at + REACH < high:
                number += which[at + REACH]
            if at - REACH > low:
                number -= which[at - REACH - 1]
            if at >= low:
                found[at] = number


@compiled
def folded(entry):  # type: ignore[no-untyped-def]
    """The code point, uint64, that one folds to, of its `WordTables.packed`."""
    return (entry >> np.uint64(wt.FOLDED)) & POINT


@compiled
def find_tokens(points, table, ends, found, counts, marks):  # type: ignore[no-untyped-def]
    """Fills `found`, arrays with room for all that `BatchWords` says of tokens, and `marks` with the places of "<" and
    "&". Returns the number of tokens, and of marks.

    A word begins where the one before is none, or where a letter stands alone; a mark for itself begins always, but a
    run of the same mark is one. A joiner between two letters is of their word.

    counts: (documents, 5) is filled with numbers of code points: not blank, broken, separators, of programs; and of
    places where UTF-8 was read as cp1252 or Latin-1. A run of one mark counts once. The pipes of a table's rows are
    left out: where one row ends and the next begins, two pipes stand with only a blank between. «» are
    separators as far as one stands without the other.

    points: between line ends; ends: (documents,) where the line end after each stands; table: `WordTables.packed`.
    """
    start, end, kinds, is_word, shouted, closes, hashes, heads, tails = found
    tokens, angles, document, last = 0, 0, 0, len(points) - 1
    ink, broken, bars, code, misread = 0, 0, 0, 0, 0
    quotes = 0  # right ones less left ones
    row, width = 0, 0  # pipes since the last row of a table began, and in the row before
    capitals = 0  # of the token
    before, open_ = False, False  # whether the code point before is of a word, and of a token
    held, single = np.uint64(0), np.uint64(wt.SINGLE)
    total, power, head, size = np.uint64(0), np.uint64(1), np.uint64(0), 0
    for at in range(1, len(points)):
        point = points[at]
        entry = table[point]
        if entry & np.uint64(wt.ORDINARY) and before and not held & single:  # most of most texts
            total, power = hashed(folded(entry), total, power)
            size += 1
            if size == wt.LETTERS:
                head = total
            ink += 1
            held = np.uint64(wt.WORD)
            continue
        kind = entry & np.uint64(0xFF)
        blank = entry & np.uint64(wt.BLANK) != 0
        word = kind & np.uint64(wt.WORD) != 0
        if (
            kind & np.uint64(wt.JOINER)
            and held & np.uint64(wt.WORD)
            and table[points[min(at + 1, last)]] & np.uint64(wt.WORD)
        ):
            word = True
        if word:
            follows = before and not kind & single and not (held & single and not kind & np.uint64(wt.MARK))
        else:
            follows = point == points[at - 1]
        before, held = word, kind
        if open_ and (blank or not follows):
            token = tokens - 1
            end[token] = at
            hashes[token] = heads[token] = tails[token] = mix_hash(total)
            if size > wt.LETTERS:
                heads[token] = mix_hash(head)
                total, power = np.uint64(0), np.uint64(1)
                tail, left = at, wt.LETTERS
                while left:
                    tail -= 1
                    left -= folded(table[points[tail]]) != 0
                for place in range(tail, at):
                    if folded(table[points[place]]):
                        total, power = hashed(folded(table[points[place]]), total, power)
                tails[token] = mix_hash(total)
            shouted[token] = capitals > 1 and 2 * capitals > at - start[token]
            open_ = False
        if blank:
            if document < len(ends) and at == ends[document]:
                bars += abs(quotes) - min(row, width)  # the last row of a table is one too
                counts[document] = (ink, broken, bars, code, misread)
                quotes, row, width, ink, broken, bars, code, misread = (0,) * 8
                document += 1
                continue
        else:
            if not open_:
                start[tokens], kinds[tokens], is_word[tokens] = at, kind, word
                closes[tokens] = not word and (kind & np.uint64(wt.STOP) != 0 or entry & np.uint64(wt.CLAUSE) != 0)
                tokens += 1
                open_, capitals = True, 0
                total, power, size = np.uint64(0), np.uint64(1), 0
            if folded(entry):  # else it is invisible, and the word is the same without it
                total, power = hashed(folded(entry), total, power)
                size += 1
            capitals += kind & np.uint64(wt.UPPER) != 0
            if size == wt.LETTERS:
                head = total
        if not blank:
            ink += word or point != points[at - 1]  # a rule of equal marks is one mark
        means = (entry >> np.uint64(wt.MEANING)) & np.uint64(7)
        if means:
            broken += means == wt.BROKEN
            bars += means == wt.BAR
            if point == PIPE:
                back, begin = at - 1, ends[document - 1] if document else 0
                while back > begin and table[points[back]] & np.uint64(wt.BLANK):
                    back -= 1
                if back < at - 1 and back > begin and points[back] == PIPE:  # a row of a table ends, another begins
                    bars, width, row = bars - row, row, 0
                row += 1
            if means == wt.QUOTE:
                quotes += -1 if point in LEFT_QUOTES else 1
            code += means == wt.CODE
        lead = (entry >> np.uint64(wt.BYTE)) & np.uint64(0xFF)
        if wt.LEADS[0] <= lead <= wt.LEADS[1]:  # a lead byte and as many others as belong to it
            good = True
            for step in range(1, 2 + (lead >= 0xE0) + (lead >= 0xF0)):
                after = table[points[min(at + step, last)]]
                other = (after >> np.uint64(wt.BYTE)) & np.uint64(0xFF)
                if after & np.uint64(wt.BLANK):
                    good &= wt.SPACED[0] <= lead <= wt.SPACED[1] and not table[points[at - 1]] & np.uint64(wt.UPPER)
                else:
                    good &= 0x80 <= other < 0xC0
            misread += good
        if point in (LESS, AMPERSAND):
            marks[angles] = at
            angles += 1
    return tokens, angles
