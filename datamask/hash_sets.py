"""Sets of hashes inside compiled loops, by open addressing (Knuth, The Art of Computer Programming 3, section 6.4)."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled


@compiled
def empty_set(most):  # type: ignore[no-untyped-def]
    """(table, taken): room for so many hashes; taken: which slots of the table hold one."""
    room = 4
    while room < 2 * most:
        room *= 2
    return np.zeros(room, np.uint64), np.zeros(room, np.bool_)


@compiled
def slot_of(table, taken, value):  # type: ignore[no-untyped-def]
    """The slot of a hash, uint64: taken if it is in the set, else where it belongs."""
    last = len(table) - 1
    slot = np.int64((value * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & last
    while taken[slot] and table[slot] != value:
        slot = (slot + 1) & last
    return slot


@compiled
def set_of(values):  # type: ignore[no-untyped-def]
    """(table, taken) of these hashes, (n,) unsigned."""
    table, taken = empty_set(len(values))
    for value in values:
        slot = slot_of(table, taken, np.uint64(value))
        table[slot], taken[slot] = np.uint64(value), True
    return table, taken
