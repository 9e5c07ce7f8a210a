"""Two texts beside each other: what each says that the other does not, and which of them is the intact one.

    [pair] = pairs_of([a, b], np.array([0]), np.array([1]), 0.0, 0.0, 0.0)
    which_falls(pair, nats, margin)      # 1: b falls, −1: a does, 0: they are equal

The intact text stays: one without broken characters, quotations and wear, whose words belong where they stand. Then the
one with the better score, then the longer one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from datamask.filter.pair_loops import Asked, Texts, side_by_side
from datamask.filter.shingles import Likeness, shingles
from datamask.text.letters import unspaced
from datamask.text.surface import Surface

BROKEN = 2.0  # nats against a text for each of its broken characters
CLAUSE = 35  # letters of one place, from which it is a clause: of copies with 2 % of words replaced 1 in 100 has one
ADDED = 4  # times what the other has of its own: a text with a clause more is the other with passages added
QUOTED = 200  # letters of quotation that one text must have more than the other
BESIDES = 100  # shingles, its head's included, that a text with more quotation may have besides, and say nothing more
LINE = 40  # letters: less is no menu and no teaser
# An addition is foreign by the score's standard deviations, 1.5 at most, and the nats a letter, from 0 to 1, less its
# share of prose beside the text's. Of 640 pages beside their main text .93 are so, and .83 of them
# in a corpus of pages alone.
FOREIGN = 0.5
PART = 12  # times its letters: a text in one so much longer, such as a shop's frame, says nothing about the rest
BREAKS_OFF = 4 / 3  # times its letters, from which a text that begins or ends with another is the whole of it
GOES_ON = 0.5  # share of prose beside the text's own, below which what follows is no part of it, such as teasers
_QUOTED_LINE = re.compile(r"^[ \t]*>.*\n?", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Text:
    """What is held of a document while its pairs are decided."""

    numbers: np.ndarray  # (W,) uint32: of its windows in order, which of its shingles each is
    shingles: np.ndarray  # uint32, ascending, each once
    units: np.ndarray  # (W + 11,) uint32: its letters
    surface: Surface  # of ints
    text: str

    @cached_property
    def unspaced(self) -> bool:
        """Whether most of its letters are Han or kana, where a word is a letter or two."""
        return bool(unspaced(self.units).mean() > 0.5) if len(self.units) else False


class OwnText(NamedTuple):
    """What a text says that another does not."""

    places: float  # where the texts differ
    letters: float  # how many are its own
    longest: float  # letters of its longest place
    echo: float  # of the places, the share equal to one before: whole words, or any with what is around them


@dataclass(frozen=True, eq=False)
class TextPair:
    """Two texts beside each other."""

    texts: tuple[Text, Text]
    like: Likeness  # how much they share
    doubled: float  # the Jaccard of their shingles of 24 letters; nan: not asked for
    own: tuple[OwnText, OwnText]  # what each says that the other does not; of nan: not asked for

    @property
    def written(self) -> tuple[str, str]:
        """As they are written."""
        return self.texts[0].text, self.texts[1].text

    @property
    def same(self) -> bool:
        """Whether both say the same, figures included."""
        one, other = self.texts
        return self.like.jaccard == 1 and one.surface.digest == other.surface.digest


def pairs_of(
    texts: Sequence[Text], one: np.ndarray, other: np.ndarray, strong: float, least: float, contained: float
) -> list[TextPair]:
    """Pairs of texts, one and other (P,) their numbers, and what most rules ask of them, found together.

    :param strong: Jaccard from which `doubled` is asked for.
    :param least, contained: Jaccard and containment from either of which it is asked what each has of its own.
    """
    columns = [[getattr(text, name) for text in texts] for name in ("numbers", "shingles", "units")]
    first = np.zeros((len(texts) + 1, 3), np.int64)
    first[1:] = np.cumsum([[len(values) for values in column] for column in columns], axis=1).T
    likes, found = np.empty((len(one), 2)), np.empty((len(one), 2, len(OwnText._fields)))
    numbers, shingles, units = map(np.concatenate, columns)
    joined = Texts(numbers, shingles, units, first)
    side_by_side(joined, one, other, Asked(strong, least, contained), likes, found)
    pairs = []
    told = zip(one.tolist(), other.tolist(), likes.tolist(), found.tolist(), strict=True)
    for a, b, (common, doubled), (mine, theirs) in told:
        like = Likeness.of(common, len(texts[a].shingles), len(texts[b].shingles))
        pairs.append(TextPair((texts[a], texts[b]), like, doubled, (OwnText(*mine), OwnText(*theirs))))
    return pairs


class CopyEvidence(Protocol):
    """What the corpus's counts tell of copies of one text (`altered.CopyCounts`)."""

    def natural(self, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[float, float]]:
        """Of each pair, how naturally the words of either follow one another, in nats per word; nan: unknown."""

    def altered(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """Of each pair, by how many nats the words that the one has of its own are likelier than those of the other;
        0: unknown."""


def likelier(pairs: Sequence[TextPair], margins: Sequence[float], counts: CopyEvidence | None) -> list[float]:
    """The nats that `which_falls` is told of each pair: `CopyEvidence.altered` of all for which they decide; else 0."""
    found = np.zeros(len(pairs))
    asked = [
        place
        for place, (pair, margin) in enumerate(zip(pairs, margins, strict=True))
        if pair.like.jaccard < 1 and which_falls(pair, math.inf, margin) != which_falls(pair, -math.inf, margin)
    ]
    if counts is not None and asked:
        found[asked] = counts.altered([pairs[place].written for place in asked])
    return found.tolist()


def which_falls(pair: TextPair, nats: float = 0.0, margin: float = 0.0) -> int:
    """1 if b falls of the two, −1 if a does, 0 if nothing tells them apart; the first of these that applies decides.

    Of a text and the same with more around it, the shorter one falls if it is `_torn`, else the one that quotes more,
    else the shorter one unless the rest is `foreign`. Of two with the same words, the one with more wear. Of others the
    one that quotes more, the one that is less likely by words, score and broken characters, the shorter one.

    :param nats: by how many the first one's own words are likelier (`likelier`).
    :param margin: by how many standard deviations the first one's score is better; 0, nan: unknown.
    """
    margin = 0.0 if math.isnan(margin) else margin
    if said := _around(pair):
        packed = _quoting(pair) or (said if foreign(pair, said * nats, said * margin) else -said)
        return -said if _torn(*pair.texts[::said]) else packed
    one, other = pair.texts
    broken = other.surface.broken - one.surface.broken
    worn = other.surface.wear - one.surface.wear + broken if pair.like.jaccard == 1 else 0
    likely = nats + margin + BROKEN * broken
    return int(np.sign(worn) or _quoting(pair) or np.sign(likely) or np.sign(len(one.units) - len(other.units)))


def _quoting(pair: TextPair) -> int:
    """The text with more quotation, if that is half of what the two differ by; the other, if it answers besides."""
    one, other = (text.surface.quoted for text in pair.texts)
    said = int(np.sign(other - one))
    if 2 * abs(other - one) < max(pair.own[said > 0].letters, 2 * QUOTED):
        return 0
    less, more = pair.texts[::said]
    besides = np.setdiff1d(shingles(_QUOTED_LINE.sub("", more.text)), less.shingles, assume_unique=True)
    return said if len(besides) < BESIDES else -said


def _around(pair: TextPair) -> int:
    """Which of two texts is the other with passages added: 1 the second, −1 the first, 0 neither."""
    said = 1 if pair.own[1].letters >= pair.own[0].letters else -1
    adds, besides, (short, long) = pair.own[said > 0], pair.own[said < 0], pair.texts[::said]
    passage = adds.longest > CLAUSE and adds.letters >= ADDED * besides.letters
    whole = adds.letters >= LINE and (pair.like.containment == 1 or passage)
    return said if whole or (adds.letters > 0 and _at_an_end(short, long)) else 0


def _torn(short: Text, long: Text) -> bool:
    """Whether a text is cut out of a longer one where a line goes on with a word, so that it is not whole."""
    part, whole = short.text.strip(), long.text
    begins = whole.find(part)
    if begins < 0:
        return False
    ends = begins + len(part)
    line_ends = whole.find("\n", ends)
    before = whole[whole.rfind("\n", 0, begins) + 1 : begins].rstrip()
    after = whole[ends : line_ends if line_ends >= 0 else None].lstrip()
    return any(map(str.isalnum, before[-1:] + after[:1]))


def foreign(pair: TextPair, nats: float, margin: float) -> bool:
    """Whether what stands around a text is packaging: menus, teasers, tables, by its score, its words and its lines.

    :param nats, margin: see `which_falls`, of the shorter text.
    """
    said = _around(pair)
    short, long = pair.texts[::said]
    added, prose = pair.own[said > 0].letters, prose_beside(short, long) if short.surface.prose else 0.0
    if added < LINE or len(long.units) > PART * len(short.units) or _breaks_off(short, long):
        return False
    return min(margin, 1.5) + min(max(nats / added, 0.0), 1.0) - prose > FOREIGN


def _breaks_off(short: Text, long: Text) -> bool:
    """Whether a text is the beginning or the end of a longer one and the rest is of its kind; of 534 pages 2 are so."""
    more = len(long.units) >= BREAKS_OFF * len(short.units)
    return more and _at_an_end(short, long) and prose_beside(short, long) >= GOES_ON


def _at_an_end(short: Text, long: Text) -> bool:
    """Whether a longer text begins or ends with a shorter one, letter by letter."""
    size = len(short.units)
    return any(np.array_equal(short.units, part) for part in (long.units[:size], long.units[-size:]))


def prose_beside(short: Text, long: Text) -> float:
    """The share of prose in what a text adds to another, as a part of that in the other; 1 if that has none, or lines
    that end elsewhere: these say nothing."""
    if not short.surface.prose or 2 * long.surface.prose < short.surface.prose:
        return 1.0
    more = (long.surface.prose - short.surface.prose) / max(len(long.units) - len(short.units), 1)
    return min(max(more, 0.0) * len(short.units) / short.surface.prose, 1.0)
