"""Which duplicates are dropped: stars around documents that stay, from verified pairs.

No document is dropped as the duplicate of one that is dropped itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

REASONS = {  # kind of duplicate: the reason its document carries in masks and decisions
    "exact": "near_duplicate",
    "near": "near_duplicate",
    "contained": "contained",
}
KINDS = tuple(REASONS)
# a document that falls, numbers of documents and the place of its kind among KINDS
FALL = np.dtype([("document", "<i8"), ("stays", "<i8"), ("cluster", "<i8"), ("kind", "i1"), ("similarity", "<f4")])


@dataclass(frozen=True)
class Edge:
    """Two documents that are duplicates of each other."""

    one: int
    other: int
    kind: str  # of REASONS
    similarity: float  # exact, near: Jaccard of the shingles; contained: containment
    falls: int = -1  # the one that should fall; −1: either
    only: bool = False  # it alone may fall: it is contained in the other, which is not contained in it

    def across(self, document: int) -> int:
        """The other document of the pair."""
        return self.other if document == self.one else self.one


@dataclass(frozen=True)
class Fall:
    """A document's duplicate that stays."""

    stays: int
    kind: str
    similarity: float


def resolve_edges(edges: Sequence[Edge], length: Mapping[int, int], fixed: Collection[int] = ()) -> dict[int, Fall]:
    """Which documents fall, and to which each: one that stays, by a pair that was verified.

    First the ones that lose to fewest others, then the longest, then the first seen (the lowest number); what a
    document is contained in comes before it. A document falls to the most similar of those that stay.

    :param length: of each document of the edges.
    :param fixed: documents that stay.
    """
    around: dict[int, list[Edge]] = {}
    losses: dict[int, int] = {}
    for edge in edges:
        for document in (edge.one, edge.other):
            around.setdefault(document, []).append(edge)
            losses.setdefault(document, 0)
        if edge.falls >= 0:
            losses[edge.falls] += 1
    order = sorted(around, key=lambda d: (losses[d], -length[d], d))
    stays: set[int] = set()
    fallen: set[int] = set()

    def decide(document: int) -> None:
        stays.add(document)
        for edge in around[document]:
            across = edge.across(document)
            if across not in stays and across not in fixed and not (edge.only and edge.falls == document):
                fallen.add(across)

    for document in order:
        if document in fixed:
            decide(document)
    listed: set[int] = set()  # these are decided, and so is what contains them
    for document in order:
        for container in _first_containers(document, around, listed):
            if container not in stays and container not in fallen:
                decide(container)
    found = {}
    for document in sorted(fallen):
        able = [
            edge
            for edge in around[document]
            if edge.across(document) in stays and not (edge.only and edge.falls != document)
        ]
        best = max(able, key=lambda edge: (edge.similarity, -edge.across(document)))
        found[document] = Fall(best.across(document), best.kind, best.similarity)
    return found


def _first_containers(document: int, around: Mapping[int, Sequence[Edge]], listed: set[int]) -> list[int]:
    """The document last, and before it, outermost first, those that contain it; without `listed`, to which they go."""
    found: dict[int, None] = {}
    stack = [(document, False)]
    while stack:  # containers are longer, so there is no circle
        at, ready = stack.pop()
        if ready:
            found[at] = None
        elif at not in found and at not in listed:
            stack.append((at, True))
            stack += [(edge.across(at), False) for edge in around[at] if edge.only and edge.falls == at]
    listed.update(found)
    return list(found)
