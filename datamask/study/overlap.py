"""Targets that stand in the pool: a model that has read the question says nothing by knowing it.

    kept, found = without_overlap(targets, texts, names)      # found: target -> items that stand in the pool

An item counts as found where a run of RUN of its words stands in a document, whatever lies between the words and in
whatever case (Brown et al., arXiv 2005.14165, appendix C: 13-grams, at least 8 for short texts); an item of LEAST to
RUN words where all of them do, one after another. Shorter ones are not looked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from datamask.errors import InputError
from datamask.study.ngrams import word_hash
from datamask.study.targets import LEAST_ITEMS, Target

RUN, LEAST = 13, 8  # words
_WORDS = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")
_BASE = np.uint64(0x9E3779B97F4A7C15)
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
    asked: dict[int, dict[int, tuple[int, int]]] = {}  # run -> hash -> (target, item)
    for place, target in enumerate(targets):
        for number, item in enumerate(target.items):
            words = _hashes(item.whole)
            run = min(RUN, len(words))
            if run >= LEAST:
                for value in _runs(words, run).tolist():
                    asked.setdefault(run, {}).setdefault(value, (place, number))
    hits: dict[tuple[int, int], str] = {}
    keys = {run: np.sort(np.fromiter(known, dtype=np.uint64, count=len(known))) for run, known in asked.items()}
    for text, name in zip(texts, names, strict=True):
        words = _hashes(text)
        for run, known in keys.items():
            if len(words) < run:
                continue
            runs = _runs(words, run)
            nearest = known[np.minimum(np.searchsorted(known, runs), len(known) - 1)]
            for value in np.unique(runs[nearest == runs]).tolist():
                hits.setdefault(asked[run][value], name)
    kept, found = [], {}
    for place, target in enumerate(targets):
        own = sorted(number for of, number in hits if of == place)
        if own:
            example = target.items[own[0]].whole.decode("utf-8", "replace")
            found[target.name] = Found(len(own), len(target.items), " ".join(example.split())[:80], hits[place, own[0]])
        kept.append(_checked(target, own, found))
    return kept, found


def _checked(target: Target, own: Sequence[int], found: Mapping[str, Found]) -> Target:
    rest = tuple(item for number, item in enumerate(target.items) if number not in set(own))
    if own and (len(own) > len(target.items) / 2 or len(rest) < LEAST_ITEMS):
        told = found[target.name]
        raise InputError(
            f"target {target.name} stands in the pool: {told.items} of {told.of} items, the first, {told.example!r}, "
            f"in document {told.document}; a choice that holds it would win by memory, so name another target"
        )
    return replace(target, items=rest)


def _hashes(text: bytes) -> Hashes:
    return np.array([word_hash(word) for word in _WORDS.findall(text.lower())], dtype=np.uint64)


def _runs(words: Hashes, run: int) -> Hashes:
    """(n − run + 1,) hashes of all runs of so many words."""
    total = np.zeros(len(words) - run + 1, dtype=np.uint64)
    for place in range(run):
        total = total * _BASE + words[place : len(words) - run + 1 + place]
    return total ^ (total >> np.uint64(29))
