"""Which of two copies is the intact one: judged by where they differ, never by a score.

    pair = Pair((a, b))
    worse(pair, *likelier([pair], counts))      # 1: b is the altered copy, −1: a is, 0: cannot be told

Where a text has words put in, the other has nothing of its own; where words were replaced, the right ones follow their
neighbours as words of the corpus do, and recur in the rest of the document more often than strangers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from datamask.filter.pair_loops import likeness_doubled, measured, own_runs, recurring, side_by_side
from datamask.filter.shingles import WINDOW, Likeness, likeness, unspaced
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

    numbers: np.ndarray  # (W,) uint32: of its windows in order, which of its shingles each is
    shingles: np.ndarray  # uint32, ascending, each once
    units: np.ndarray  # (W + 11,) uint32: its letters
    surface: Surface  # of ints
    prose: Prose  # of ints
    text: str = ""

    @property
    def hashes(self) -> np.ndarray:
        """(W,) uint32: its windows in order."""
        found: np.ndarray = self.shingles[self.numbers]
        return found

    @cached_property
    def unspaced(self) -> bool:
        """Whether most of its letters are Han or kana, where a word is a letter or two."""
        return bool(unspaced(self.units).mean() > 0.5) if len(self.units) else False


@dataclass(frozen=True, eq=False)
class Own:
    """What a text says that another does not."""

    text: Text
    other: np.ndarray  # the other's shingles

    @cached_property
    def runs(self) -> np.ndarray:
        """(places, 2) int64: where the letters of its own begin and end; words left out are places of none."""
        text = self.text
        found: np.ndarray = own_runs(text.shingles, text.numbers, self.other, len(text.units), WINDOW)
        return found

    @property
    def places(self) -> float:
        """Where the texts differ."""
        return self.measured[0]

    @property
    def letters(self) -> float:
        """How many are its own."""
        return self.measured[1]

    @property
    def longest(self) -> float:
        """Letters of its longest place."""
        return self.measured[2]

    @property
    def digits(self) -> float:
        """How many of the letters are."""
        return self.measured[3]

    @property
    def echo(self) -> float:
        """Of the places, the share that are equal to one before: whole words, or any with what is around them."""
        return self.measured[4]

    @cached_property
    def measured(self) -> list[float]:
        """Places, letters, longest, digits, echo."""
        found = np.empty(5)
        measured(self.text.units, self.runs, A_WORD, AROUND, found)
        return found.tolist()

    @cached_property
    def recurs(self) -> float:
        """Of the pieces of PIECE letters that lie mostly in its runs, the share that lies outside them as well; nan if
        there is none."""
        return float(recurring(self.text.units, self.runs, PIECE))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two texts beside each other; what several rules ask of them is found once."""

    texts: tuple[Text, Text]

    @property
    def written(self) -> tuple[str, str]:
        """As they are written."""
        return self.texts[0].text, self.texts[1].text

    @cached_property
    def like(self) -> Likeness:
        """How much they share."""
        one, other = self.texts
        return likeness(one.shingles, other.shingles)

    @cached_property
    def doubled(self) -> float:
        """The Jaccard of their shingles of 24 letters."""
        one, other = self.texts
        return float(likeness_doubled(one.shingles, one.numbers, other.shingles, other.numbers, WINDOW))

    @cached_property
    def own(self) -> tuple[Own, Own]:
        """What each says that the other does not."""
        one, other = self.texts
        return Own(one, other.shingles), Own(other, one.shingles)

    @cached_property
    def plain(self) -> int | None:
        """What `worse` says by repetition and by wear alone; None: these do not decide."""
        (a, b), like = self.texts, self.like
        repeats = [len(t.numbers) / max(len(t.shingles), 1) for t in (a, b)]
        if max(repeats) > TWICE * min(repeats) and like.jaccard >= TWICE_ALIKE:
            return -1 if repeats[0] > repeats[1] else 1
        battered = abs(int(a.surface.blemishes - b.surface.blemishes)) > BATTERED * min(len(a.units), len(b.units))
        if like.jaccard == 1 or battered:
            return int(np.sign(b.surface.wear - a.surface.wear))
        return None

    @cached_property
    def by_words(self) -> bool:
        """Whether the two differ by words here and there."""
        return all(found.letters <= SCATTERED * found.places for found in self.own)

    @cached_property
    def fuller(self) -> int:
        """The text that alone has letters of its own, nearly: 1 or 2; 0 if both have."""
        mine, theirs = (found.letters for found in self.own)
        return 2 if mine <= NOTHING * theirs else 1 if theirs <= NOTHING * mine else 0

    def turned(self) -> Pair:
        """The same with the other text first."""
        found = Pair(self.texts[::-1])
        vars(found).update(like=self.like, own=self.own[::-1])
        return found


def pairs_of(
    texts: Sequence[Text], one: np.ndarray, other: np.ndarray, strong: float, least: float, contained: float
) -> list[Pair]:
    """Pairs of texts, one and other (P,) their numbers, and what most rules ask of them, found together.

    :param strong: Jaccard from which `doubled` is asked for.
    :param least, contained: Jaccard and containment from either of which it is asked what each has of its own.
    """
    columns = [[getattr(text, name) for text in texts] for name in ("numbers", "shingles", "units")]
    first = np.zeros((len(texts) + 1, 3), np.int64)
    first[1:] = np.cumsum([[len(values) for values in column] for column in columns], axis=1).T
    likes, found = np.empty((len(one), 2)), np.empty((len(one), 2, 5))
    joined = [np.concatenate(column) for column in columns]
    side_by_side(*joined, first, one, other, (strong, least, contained), WINDOW, A_WORD, AROUND, likes, found)
    pairs = []
    told = zip(one.tolist(), other.tolist(), likes.tolist(), found.tolist(), strict=True)
    for a, b, (common, doubled), (mine, theirs) in told:
        pair = Pair((texts[a], texts[b]))
        sizes = len(texts[a].shingles), len(texts[b].shingles)
        known = vars(pair)
        known["like"] = Likeness.of(common, *sizes)
        if doubled == doubled:
            known["doubled"] = doubled
        if mine[0] == mine[0]:
            for each, values in zip(pair.own, (mine, theirs), strict=True):
                vars(each)["measured"] = values
        pairs.append(pair)
    return pairs


class CopyEvidence(Protocol):
    """What the corpus's counts tell of copies of one text (`quality.copies.CopyCounts`)."""

    def natural(self, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[float, float]]:
        """Of each pair, how naturally the words of either follow one another, in nats per word; nan: unknown."""

    def altered(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """Of each pair, by how many nats the words that the one has of its own are likelier than those of the other;
        0: unknown."""


def likelier(pairs: Sequence[Pair], counts: CopyEvidence | None) -> list[float]:
    """What `worse` is told of each pair: `CopyEvidence.altered` of all that it is asked about, together; else 0."""
    found = [0.0] * len(pairs)
    asked = [
        place
        for place, pair in enumerate(pairs)
        if pair.plain is None and (pair.by_words or not pair.fuller) and all(pair.written)
    ]
    if counts is not None and asked:
        said = counts.altered([pairs[place].written for place in asked])
        for place, value in zip(asked, said, strict=True):
            found[place] = value
    return found


def worse(pair: Pair, nats: float = 0.0) -> int:
    """1 if b is the altered copy of the two, −1 if a is, 0 if they are too similar to tell.

    The first of these that applies decides. A text that repeats itself is altered. Of two with the same words, it is
    the one with more wear. If they differ by words here and there, it is the one whose own words are clearly less
    likely where they stand. If one is the other with additions, it is the longer one if these are scattered words or a
    little without a sentence, else the shorter one. Else it is the one whose own words are less likely, then the one
    whose own pieces recur less in the rest of it.

    :param nats: by how many the first one's own words are likelier (`likelier`).
    """
    if pair.plain is not None:
        return pair.plain
    (a, b), (mine, theirs) = pair.texts, pair.own
    if pair.by_words and abs(nats) > CLEARLY:  # a long word in a short one's place looks like one put in
        return 1 if nats > 0 else -1
    if pair.fuller:
        return _longer(a, b, theirs) if pair.fuller == 2 else -_longer(b, a, mine)
    if abs(nats) > LIKELIER:
        return 1 if nats > 0 else -1
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


def reworded(pair: Pair) -> bool:
    """Whether the texts differ as copies do, by a word here and there.

    Texts that share parts differ by whole sentences, forms filled in anew by their figures, and texts about another
    thing of the same kind by its name throughout: none is a copy.
    """
    both = pair.own
    said = min(found.longest for found in both) <= SENTENCE
    return said and _scattered(both, REWORDED) and all(found.digits <= FIGURES * found.letters for found in both)


def replaced(pair: Pair) -> bool:
    """Whether one text may be the other with words replaced, if it is `garbled`."""
    sizes = sorted(len(text.shingles) for text in pair.texts)
    if not all(pair.written) or sizes[1] > GARBLED_LONGER * sizes[0]:
        return False
    both = pair.own
    return max(found.longest for found in both) <= GARBLED_PLACE and _scattered(both, GARBLED_REWORDED)


def garbled(pairs: Sequence[Pair], counts: CopyEvidence | None) -> list[bool]:
    """Of each pair that may be so (`replaced`), whether one text is the other with words replaced: where they differ,
    its word order is less probable.

    :param counts: of the corpus; without them no answer is True.
    """
    if counts is None or not pairs:
        return [False] * len(pairs)
    said = counts.natural([pair.written for pair in pairs])  # false for nan
    return [
        abs(one - other) >= GARBLED * (1 - pair.like.jaccard) for pair, (one, other) in zip(pairs, said, strict=True)
    ]


def _scattered(both: Sequence[Own], letters: float) -> bool:
    """Whether two texts differ by words here and there, and not again and again by the same ones."""
    few = all(found.letters <= letters * found.places for found in both)
    return few and min(found.echo for found in both) <= ECHO
