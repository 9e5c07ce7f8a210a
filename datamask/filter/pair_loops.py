"""The inner loops of comparing texts and samples; without the interpreter's lock, so that threads compare at once."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, set_of, slot_of


@compiled
def in_common(one, other):  # type: ignore[no-untyped-def]
    """How many values two ascending arrays, each value once, have in common."""
    a = b = common = 0
    while a < len(one) and b < len(other):
        if one[a] < other[b]:
            a += 1
        elif one[a] > other[b]:
            b += 1
        else:
            a, b, common = a + 1, b + 1, common + 1
    return common


@compiled
def perhaps_again(hashes):  # type: ignore[no-untyped-def]
    """(n,) bool: which of the hashes (n,) uint64 may be among them again: all that are, and a few others."""
    room = 1024
    while room < 4 * len(hashes):
        room *= 2
    seen = np.zeros(room, np.uint8)
    last = np.uint64(room - 1)
    for value in hashes:
        slot = np.int64(value & last)
        seen[slot] = min(seen[slot] + 1, 2)
    found = np.empty(len(hashes), np.bool_)
    for place in range(len(hashes)):
        found[place] = seen[np.int64(hashes[place] & last)] > 1
    return found


@compiled
def sort_within(values, first):  # type: ignore[no-untyped-def]
    """Sorts each run of the values (n,), run r being values[first[r] : first[r + 1]]."""
    for run in range(len(first) - 1):
        values[first[run] : first[run + 1]] = np.sort(values[first[run] : first[run + 1]])


@compiled
def common_of_pairs(values, first, one, values_other, first_other, other):  # type: ignore[no-untyped-def]
    """(P,) int64: how many values the runs of each pair have in common; see `sort_within`. A run −1 is empty."""
    found = np.zeros(len(one), np.int64)
    for pair in range(len(one)):
        a, b = one[pair], other[pair]
        if a >= 0 and b >= 0:
            found[pair] = in_common(values[first[a] : first[a + 1]], values_other[first_other[b] : first_other[b + 1]])
    return found


@compiled
def shared_by_pairs(values, first, one, values_other, first_other, other, found):  # type: ignore[no-untyped-def]
    """Fills found with what `common_of_pairs` counts, pair by pair."""
    filled = 0
    for pair in range(len(one)):
        a, b = one[pair], other[pair]
        if a < 0 or b < 0:
            continue
        here, there = first[a], first_other[b]
        while here < first[a + 1] and there < first_other[b + 1]:
            if values[here] < values_other[there]:
                here += 1
            elif values[here] > values_other[there]:
                there += 1
            else:
                found[filled] = values[here]
                here, there, filled = here + 1, there + 1, filled + 1


@compiled
def missing_runs(hashes, other, letters, window):  # type: ignore[no-untyped-def]
    """(R, 2) int64: where the letters begin and end that each run of windows missing elsewhere stands for.

    A word put in breaks window − 1 windows and adds as many as it has letters: a run of r windows stands for
    r − window + 1 letters, at either end of the text for r. They may be none: the end is then the begin.

    hashes: (W,) uint32 of a text's windows, in order; other: uint32, each once; letters: how many the text has.
    """
    table, taken = set_of(other)
    runs, found, inside = 0, np.empty((len(hashes) // 2 + 1, 2), np.int64), False
    for place in range(len(hashes) + 1):
        missing = False
        if place < len(hashes):
            missing = not taken[slot_of(table, taken, np.uint64(hashes[place]))]
        if missing and not inside:
            found[runs, 0] = place + window - 1 if place else 0
        elif inside and not missing:
            found[runs, 1] = max(place if place < len(hashes) else letters, found[runs, 0])
            runs += 1
        inside = missing
    return found[:runs].copy()


@compiled
def measured(units, runs):  # type: ignore[no-untyped-def]
    """Of a text's letters, (U,) code points: how many lie in these runs, (R, 2), how many in the longest, and how many
    of them are digits.
    """
    letters, longest, digits = 0, 0, 0
    for run in range(len(runs)):
        length = runs[run, 1] - runs[run, 0]
        letters, longest = letters + length, max(longest, length)
        for place in range(runs[run, 0], runs[run, 1]):
            digits += 48 <= units[place] <= 57
    return letters, longest, digits


@compiled
def repeated(units, runs, least, around):  # type: ignore[no-untyped-def]
    """Of the runs (R, 2) of at least so many letters, the share that are equal to one before, with so many letters on
    either side; 0 if there is none. units: (U,) of the text.
    """
    table, taken = empty_set(len(runs))
    number = again = 0
    for run in range(len(runs)):
        begin, end = runs[run, 0], runs[run, 1]
        if end - begin < least:
            continue
        number += 1
        begin, end = max(0, begin - around), min(end + around, len(units))
        value = np.uint64(end - begin)
        for place in range(begin, end):
            value = value * np.uint64(0x100000001B3) + np.uint64(units[place])
        at = slot_of(table, taken, value)
        again += taken[at]
        table[at], taken[at] = value, True
    return again / number if number else 0.0


@compiled
def recurring(units, runs, piece):  # type: ignore[no-untyped-def]
    """Of the pieces of so many letters of which all but two lie in these runs, (R, 2), the share that lies outside them
    as well; nan if there is none on either side.

    units: (U,) of the text.
    """
    count = max(len(units) - piece + 1, 0)
    table, taken = empty_set(count)
    mine = rest = both = 0
    for look_up in (False, True):  # the pieces outside are put down first
        run = 0
        for place in range(count):
            letters = 0
            while run < len(runs) and runs[run, 1] <= place:
                run += 1
            other = run
            while other < len(runs) and runs[other, 0] < place + piece:
                letters += max(min(runs[other, 1], place + piece) - max(runs[other, 0], place), 0)
                other += 1
            if (letters < piece - 2) if look_up else letters > 0:
                continue
            value = np.uint64(0)
            for step in range(piece):
                value = value * np.uint64(0x100000001B3) + np.uint64(units[place + step])
            at = slot_of(table, taken, value)
            if look_up:
                mine += 1
                both += taken[at]
            else:
                rest += 1
                table[at], taken[at] = value, True
    return both / mine if mine and rest else np.nan
