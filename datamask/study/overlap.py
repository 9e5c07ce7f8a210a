"""Targets that stand in the pool: a model that has read the question says nothing by knowing it.

    kept, found = without_overlap(targets, texts, names)      # found: target -> items that stand in the pool

An item counts as found where a run of RUN of its words stands in a document, whatever lies between the words and in
whatever case (Brown et al., arXiv 2005.14165, appendix C: 13-grams, at least 8 for short texts); an item of LEAST to
RUN words where all of them do, one after another. Shorter ones are not looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from datamask.errors import InputError
from datamask.selection.cover.ngrams import hashed_words
from datamask.selection.cover.target import in_a_row
from datamask.study.targets import LEAST_ITEMS, Target

RUN, LEAST = 13, 8  # words
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Found:
    """Items of a target that stand in the pool, and the first of them with its document."""

    items: int
    of: int
    example: str
    document: str


def without_overlap(
    targets: Sequence[Target], texts: Sequence[bytes], names: Sequence[str]
) -> tuple[list[Target], dict[str, Found]]:
    """The targets without the items that stand in the pool; and what was found, by target.

    :param texts, names: the pool's documents and what to call them.
    :raises InputError: more than half of a target stands in the pool, or fewer than LEAST_ITEMS of it are left.
    """
    asked = _asked(targets)
    hits: dict[tuple[int, int], str] = {}
    first = 0
    for single, _, document, count in hashed_words(text.decode("utf-8", "replace") for text in texts):
        for run, (known, owners) in asked.items():
            hashes, at = in_a_row(single, document, run)
            low = np.searchsorted(known, hashes)
            there = np.flatnonzero(known[np.minimum(low, len(known) - 1)] == hashes)
            for place in there.tolist():
                for owner in range(low[place], np.searchsorted(known, hashes[place], side="right")):
                    hits.setdefault(owners[owner], names[first + document[at[place]]])
        first += count
    kept, found = [], {}
    for place, target in enumerate(targets):
        own = sorted(number for of, number in hits if of == place)
        if own:
            example = target.items[own[0]].whole.decode("utf-8", "replace")
            found[target.name] = Found(len(own), len(target.items), " ".join(example.split())[:80], hits[place, own[0]])
        kept.append(_checked(target, own, found))
    return kept, found


def _asked(targets: Sequence[Target]) -> dict[int, tuple[Hashes, list[tuple[int, int]]]]:
    """Run -> the hashes of all runs of so many words, sorted, and the (target, item) of each."""
    found: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    owners = [(place, number) for place, target in enumerate(targets) for number in range(len(target.items))]
    texts = (targets[place].items[number].whole.decode("utf-8", "replace") for place, number in owners)
    first = 0
    for single, _, document, count in hashed_words(texts):
        length = np.bincount(document, minlength=count)
        for run in range(LEAST, RUN + 1):
            hashes, at = in_a_row(single, document, run)
            whole = length[document[at]] == run if run < RUN else np.ones(len(at), dtype=bool)
            rows = found.setdefault(run, [])
            for value, of in zip(hashes[whole].tolist(), document[at[whole]].tolist(), strict=True):
                rows.append((value, owners[first + of]))
        first += count
    return {
        run: (np.array([value for value, _ in sorted(rows)], dtype=np.uint64), [owner for _, owner in sorted(rows)])
        for run, rows in found.items()
        if rows
    }


def _checked(target: Target, own: Sequence[int], found: Mapping[str, Found]) -> Target:
    rest = tuple(item for number, item in enumerate(target.items) if number not in set(own))
    if own and (len(own) > len(target.items) / 2 or len(rest) < LEAST_ITEMS):
        told = found[target.name]
        raise InputError(
            f"target {target.name} stands in the pool: {told.items} of {told.of} items, the first, {told.example!r}, "
            f"in document {told.document}; a choice that holds it would win by memory, so name another target"
        )
    return replace(target, items=rest)
