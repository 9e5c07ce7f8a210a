"""The inner loops of `language_groups`, compiled by Numba.

A module of its own, so that importing `language_groups` does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled


@compiled
def runs_joined(letters, owners, signs, space):  # type: ignore[no-untyped-def]
    """Makes letters (n,) uint32 between the bounds of `signs` (blocks, 2) a space, and a run of spaces one, in place;
    owners (n,) go with them. Returns how many are left."""
    filled = 0
    for at in range(len(letters)):
        letter = letters[at]
        for block in range(len(signs)):
            if signs[block, 0] <= letter < signs[block, 1]:
                letter = np.uint32(space)
        if letter != space or filled == 0 or letters[filled - 1] != space:
            letters[filled], owners[filled] = letter, owners[at]
            filled += 1
    return filled


@compiled
def count_runs(letters, owners, width, counts):  # type: ignore[no-untyped-def]
    """Adds the hashed runs of `width` letters, each within one text, to counts (texts, buckets) float32.

    letters: (n,) uint32; owners: (n,) the text of each, ascending.
    """
    buckets = np.uint32(counts.shape[1])
    for at in range(len(letters) - width + 1):
        if owners[at] == owners[at + width - 1]:
            mixed = np.uint32(letters[at])
            for step in range(1, width):
                mixed = np.uint32(np.uint32(mixed * np.uint32(0x9E3779B1)) ^ letters[at + step])
            mixed = np.uint32((mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x2C1B3C6D))
            counts[owners[at], (mixed >> np.uint32(12)) % buckets] += 1


@compiled
def add_up(rows, which, sums):  # type: ignore[no-untyped-def]
    """Adds each of the rows (n, width) to the row of `sums` that `which` (n,) names, one after the other."""
    for row in range(len(rows)):
        for column in range(rows.shape[1]):
            sums[which[row], column] += rows[row, column]
