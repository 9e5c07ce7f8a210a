"""The inner loops of telling copies apart by the pool's counts; without the interpreter's lock, so that several threads
can judge at once."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import set_of, slot_of
from datamask.quality.inner_loops import counted, mixed


@compiled
def pair_keys(left, right, first, text, pair):  # type: ignore[no-untyped-def]
    """(m,) uint64 keys of each two neighbours in a text, as `character_ngrams.pairs` makes them.

    left, right: (tokens,) uint64 of the first and of the second; first: (texts + 1,) where each text's begin.
    """
    found = np.empty(max(first[text + 1] - first[text] - 1, 0), np.uint64)
    for place in range(len(found)):
        at = first[text] + place
        found[place] = mixed(left[at] * pair + right[at + 1])
    return found


@compiled
def missing_from(keys, others):  # type: ignore[no-untyped-def]
    """Places of the keys (n,) uint64, that are not among the others (m,)."""
    table, taken = set_of(others)
    found, count = np.empty(len(keys), np.int64), 0
    for place in range(len(keys)):
        if not taken[slot_of(table, taken, keys[place])]:
            found[count] = place
            count += 1
    return found[:count].copy()


@compiled
def times_among(keys, wanted):  # type: ignore[no-untyped-def]
    """(m,) int64: how often each of wanted (m,) is among the keys (n,), uint64."""
    ascending = np.sort(keys)
    found = np.empty(len(wanted), np.int64)
    for place in range(len(wanted)):
        low = np.searchsorted(ascending, wanted[place])
        high = low
        while high < len(ascending) and ascending[high] == wanted[place]:
            high += 1
        found[place] = high - low
    return found


@compiled
def counts_without(slots, shift, counts, wanted, first_keys, second_keys, held):  # type: ignore[no-untyped-def]
    """(m,) float64 counts of the keys wanted (m,) in both halves, without what the two texts were counted for.

    slots, shift, counts: see `inner_loops.look_up`. first_keys, second_keys: all of each text.
    held: (2,) the half that each text was counted in, or −1.
    """
    total, halves = np.zeros(len(wanted)), len(slots)
    first = times_among(first_keys, wanted) if held[0] >= 0 else np.zeros(0, np.int64)
    second = times_among(second_keys, wanted) if held[1] >= 0 else np.zeros(0, np.int64)
    for place in range(len(wanted)):
        key = wanted[place]
        for half in range(halves):
            found = np.float64(counted(slots[half], shift, counts, key))
            if held[0] == half:
                found -= first[place]
            if held[1] == half:
                found -= second[place]
            if found >= 0.5:  # counts are kept within 9 %
                total[place] += found
    return total
