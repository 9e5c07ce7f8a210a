"""Whether two texts that share much are copies of one text, or two of a kind: laws of two years, pages of two names.

told_apart(pair, contained)    # by their figures, titles or names
reworded(pair)                 # they differ by a word here and there, as altered copies do
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from datamask.filter.intact import CLAUSE, CopyEvidence, TextPair

# Texts are copies from these Jaccards on, of shingles of 12 and of 24 letters, templates or not. Of 149 pairs of real
# documents whose word 5-grams have a Jaccard of 0.8 or more, 5 are below the second; of 29 that have less, 28 are.
STRONG = 0.77
STRONG_DOUBLED = 0.8
# Copies with one word in ten replaced, 460 in 15 languages: letters of their own a place (99th percentile), letters of
# the longest place (99th), letters from one place to the next (95th), ratio of their shingles (all). Of 124 pairs of
# laws, notices and function pages that are as alike and no copies 70 differ by more.
REWORDED, SENTENCE, SPARSE, LONGER = 18, 80, 130, 1.2
# In a copy with replaced words, word order is less probable where it differs: with one word in ten replaced, by 0.4
# nats per differing word in 90 of 100 copies. Two laws, licences or manuals are as probable as each other.
GARBLED = 0.4  # least difference in nats per word, divided by the share of shingles that differ
# One name for another throughout (ceiling for floor, patent attorney for attorney) is another document: the same words
# differ again and again on both sides. Of 264 copies with one word in ten replaced 1 in 250 looks so, of 48 pairs of
# laws, licences, functions and manuals that looked like copies over half do.
ECHO = 0.05  # of the places where they differ, the share that differ as one before does
NAMED, NAMES = 0.3, 4  # echo and places from which a name differs throughout
FIGURES = 0.6  # share of digits among letters and digits from which a text is a table
ROWS, IN_ROWS = 5, 0.95  # lines of nothing but figures in both, from which these are what is said; share to be the same
LONG = 600  # letters, from which a text is no form or message
FEWEST = 5  # figures in each of two long texts, from which these tell them apart: less are a date, a page, a counter
# Figures that each of two texts has of its own, and share of figures in common, by which different titles are of two
# issues: so they are of 14 of 14 pairs of German laws, and of 1 of 100 copies with one word in ten replaced.
OF_ISSUE, SAME_ISSUE = 2, 0.8

_NUMBER, _ROW = re.compile(r"\d+"), re.compile(r"\n[ \t]*\d[\d \t.,;:/-]*(?=\n|$)")
_TITLE, _PIECE = re.compile(r"\w[^\n]{0,1000}"), re.compile(r"\d+|[^\W\d]+")
# a word from its first letter on, if a figure follows; a run of letters and _ is looked at once
_NAME = re.compile(r"(?<![a-z_])_*+([a-z][a-z_]*+\d\w*)", re.ASCII)


def clauses_apart(pair: TextPair) -> bool:
    """Whether each text has a clause of its own, as licences of one family have, or a name throughout."""
    both = pair.own
    if min(found.longest for found in both) > CLAUSE:
        return True
    return min(found.echo for found in both) > NAMED and min(found.places for found in both) >= NAMES


def told_apart(pair: TextPair, contained: bool) -> bool:
    """Whether figures tell the two apart: tables, or long prose, of other figures; titles of another year, issue or
    version; names with other figures throughout.

    :param contained: one is to be a part of the other: then its figures are there as well.
    """
    if any(text.surface.figures >= FIGURES * (text.surface.figures + len(text.units)) for text in pair.texts):
        return True
    if pair.texts[0].surface.digest == pair.texts[1].surface.digest:
        return False
    return _other_figures(pair, contained) or _other_issues(pair) or (not contained and _other_names(pair))


def _other_figures(pair: TextPair, contained: bool) -> bool:
    one, other = sorted(pair.texts, key=lambda text: len(text.shingles))
    rows = [_of_rows(text.text) if text.surface.figures >= ROWS else [] for text in (one, other)]
    if min(map(len, rows)) >= ROWS:  # a page may have rows that its main text has not: counts, numbers of pages
        mine, theirs = (_numbers("\n".join(found)) for found in rows)
        return (mine & theirs).total() < IN_ROWS * (mine.total() if contained else max(mine.total(), theirs.total()))
    prose = all(len(text.units) >= LONG and 2 * text.surface.prose >= len(text.units) for text in pair.texts)
    if not (contained and one.surface.figures) and not prose:
        return False
    mine, theirs = _numbers(one.text), _numbers(other.text)
    least = mine.total() if contained else min(mine.total(), theirs.total())
    return (contained or least >= FEWEST) and (mine & theirs).total() < 0.5 * least


@lru_cache(maxsize=64)  # a text is in several pairs, and these lie near one another
def _numbers(text: str) -> Counter[str]:
    return Counter(_NUMBER.findall(text))


@lru_cache(maxsize=64)
def _names(text: str) -> Counter[str]:
    return Counter(_NAME.findall(text.lower()))


@lru_cache(maxsize=64)
def _of_rows(text: str) -> list[str]:
    """Its lines that are nothing but figures."""
    return _ROW.findall("\n" + text)


def _other_issues(pair: TextPair) -> bool:
    """Whether the first lines are of one form and not the same: they differ by one number alone, in long texts; or by
    words, and each text has figures of its own."""
    titles = [Counter(_PIECE.findall(found.group().lower())) for text in pair.written if (found := _TITLE.search(text))]
    if len(titles) < 2:
        return False
    own = titles[0] - titles[1], titles[1] - titles[0]
    if not all(own) or 2 * (titles[0] & titles[1]).total() < max(title.total() for title in titles):
        return False
    if all(word.isdecimal() for words in own for word in words):
        return len(own[0]) == len(own[1]) == 1 and min(len(text.units) for text in pair.texts) >= LONG
    one, other = map(_numbers, pair.written)
    if min((one - other).total(), (other - one).total()) < OF_ISSUE:
        return False
    return (one & other).total() < SAME_ISSUE * max(one.total(), other.total())


def _other_names(pair: TextPair) -> bool:
    """Whether each text has a name with figures in it, as `f32x4`, twice or more, that the other never has."""
    one, other = map(_names, pair.written)
    return all(
        any(count > 1 and name not in theirs for name, count in mine.items())
        for mine, theirs in ((one, other), (other, one))
    )


def reworded(pair: TextPair) -> bool:
    """Whether the texts differ as copies do, by a word here and there.

    Texts that share parts differ by whole sentences, texts about another thing of the same kind by its name throughout
    or in few places: neither are copies.
    """
    sizes, both = sorted(len(text.shingles) for text in pair.texts), pair.own
    if sizes[1] > LONGER * sizes[0] or min(found.echo for found in both) > ECHO:
        return False
    if any(found.longest > SENTENCE or found.letters > REWORDED * found.places for found in both):
        return False
    return pair.like.jaccard >= STRONG or max(found.places for found in both) * SPARSE >= sizes[1]


def garbled(pairs: Sequence[TextPair], counts: CopyEvidence | None) -> list[bool]:
    """Of each `reworded` pair, whether word order is less probable in one of the two where they differ.

    :param counts: of the corpus; without them no answer is True.
    """
    if counts is None or not pairs:
        return [False] * len(pairs)
    said = counts.natural([pair.written for pair in pairs])  # false for nan
    return [
        abs(one - other) >= GARBLED * (1 - pair.like.jaccard) for pair, (one, other) in zip(pairs, said, strict=True)
    ]
