"""Reads the candidates' whole texts, decides pair by pair whether they are duplicates, then which documents to drop.

Connected candidates are in one part, and each part is decided on its own. However large it is, few texts are held at a
time (`held_texts`); of the others, how many shingles they have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from datamask.filter import held_texts
from datamask.filter.connected import groups_of_pairs
from datamask.filter.duplicate_candidates import CANDIDATE, FEW, OWN, PARTLY, WHOLLY
from datamask.filter.held_texts import HeldTexts, windows_of_pairs
from datamask.filter.intact import CLAUSE, CopyEvidence, TextPair, likelier, pairs_of, prose_beside, which_falls
from datamask.filter.programs import another_program, are_programs
from datamask.filter.resolve import FALL, KINDS, Edge, Fall, resolve_edges
from datamask.filter.siblings import STRONG, STRONG_DOUBLED, clauses_apart, garbled, reworded, told_apart
from datamask.maps import records_of
from datamask.shares import share_part as share_of
from datamask.shares import tell_share
from datamask.text.utf8 import runs_of

# Candidates are split into about PARTS parts, each of at least LEAST letters and at most ROOM, or one connected group.
ROOM = 1 << 26
PARTS = 32
LEAST = 1 << 23
# Of fewer shingles a name or a date is what a text says: notices, aliases, entries of one form differ by that alone.
SHORT, SHORT_STRONG = 240, 0.95
# Factor on the setting `jaccard` for Chinese and Japanese: with one word in ten replaced, 28 such copies have a Jaccard
# of .24 to .38 (other languages .42 and more), because there a word is a letter or two and each breaks as many windows.
UNSPACED = 0.65
# From this share of the Jaccard threshold on, a pair is a copy if `siblings.garbled` says so, at least GARBLED_OWN of
# their common shingles belong to no template, and both have GARBLED_SHORT shingles.
GARBLED = 0.6
GARBLED_OWN = 0.6
GARBLED_SHORT = 150
# A text that is hardly shorter and says so many letters of its own is a sibling of the other, not a part of it: another
# licence of the family has its own names. A page beside its main text differs by packaging alone.
SIBLING = 1.3  # times its shingles at most
SIBLING_OWN = 20  # letters
PACKAGING = 0.8  # share of prose beside the text's own, below which what a page adds is packaging
LONGER = 1.15  # a text that contains another and has more than this many times its shingles is no noisy copy of it
BATCH = 1 << 18  # letters of the pairs that are asked about together, each document's once
ROUNDS = 3  # rounds of comparing the documents that stay of one group


@dataclass(frozen=True)
class DuplicateRules:
    """What makes two texts duplicates."""

    jaccard: float
    containment: float


def room_of(letters: int) -> int:
    """How many letters a part has room for, where all candidates have so many."""
    return min(ROOM, max(LEAST, letters // PARTS))


def decide(
    texts: HeldTexts,
    pairs: np.ndarray,
    fixed: int,
    quality: Mapping[int, float],
    quality_deviation: float,
    rules: DuplicateRules,
    counts: CopyEvidence | None = None,
) -> np.ndarray:
    """(F,) FALL of a part, by document; a document's cluster is the lowest number it is tied to.

    :param texts: of all documents that the pairs name. :param pairs: (P,) CANDIDATE.
    :param fixed: so many documents, the first, stay.
    :param quality: quality_score of the documents, or NaN.
    :param quality_deviation: its standard deviation in the corpus.
    :param counts: of the corpus, see `intact.likelier`.
    """
    judge = _Judge(texts, fixed, quality, quality_deviation, rules, counts)
    with share_of(0.0, 0.8):  # of the time; the rest depends on what is found
        judge.compare(pairs)
    return judge.falls()


# ---------------------------------------------------------------- pairs


class _Alike(NamedTuple):
    """Two texts that are verified: copies, one contained in the other, or so as a whole (`wholly`); or copies if they
    are garbled (`replaced`), and what they are if not, if anything."""

    one: int
    other: int
    pair: TextPair
    kind: str
    unless: str = ""


@dataclass(eq=False)
class _Judge:
    """Decides the pairs of one part."""

    _texts: HeldTexts
    _fixed: int
    _quality: Mapping[int, float]
    _quality_deviation: float
    _rules: DuplicateRules
    _counts: CopyEvidence | None
    _edges: dict[tuple[int, int], Edge] = field(default_factory=dict)
    _programs: dict[int, bool] = field(default_factory=dict)  # of documents of verified pairs, whether they are so
    _seen: set[tuple[int, int]] = field(default_factory=set)  # the pairs compared

    def compare(self, pairs: np.ndarray) -> None:
        """Adds the pairs, CANDIDATE, that are verified, in the order given."""
        one, other, own = (pairs[name] for name in ("one", "other", "own"))
        found: dict[int, Edge] = {}
        done = 0
        for places in windows_of_pairs(one, other, self._texts.letters_of, held_texts.HELD):
            self._texts.hold(np.concatenate([one[places], other[places]]))
            for run in runs_of(self._new_letters(np.stack([one[places], other[places]])), BATCH):
                some = places[run]
                read = self._read_together(one[some], other[some], own[some])
                for place, edge in zip(some.tolist(), self._edges_of(read), strict=True):
                    if edge is not None:
                        found[place] = edge
            done += len(places)
            tell_share(done / len(one))
        self._edges |= {(found[place].one, found[place].other): found[place] for place in sorted(found)}
        self._seen.update(zip(one.tolist(), other.tolist(), strict=True))

    def _new_letters(self, both: np.ndarray) -> np.ndarray:
        """(P,) of documents (2, P), the letters of those that are not of the pair before, and so not laid yet."""
        before = np.pad(both[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        new = (both != before) & (both != before[::-1])
        return (self._texts.letters_of(both) * new).sum(axis=0)

    def _read_together(self, one: np.ndarray, other: np.ndarray, own: np.ndarray) -> list[_Alike | None]:
        documents, place = np.unique(np.concatenate([one, other]), return_inverse=True)
        texts = [self._texts[document] for document in documents.tolist()]
        least, contained = GARBLED * UNSPACED * self._rules.jaccard, min(self._rules.containment, WHOLLY)
        pairs = pairs_of(texts, place[: len(one)], place[len(one) :], STRONG, least, contained)
        asked = zip(one.tolist(), other.tolist(), pairs, own.tolist(), strict=True)
        read = [self._read(*each) for each in asked]
        self._tell_programs(found for found in read if found is not None)
        return [None if found is None or self._told_apart(found) else found for found in read]

    def _tell_programs(self, read: Iterable[_Alike]) -> None:
        """Notes of each document, once, whether it is a program."""
        both = (side for found in read for side in zip((found.one, found.other), found.pair.written, strict=True))
        new = {document: text for document, text in both if document not in self._programs}
        self._programs |= zip(new, are_programs(list(new.values())).tolist(), strict=True)

    def _told_apart(self, found: _Alike) -> bool:
        """Whether two texts are two programs, or two of a kind by their figures."""
        contained = found.kind in ("contained", "wholly")
        if self._programs[found.one] and self._programs[found.other]:
            return another_program(*found.pair.written, contained)
        return not found.pair.same and told_apart(found.pair, contained)

    def _read(self, one: int, other: int, pair: TextPair, own: float) -> _Alike | None:
        """The pair if it is verified. own: the share of their common shingles that belong to no template."""
        (a, b), like = pair.texts, pair.like
        theirs = own >= OWN
        fewer, larger = sorted((len(a.shingles), len(b.shingles)))
        strong, least_of_part = STRONG, self._rules.containment
        if fewer < SHORT:
            strong, least_of_part = SHORT_STRONG, max(WHOLLY, least_of_part)
        contained = like.containment >= least_of_part and not _siblings(pair)
        near = like.jaccard >= strong and pair.doubled >= STRONG_DOUBLED and not clauses_apart(pair)
        least = self._rules.jaccard
        if like.jaccard < least and a.unspaced and b.unspaced:
            least *= UNSPACED
        if not near and like.jaccard >= least and theirs and fewer >= SHORT:
            near = contained or reworded(pair)
        if near and not (contained and larger > LONGER * fewer):
            return _Alike(one, other, pair, "copies")
        if near or (contained and theirs):
            return _Alike(one, other, pair, "contained")
        wholly = "wholly" if like.containment >= WHOLLY and own >= PARTLY and fewer >= SHORT else ""
        doubtful = not contained and like.jaccard >= GARBLED * least and own >= GARBLED_OWN and fewer >= GARBLED_SHORT
        if doubtful and reworded(pair):
            return _Alike(one, other, pair, "replaced", wholly)
        return _Alike(one, other, pair, wholly) if wholly else None

    def _edges_of(self, read: Sequence[_Alike | None]) -> list[Edge | None]:
        """What is asked of the corpus's counts is asked of all together."""
        doubtful = [each for each in read if each is not None and each.kind == "replaced"]
        confirmed = iter(garbled([each.pair for each in doubtful], self._counts))
        read = [
            each._replace(kind="copies" if next(confirmed) else each.unless)
            if each is not None and each.kind == "replaced"
            else each
            for each in read
        ]
        kept = [each for each in read if each is not None and each.kind]
        margins = [self._margin(each) for each in kept]
        said = zip(likelier([each.pair for each in kept], margins, self._counts), margins, strict=True)
        return [self._edge(each, *next(said)) if each is not None and each.kind else None for each in read]

    def _margin(self, found: _Alike) -> float:
        return (self._quality[found.one] - self._quality[found.other]) / (self._quality_deviation or math.inf)

    def _edge(self, found: _Alike, nats: float, margin: float) -> Edge:
        """Which of two that are verified falls: of two copies either may."""
        one, other, pair, kind, _ = found
        said = which_falls(pair, nats, margin)
        falls = other if said > 0 else one if said < 0 else -1
        small, large = sorted((one, other), key=lambda document: self._texts.shingles[document])
        if kind == "copies":
            only = falls == small and pair.own[large == other].longest > CLAUSE  # the other would take a clause along
            return Edge(one, other, "exact" if pair.same else "near", pair.like.jaccard, falls, only)
        if self._programs[large] and (self._programs[small] or another_program(*pair.written, contained=True)):
            falls = small  # a program is no packaging, neither of the licence above it nor of a program that it holds
        return Edge(one, other, "contained", pair.like.containment, falls if said else small, only=falls in (small, -1))

    def falls(self) -> np.ndarray:
        """(F,) FALL, by document, after those that stay of each group were compared with its longest ones too."""
        for last in [False] * (ROUNDS - 1) + [True]:
            fallen = resolve_edges(list(self._edges.values()), self._texts.shingles, range(self._fixed))
            clusters = _clusters(self._edges)
            new = [] if last else self._with_longest(clusters, fallen)
            if not new:
                break
            one, other = np.array(new).T
            self.compare(records_of(CANDIDATE, one=one, other=other))
        told = [
            (document, fall.stays, clusters[document], KINDS.index(fall.kind), fall.similarity)
            for document, fall in fallen.items()
        ]
        return np.array(told, FALL)

    def _with_longest(self, clusters: Mapping[int, int], fallen: Mapping[int, Fall]) -> list[tuple[int, int]]:
        """Ascending, the pairs not compared yet of what stays of each cluster and its longest documents.

        Nothing is known of what these share, so that only a Jaccard of STRONG makes them copies: a pair whose numbers
        of shingles exclude that is left out.
        """
        staying: dict[int, list[int]] = {}
        for document, cluster in clusters.items():
            if document not in fallen:
                staying.setdefault(cluster, []).append(document)
        asked: set[tuple[int, int]] = set()
        for found in staying.values():
            if len(found) < 2:
                continue
            members, length = np.array(found), np.array([self._texts.shingles[document] for document in found])
            for place in np.lexsort((members, -length))[:FEW]:
                first, others = np.full(len(members), members[place]), members
                able = np.minimum(length, length[place]) / np.maximum(length, length[place]) >= STRONG
                able &= (others != first) & (np.maximum(first, others) >= self._fixed)
                first, others = first[able], others[able]
                lower, higher = np.minimum(first, others).tolist(), np.maximum(first, others).tolist()
                asked.update(zip(lower, higher, strict=True))
        return sorted(asked - self._seen)


def _siblings(pair: TextPair) -> bool:
    """Whether two texts that share most are two of a kind: neither is the other with something added."""
    small, large = sorted((0, 1), key=lambda side: len(pair.texts[side].shingles))
    shorter, longer = pair.texts[small], pair.texts[large]
    if pair.own[small].longest > CLAUSE:
        return True
    if len(longer.shingles) > SIBLING * len(shorter.shingles) or prose_beside(shorter, longer) < PACKAGING:
        return False
    return pair.own[small].letters >= SIBLING_OWN


def _clusters(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The lowest number of the documents each is tied to."""
    found = groups_of_pairs(*np.array(list(edges), np.int64).reshape(-1, 2).T)
    return dict(zip(found.documents.tolist(), found.lowest().tolist(), strict=True))
