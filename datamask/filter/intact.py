"""Which of two copies is the intact one: judged by where they differ, never by a score.

    worse(a, b, likeness(a.shingles, b.shingles))     # 1: b is the altered copy, −1: a is, 0: cannot be told

Where a text has words put in, the other has nothing of its own; where words were replaced, the right ones follow their
neighbours as words of the corpus do, and recur in the rest of the document more often than strangers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from datamask.filter.shingles import WINDOW, Likeness, unspaced
from datamask.filter.surface import Prose, Surface

TWICE = 1.15  # ratio of windows per distinct shingle from which one of two texts repeats itself
TWICE_ALIKE = 0.8  # Jaccard from which it repeats the other; below, words put in others' place break repetitions
BATTERED = 0.05  # difference of blemishes per letter from which the surface alone decides
NOTHING = (
    1 / 3
)  # a text with at most this share of the other's own letters counts as having none (adjacent additions look so)
MANY = 10  # additions of a word or two in so many places are no fuller edition, however long in all
SCATTERED = 30  # letters per place up to which additions are a word or two
# Copies with one word in ten replaced have 4 to 18 letters of their own a place, and up to 0.17 of them are digits
# (3rd and 97th percentile of 264 in 15 languages); laws, licences and forms that share parts have 40 and more, or 0.3.
REWORDED = 22  # letters a place
FIGURES = 0.2
SENTENCE = 80  # if both texts have a longer run of letters of their own, they differ by more than single words
# In a copy with replaced words, word order is less probable where it differs: with one word in ten replaced, by 0.4
# nats per differing word in 90 of 100 copies. Two laws, licences or manuals are as probable as each other.
GARBLED = 0.4  # least difference in nats per word, divided by the share of shingles that differ
GARBLED_REWORDED = 25  # own letters per place at most
GARBLED_LONGER = 1.2  # ratio of their shingles at most
GARBLED_PLACE = 60  # letters of the longest own run at most
# One name for another throughout (ceiling for floor, patent attorney for attorney) is another document: the same words
# differ again and again on both sides. Of 264 copies with one word in ten replaced 1 in 250 looks so, of 48 pairs of
# laws, licences, functions and manuals that looked like copies over half do.
ECHO = 0.05  # of the places where they differ, the share that differ as one before does
A_WORD = 4  # letters: more than one Han letter counts for
AROUND = 2  # letters on either side by which shorter places are compared
SMALL = 1.15  # ratio of shingles up to which an addition may be a line of navigation
PIECE = 6  # letters of the pieces whose recurrence is counted
RECURS = 0.02  # difference of the recurring shares that decides: benchmarks/duplicates.py shows both kinds
# Of 889 copies with one word in 50 or in ten replaced, 16 languages, the sign of the counts' evidence is right in 99 of
# 100 above 20 nats, in 92 from 8 to 20, in 78 from 3 to 8, and below 1 in no more than by chance.
LIKELIER = 1.0  # nats that decide where both texts have words of their own
CLEARLY = 5.0  # nats that decide before lengths are compared

# What a page adds to its reviewed main text has a lower share of prose in 94 of 100 of 1,370 pages; what is cut from
# 6,000 other documents to leave a half or three quarters has so in 11 of 100.
LESS = 0.8  # an addition is packaging if its share of prose is below this multiple of the text's own
PROSE = 400  # characters of prose that the text must have for this to count: 98 of 100 of those main texts have 600
HALF = 2.2  # ratio of shingles up to which a text is about half of the other (halves by characters vary a little)
ADDED = 1.03  # ratio of shingles from which an addition is judged at all


@dataclass(frozen=True, eq=False)
class Text:
    """What is held of a document while its pairs are decided."""

    hashes: np.ndarray  # (W,) uint32: its windows in order
    shingles: np.ndarray  # uint32, ascending, each once
    units: np.ndarray  # (W + 11,) uint32: its letters
    surface: Surface  # of ints
    prose: Prose  # of ints
    text: str = ""

    @property
    def unspaced(self) -> bool:
        """Whether most of its letters are Han or kana, where a word is a letter or two."""
        return bool(unspaced(self.units).mean() > 0.5) if len(self.units) else False


class Own(NamedTuple):
    """What a text says that another does not."""

    letters: int
    places: int  # where they differ
    digits: int  # of the letters
    recurs: float  # of its own pieces, the share that the rest of it holds as well; nan if there is none
    echo: float  # of the places, the share that say what one before says
    longest: int  # letters of its longest place


class CopyEvidence(Protocol):
    """What the corpus's counts tell of copies of one text (`quality.copies.CopyCounts`)."""

    def natural(self, texts: Sequence[str]) -> Sequence[float]:
        """How naturally the words of each follow one another, in nats per word; nan: unknown."""

    def altered(self, one: str, other: str) -> float:
        """By how many nats the words that `one` has of its own are likelier than those of `other`; 0: unknown."""


def worse(a: Text, b: Text, like: Likeness, counts: CopyEvidence | None = None) -> int:
    """1 if b is the altered copy of the two, −1 if a is, 0 if they are too similar to tell.

    The first of these that applies decides. A text that repeats itself is altered. Of two with the same words, it is
    the one with more wear. If they differ by words here and there, it is the one whose own words are clearly less
    likely where they stand. If one is the other with additions, it is the longer one if these are scattered words or a
    little without a sentence, else the shorter one. Else it is the one whose own words are less likely, then the one
    whose own pieces recur less in the rest of it.

    :param counts: of the corpus.
    """
    repeats = [len(t.hashes) / max(len(t.shingles), 1) for t in (a, b)]
    if max(repeats) > TWICE * min(repeats) and like.jaccard >= TWICE_ALIKE:
        return -1 if repeats[0] > repeats[1] else 1
    battered = abs(int(a.surface.blemishes - b.surface.blemishes)) > BATTERED * min(len(a.units), len(b.units))
    if like.jaccard == 1 or battered:
        return int(np.sign(b.surface.wear - a.surface.wear))
    mine, theirs = own(a, b.shingles), own(b, a.shingles)
    likelier = counts.altered(a.text, b.text) if counts is not None and a.text and b.text else 0.0
    words = all(found.letters <= SCATTERED * found.places for found in (mine, theirs))
    if words and abs(likelier) > CLEARLY:  # a long word in a short one's place looks like one put in
        return 1 if likelier > 0 else -1
    if mine.letters <= NOTHING * theirs.letters:
        return _longer(a, b, theirs)
    if theirs.letters <= NOTHING * mine.letters:
        return -_longer(b, a, mine)
    if abs(likelier) > LIKELIER:
        return 1 if likelier > 0 else -1
    if abs(mine.recurs - theirs.recurs) > RECURS:  # false for nan
        return 1 if mine.recurs > theirs.recurs else -1
    return 0


def _longer(short: Text, long: Text, added: Own) -> int:
    """Of a text and the same with additions: 1 if the longer one is the altered copy, −1 if it is the fuller one."""
    small = len(long.shingles) <= SMALL * len(short.shingles)
    if (small or added.places >= MANY) and added.letters <= SCATTERED * added.places:
        return 1
    return 1 if long.surface.stops <= short.surface.stops else -1


def packaging(small: Text, large: Text) -> bool:
    """Whether what a text adds to one contained in it is packaging: menus, links and tables, not paragraphs like it."""
    more = large.prose.characters - small.prose.characters
    if more <= 0 or small.prose.prose < PROSE or len(large.shingles) < ADDED * len(small.shingles):
        return False
    added = (large.prose.prose - small.prose.prose) / more
    return bool(added < LESS * small.prose.prose / max(1, small.prose.characters))


def most(small: Text, large: Text) -> bool:
    """Whether a text makes up about half of the one that contains it, or of that one's paragraphs."""
    half = HALF * len(small.shingles) >= len(large.shingles)
    return half or 2 * small.prose.prose >= max(1, large.prose.prose)


def own(text: Text, other: np.ndarray) -> Own:
    """What a text has of its own, compared with the shingles of another.

    A word put in breaks eleven windows and adds as many as it has letters: a run of r windows that the other lacks
    stands for r − 11 letters, at either end of the text for r.
    """
    missing = ~_within(other, text.hashes)
    edges = np.flatnonzero(np.diff(missing, prepend=False, append=False))
    starts, stops = edges[::2], edges[1::2]
    begins = np.where(starts > 0, starts + WINDOW - 1, 0)
    ends = np.where(stops < len(text.hashes), stops, len(text.units))
    lengths = np.maximum(ends - begins, 0)
    inside = np.zeros(len(text.units) + 1, np.int64)
    np.add.at(inside, begins, 1)
    np.add.at(inside, begins + lengths, -1)
    mine = np.cumsum(inside[:-1]) > 0
    digits = (text.units >= ord("0")) & (text.units <= ord("9"))
    echo = _echo(text.units, begins[lengths > 0], (begins + lengths)[lengths > 0])
    longest = int(lengths.max()) if len(lengths) else 0
    return Own(int(lengths.sum()), len(starts), int((mine & digits).sum()), _recurs(text.units, mine), echo, longest)


def reworded(a: Text, b: Text) -> bool:
    """Whether the texts differ as copies do, by a word here and there.

    Texts that share parts differ by whole sentences, forms filled in anew by their figures, and texts about another
    thing of the same kind by its name throughout: none is a copy.
    """
    both = own(a, b.shingles), own(b, a.shingles)
    said = min(found.longest for found in both) <= SENTENCE
    return said and _scattered(both, REWORDED) and all(found.digits <= FIGURES * found.letters for found in both)


def garbled(a: Text, b: Text, like: Likeness, counts: CopyEvidence | None) -> bool:
    """Whether one text is the other with words replaced: where they differ, its word order is less probable.

    :param counts: see `worse`; without them the answer is False.
    """
    sizes = sorted((len(a.shingles), len(b.shingles)))
    if counts is None or not a.text or not b.text or sizes[1] > GARBLED_LONGER * sizes[0]:
        return False
    both = own(a, b.shingles), own(b, a.shingles)
    if max(found.longest for found in both) > GARBLED_PLACE or not _scattered(both, GARBLED_REWORDED):
        return False
    one, other = counts.natural([a.text, b.text])
    return abs(one - other) >= GARBLED * (1 - like.jaccard)  # false for nan


def _scattered(both: Sequence[Own], letters: float) -> bool:
    """Whether two texts differ by words here and there, and not again and again by the same ones."""
    few = all(found.letters <= letters * found.places for found in both)
    return few and min(found.echo for found in both) <= ECHO


def _echo(units: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> float:
    """Of the places, the share that are equal to one before: whole words, or any with what is around them."""
    words = [units[a:b].tobytes() for a, b in zip(starts, stops, strict=True) if b - a >= A_WORD]
    around = [units[max(0, a - AROUND) : b + AROUND].tobytes() for a, b in zip(starts, stops, strict=True)]
    return max(1 - len(set(found)) / max(1, len(found)) if found else 0.0 for found in (words, around))


def _recurs(units: np.ndarray, own_letters: np.ndarray) -> float:
    """Of the pieces of PIECE letters that lie mostly in the runs, the share that lies outside them as well."""
    if len(units) < PIECE:
        return float("nan")
    piece = np.zeros(len(units) - PIECE + 1, np.uint64)
    for step in range(PIECE):
        piece = piece * np.uint64(0x100000001B3) + units[step : len(piece) + step]
    covered = np.concatenate([[0], np.cumsum(own_letters)])
    letters = covered[PIECE:] - covered[:-PIECE]
    mine, rest = piece[letters >= PIECE - 2], np.sort(piece[letters == 0])
    return float(_within(rest, mine).mean()) if len(mine) and len(rest) else float("nan")


def _within(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    if not len(ascending):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: np.ndarray = ascending[place] == values
    return found
