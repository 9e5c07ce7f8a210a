"""The inner loops of `code_shapes`, compiled by Numba."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.quality.word_tables import DIGIT, LOWER, UPPER

MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"  # ASCII's, in its order
WORDS = 7  # shapes of words: see `shape_of`
SHAPES = WORDS + 2 * (len(MARKS) + 1)  # a mark, and a run of it; the last of each is any other mark
LOWERED, CAPITAL, UPPERED, MIXED, NUMBER, UNCASED, LETTER = range(WORDS)
PLACES = np.full(128, len(MARKS), np.int64)  # of a mark in MARKS
COLON = WORDS + MARKS.index(":")
SLASHES = WORDS + len(MARKS) + 1 + MARKS.index("/")  # a run of them
PLACES[[ord(mark) for mark in MARKS]] = np.arange(len(MARKS))


@compiled
def shape_of(points, table, start, end, is_word):  # type: ignore[no-untyped-def]
    """The shape of a token: of a word its case and digits, of a mark which it is and whether it is a run."""
    point = points[start]
    if not is_word:
        mark = PLACES[point] if point < 128 else len(MARKS)
        return WORDS + mark + (len(MARKS) + 1) * (end - start > 1)
    upper, lower, digits = 0, 0, 0
    for place in range(start, end):
        kind = table[points[place]]
        upper += kind & np.uint64(UPPER) != 0
        lower += kind & np.uint64(LOWER) != 0
        digits += kind & np.uint64(DIGIT) != 0
    if digits:
        return MIXED if upper + lower else NUMBER
    if upper and lower:
        return CAPITAL if upper == 1 and table[point] & np.uint64(UPPER) else MIXED
    if upper:
        return CAPITAL if upper == 1 else UPPERED
    if lower:
        return LETTER if end - start == 1 else LOWERED
    return UNCASED


@compiled
def pair_shapes(points, table, start, end, is_word, first, wanted, found):  # type: ignore[no-untyped-def]
    """Fills found (tokens,) with the number of each token's pair with the one before it; −1 where a document begins
    or is not wanted (documents,), and within a link, which is what follows "://" without white space."""
    for document in range(len(first) - 1):
        if not wanted[document]:
            found[first[document] : first[document + 1]] = -1
            continue
        before, linked = -1, False
        for at in range(first[document], first[document + 1]):
            shape = shape_of(points, table, start[at], end[at], is_word[at])
            if before < 0:
                found[at] = -1
            else:
                glued = start[at] == end[at - 1]
                linked = glued and (linked or (before == COLON and shape == SLASHES))
                found[at] = -1 if linked else (before * SHAPES + shape) * 2 + glued
            before = shape


@compiled
def weigh_pairs(pairs, first, wanted, weights, found):  # type: ignore[no-untyped-def]
    """Fills found (documents,) with the sum over a document's pairs of weight times the root of the pair's share; 0
    where it is not wanted (documents,).

    pairs: (tokens,) of `pair_shapes`; weights: of each pair, mostly 0.
    """
    counts = np.zeros(len(weights), np.int64)
    for document in range(len(first) - 1):
        low, high = first[document], first[document + 1]
        found[document] = 0.0
        if not wanted[document]:
            continue
        for at in range(low, high):
            if pairs[at] >= 0:
                counts[pairs[at]] += 1
        total = 0.0
        for at in range(low, high):
            if pairs[at] >= 0 and counts[pairs[at]]:  # each pair once, where it is first met
                total += weights[pairs[at]] * np.sqrt(counts[pairs[at]] / (high - low))
                counts[pairs[at]] = 0
        found[document] = total
