"""The inner loops of `signatures` and `held_texts`, compiled by Numba: texts are looked at once, where arrays would be
passed over many times.

A module of its own, so that importing `signatures` does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.corpus.utf8_loops import code_point
from datamask.filter.shingles import _SEEDS, LETTERS, TABLE, WEIGHTS, WINDOW
from datamask.filter.surface import (
    BREAK,
    CASED,
    LONG,
    LOWER,
    MARK,
    PARAGRAPH,
    RETURN,
    SENTENCE,
    SHOUTED,
    SPACE,
    STOP,
    UPPER,
)

WHITE = SPACE | RETURN | BREAK
BEFORE, UNSEEN = 3, 128  # characters before a text that tell of its first ones; a kind, beside others: there was none
SEVERAL = WEIGHTS[0][0]  # no code point below counts for more than one letter
# of the two hashes of a window: odd numbers, and the powers of the third by which WINDOW = 8 + 4 letters come together
HIGH, LOW = (
    tuple(np.uint32(value) for value in (*seeds, *(pow(seeds[2] | 1, power, 1 << 32) for power in (1, 2, 4, 8))))
    for seeds in _SEEDS
)
EVEN, DRAWERS = 256, 6  # hashes that `sort_even` deals to drawers, at most; bits of a drawer's number


@compiled
def mixed(unit, one, two):  # type: ignore[no-untyped-def]
    """A letter, mixed as the odd numbers say, before the polynomial."""
    value = np.uint32(unit * one)
    value = np.uint32(value ^ (value >> np.uint32(15)))
    return np.uint32(value * two)


@compiled
def final(value, two, three):  # type: ignore[no-untyped-def]
    """A polynomial's value, its bits mixed as murmur3 does at the end."""
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * two)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(13))) * three)
    return np.uint32(value ^ (value >> np.uint32(16)))


@compiled
def read(raw, at, end, letters, weights, kinds, units, row, before, numbers):  # type: ignore[no-untyped-def]
    """Reads a text's bytes from `at` to `end`: fills `units` with its letters, zeros after fewer than WINDOW, and
    returns how many these are.

    row: uint8, room for BEFORE kinds of characters and the text's. before: (4,) int64, replaced: kinds of the last
    three characters, of another text at its beginning, the last first, and how many there were, up to two. numbers:
    (5,) is filled as `surface.Surface` and `surface.Prose` have them.

    First, without branches that nobody could foretell, each character's letter and kind; then what kinds say, many at
    a time.
    """
    for place in range(BEFORE):
        row[place] = before[BEFORE - 1 - place]
    if before[3] < 2:  # the one before the first, if that is the first of all
        row[BEFORE - 1 - before[3]] |= UNSEEN
    many, filled, begun, said = 0, BEFORE, BEFORE, 0
    while at < end:
        code, size = code_point(raw, at)
        at += size
        kind = kinds[min(code, TABLE - 1)]
        row[filled] = kind
        filled += 1
        if kind == BREAK:
            length = filled - begun
            closed = (length > 1 and row[filled - 2] == STOP) or (length > 2 and row[filled - 3] == STOP)
            if length >= PARAGRAPH or (length >= SENTENCE and closed):
                said += length
            begun = filled
        unit = np.uint32(0)
        if code < TABLE:
            unit = letters[code]
        elif code < LETTERS:
            unit = np.uint32(code)
        units[many] = unit
        many += unit != 0
        if unit >= SEVERAL:
            often = weights[unit] if unit < TABLE else 3
            for _ in range(1, often):
                units[many] = unit
                many += 1
    length = filled - begun
    closed = row[filled - 1] == STOP
    closed |= (length > 1 and row[filled - 2] == STOP) or (length > 2 and row[filled - 3] == STOP)
    if length >= PARAGRAPH or (length >= SENTENCE and closed):
        said += length
    characters = filled - BEFORE
    count_kinds(row, characters, numbers)
    numbers[3], numbers[4] = characters, said
    for place in range(BEFORE):
        before[place] = row[filled - 1 - place] & ~UNSEEN
    before[3] = min(before[3] + characters, 2)
    while 0 < many < WINDOW:
        units[many] = 0
        many += 1
    return many


@compiled
def count_kinds(row, characters, numbers):  # type: ignore[no-untyped-def]
    """Fills numbers (5,) with `surface.Surface` of a text's characters, whose kinds `row` has from BEFORE on."""
    upper, lower, inside, bad, breaks, stops, marks, spaces, lines = 0, 0, 0, 0, 0, 0, 0, 0, 0
    for place in range(BEFORE, BEFORE + characters):
        kind, last, second = row[place], row[place - 1], row[place - 2]
        upper += kind == UPPER
        lower += kind == LOWER
        stops += kind == STOP
        marks += kind == MARK
        breaks += kind == BREAK
        inside += (kind == UPPER) & (last & (UPPER | LOWER) != 0)
        spaces += (kind & WHITE != 0) & (last & WHITE == 0)
        lines += (kind == BREAK) & (last != BREAK)
        bad += kind == RETURN
        bad += (kind == LOWER) & (last == SPACE) & (second == STOP)
        bad += (kind == SPACE) & (last == SPACE) & (second & (WHITE | UNSEEN) == 0)
    blemishes = bad
    if inside > SHOUTED * (upper + lower):
        blemishes += inside
    blemishes += upper == 0 and lower >= CASED
    blemishes += breaks == 0 and characters >= LONG
    numbers[0], numbers[1], numbers[2] = blemishes, stops, blemishes - (marks + stops + spaces + lines)


@compiled
def hash_windows(units, many, numbers, found):  # type: ignore[no-untyped-def]
    """Fills found (many,) uint32 with the hashes of a text's windows, one for each letter but the last WINDOW − 1.

    A polynomial over each window, as of Rabin and Karp, but doubled instead of rolled: of 2, of 4, of 12 letters, each
    step over the whole text, where the processor takes many letters at once.
    """
    one, two, three, once, twice, four, eight = numbers
    for at in range(many):
        found[at] = mixed(units[at], one, two)
    for at in range(many - 1):
        found[at] = np.uint32(found[at] * once + found[at + 1])
    for at in range(many - 3):
        found[at] = np.uint32(found[at] * twice + found[at + 2])
    for at in range(many - WINDOW + 1):
        found[at] = final(np.uint32(found[at] * eight + found[at + 4] * four + found[at + 8]), two, three)


@compiled
def longest_of(bounds):  # type: ignore[no-untyped-def]
    """The most bytes of a text; bounds: (texts + 1,) where each begins."""
    longest = 0
    for text in range(len(bounds) - 1):
        longest = max(longest, bounds[text + 1] - bounds[text])
    return longest


@compiled
def laid(raw, bounds, letters, weights, kinds, units, hashes, first, numbers):  # type: ignore[no-untyped-def]
    """Fills units and hashes with the letters of texts and the 32-bit hashes of their shingles, one text after another
    from the same places on, first (texts + 1,) with these, and numbers (texts, 5) as `read` does.
    """
    before, row = np.zeros(4, np.int64), np.empty(longest_of(bounds) + BEFORE, np.uint8)
    for text in range(len(numbers)):
        begun, begin, end = first[text], bounds[text], bounds[text + 1]
        many = read(raw, begin, end, letters, weights, kinds, units[begun:], row, before, numbers[text])
        hash_windows(units[begun:], many, HIGH, hashes[begun:])
        first[text + 1] = begun + many


@compiled
def sort_even(values, bits):  # type: ignore[no-untyped-def]
    """Sorts hashes, uint64, that are spread evenly below 2^(64 − bits): each comes near its place, then into it."""
    if len(values) > EVEN:
        values[:] = np.sort(values)
        return
    shift = np.uint64(64 - bits - DRAWERS)
    ends, near = np.zeros((1 << DRAWERS) + 1, np.int64), values.copy()
    for value in values:
        ends[np.int64(value >> shift) + 1] += 1
    for drawer in range(1, len(ends)):
        ends[drawer] += ends[drawer - 1]
    for value in near:
        mine = np.int64(value >> shift)
        values[ends[mine]] = value
        ends[mine] += 1
    for place in range(1, len(values)):
        value, at = values[place], place
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


@compiled
def signed(raw, bounds, letters, weights, kinds, sample, coarsest, count, scale, wear, values, offsets):  # type: ignore[no-untyped-def]
    """Fills count, scale and wear (texts,), offsets (texts + 1,) and `values` with the samples, each ascending and each
    hash once.

    raw, bounds: the texts in UTF-8, and where each begins. values: room for a hash each byte of the longest text and
    WINDOW more, beyond what is filled.
    """
    longest = longest_of(bounds)
    units, hashes = np.empty(longest + WINDOW, np.uint32), np.empty(longest + WINDOW, np.uint32)
    lower = np.empty(longest + WINDOW, np.uint32)
    before, numbers, row = np.zeros(4, np.int64), np.zeros(5, np.int64), np.empty(longest + BEFORE, np.uint8)
    filled = 0
    for text in range(len(count)):
        many = read(raw, bounds[text], bounds[text + 1], letters, weights, kinds, units, row, before, numbers)
        wear[text] = numbers[2]
        # the shingles
        windows = max(many - WINDOW + 1, 0)
        bits = 0
        while bits < coarsest and windows >= sample << (bits + 1):
            bits += 1
        count[text], scale[text] = windows, bits
        most = np.uint32(0xFFFFFFFF) >> np.uint32(bits)
        hash_windows(units, many, HIGH, hashes)
        hash_windows(units, many, LOW, lower)
        begun = filled
        for place in range(windows):
            values[filled] = np.uint64(hashes[place]) << np.uint64(32) | np.uint64(lower[place])
            filled += hashes[place] <= most
        sort_even(values[begun:filled], bits)
        end, filled = filled, begun
        for place in range(begun, end):
            value = values[place]
            values[filled] = value
            filled += place == begun or value != values[filled - 1]
        offsets[text + 1] = filled
    return filled
