"""Where a budget is spent, of documents in an order, that lie in groups of which one is held at a time.

    cut = find_cut(blocks, budget)
    taken = Filling(blocks, room).take(keys, weights)

`blocks()` gives the keys (n,) uint64 and the weights (n,) of one group of documents after the other. Documents count by
ascending key (`ascending`, `descending` make keys of numbers). Few keys are sorted. Of many the cut's 64 bits are found
16 at a time, by a histogram over all blocks each, as a radix sort does, until few are left; the caller holds one block,
65,536 sums and these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

BITS = 16  # of a key that are found in a pass
SORTED = 1 << 18  # keys that are sorted, at most
HIGH = np.uint64(1 << 63)
Blocks = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


class BudgetCut(NamedTuple):
    """The key at which the sum of weights reaches what was asked for, and the sum of those of lower keys."""

    key: np.uint64
    before: float


def ascending(values: np.ndarray) -> np.ndarray:
    """(n,) uint64 keys in the order of float64 values (n,); equal values, 0 and −0 among them, have equal keys."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    return np.where(bits >= HIGH, ~bits, bits | HIGH)


def descending(values: np.ndarray) -> np.ndarray:
    """(n,) uint64 keys in the reverse order of float64 values (n,)."""
    return ~ascending(values)


def value_of(key: np.uint64, falling: bool = False) -> float:
    """The number of which `ascending`, or where `falling` is set `descending`, made this key."""
    key = ~np.uint64(key) if falling else np.uint64(key)
    return float(np.array(key ^ HIGH if key >= HIGH else ~key).view(np.float64))


def find_cut(blocks: Blocks, budget: float) -> BudgetCut | None:
    """The least key at which the weights of all keys up to it add up to `budget` or more; None: all are less.

    Sums of whole numbers below 2⁵³ are exact in any order.
    """
    found, before = np.uint64(0), 0.0
    sums: np.ndarray
    for shift in range(64, 0, -BITS):
        sums, held, count = np.zeros(1 << BITS), [], 0
        for block in blocks():
            held.append(_begun(*block, found, shift))
            count += len(held[-1][0])
            if count > SORTED:  # with all before: their sums by the next bits
                for keys, weights in held:
                    digit = (keys >> np.uint64(shift - BITS) & np.uint64((1 << BITS) - 1)).astype(np.int64)
                    sums += np.bincount(digit, weights, minlength=1 << BITS)
                held = []
        if count <= SORTED:
            keys, weights = (np.concatenate(each) for each in zip(*held, strict=True))
            different, index = np.unique(keys, return_inverse=True)
            sums = np.bincount(index, weights)
        reached = before + np.cumsum(sums)
        place = int(np.searchsorted(reached, budget))
        if place == len(reached):
            return None
        before = float(reached[place - 1]) if place else before
        if count <= SORTED:
            return BudgetCut(different[place], before)
        found = found << np.uint64(BITS) | np.uint64(place)
    return BudgetCut(found, before)


def _begun(keys: np.ndarray, weights: np.ndarray, found: np.uint64, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of the keys whose bits from `shift` on are `found`, with their weights."""
    if shift == 64:
        return keys, weights
    mine = np.flatnonzero(keys >> np.uint64(shift) == found)
    return keys[mine], weights[mine]


class Filling:
    """Takes documents by ascending key, and of equal keys in the order in which they come, as long as there is room.

    The first that does not fit ends it. Every document is to be shown once, in one order.
    """

    def __init__(self, blocks: Blocks, room: float) -> None:
        """blocks: with weights that are whole numbers."""
        cut = find_cut(blocks, np.floor(room) + 1)
        self.key = None if cut is None else cut.key
        self.left = 0.0 if cut is None else np.floor(room) - cut.before

    def take(self, keys: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(n,) bool: which of these documents (n,) are taken."""
        if self.key is None:
            return np.ones(len(keys), bool)
        taken = keys < self.key
        ties = np.flatnonzero(keys == self.key)
        filled = np.cumsum(weights[ties])
        taken[ties] = filled <= self.left
        self.left -= float(filled[-1]) if len(ties) else 0.0
        return taken
