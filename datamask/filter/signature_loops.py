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
SEVERAL = WEIGHTS[0][0]  # no code point below counts for more than one letter
ONE, TWO, THREE = (np.uint32(seed) for seed in _SEEDS[0])
OTHER_ONE, OTHER_TWO, OTHER_THREE = (np.uint32(seed) for seed in _SEEDS[1])
BASE, OTHER_BASE = np.uint32(_SEEDS[0][2] | 1), np.uint32(_SEEDS[1][2] | 1)
LEAVING = np.uint32(pow(_SEEDS[0][2] | 1, WINDOW, 1 << 32))  # the power of a letter that is left behind


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
def read(raw, at, end, letters, weights, kinds, units, before, numbers):  # type: ignore[no-untyped-def]
    """Reads a text's bytes from `at` to `end`: fills `units` with its letters, zeros after fewer than WINDOW, and
    returns how many these are.

    before: (4,) int64, replaced: kinds of the last three characters, of another text at its beginning, the last first,
    and how many there were, up to two. numbers: (5,) is filled as `surface.Surface` and `surface.Prose` have them.
    """
    many, characters = 0, 0
    last, second, third, seen = np.uint8(before[0]), np.uint8(before[1]), np.uint8(before[2]), before[3]
    upper, lower, inside, bad, breaks, stops, marks, spaces, lines = 0, 0, 0, 0, 0, 0, 0, 0, 0
    begun, said = 0, 0
    while at < end:
        code, size = code_point(raw, at)
        at += size
        characters += 1
        # what `surface.Surface` and `surface.Prose` say
        kind = kinds[min(code, TABLE - 1)]
        if kind == LOWER:  # most letters of most texts
            lower += 1
            if seen > 1 and last == SPACE and second == STOP:
                bad += 1
        elif kind:
            upper += kind == UPPER
            stops += kind == STOP
            marks += kind == MARK
            bad += kind == RETURN
            if seen > 0:
                inside += kind == UPPER and last & (UPPER | LOWER) != 0
            if kind & WHITE and not (seen > 0 and last & WHITE):
                spaces += 1
            if kind == BREAK:
                breaks += 1
                lines += not (seen > 0 and last == BREAK)
                length = characters - begun
                closed = (length > 1 and last == STOP) or (length > 2 and second == STOP)
                if length >= PARAGRAPH or (length >= SENTENCE and closed):
                    said += length
                begun = characters
            if seen > 1 and last == SPACE:
                bad += kind == SPACE and second & WHITE == 0
        third, second, last = second, last, kind
        seen = min(seen + 1, 2)
        # its letters
        unit = np.uint32(0)
        if code < TABLE:
            unit = letters[code]
        elif code < LETTERS:
            unit = np.uint32(code)
        if unit:
            units[many] = unit
            many += 1
            if unit >= SEVERAL:
                often = weights[unit] if unit < TABLE else 3
                for _ in range(1, often):
                    units[many] = unit
                    many += 1
    length = characters - begun
    closed = last == STOP or (length > 1 and second == STOP) or (length > 2 and third == STOP)
    if length >= PARAGRAPH or (length >= SENTENCE and closed):
        said += length
    before[0], before[1], before[2], before[3] = last, second, third, seen
    blemishes = bad
    if inside > SHOUTED * (upper + lower):
        blemishes += inside
    blemishes += upper == 0 and lower >= CASED
    blemishes += breaks == 0 and characters >= LONG
    wear = blemishes - (marks + stops + spaces + lines)
    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] = blemishes, stops, wear, characters, said
    while 0 < many < WINDOW:
        units[many] = 0
        many += 1
    return many


@compiled
def laid(raw, bounds, letters, weights, kinds, units, hashes, first, numbers):  # type: ignore[no-untyped-def]
    """Fills units and hashes with the letters of texts and the 32-bit hashes of their shingles, one text after another
    from the same places on, first (texts + 1,) with these, and numbers (texts, 5) as `read` does.
    """
    before = np.zeros(4, np.int64)
    for text in range(len(numbers)):
        begun = first[text]
        many = read(raw, bounds[text], bounds[text + 1], letters, weights, kinds, units[begun:], before, numbers[text])
        total = np.uint32(0)
        for place in range(many):
            total = np.uint32(total * BASE + mixed(units[begun + place], ONE, TWO))
            if place >= WINDOW:
                total = np.uint32(total - mixed(units[begun + place - WINDOW], ONE, TWO) * LEAVING)
            if place >= WINDOW - 1:
                hashes[begun + place - WINDOW + 1] = final(total, TWO, THREE)
        first[text + 1] = begun + many


@compiled
def signed(raw, bounds, letters, weights, kinds, sample, coarsest, count, scale, wear, values, offsets):  # type: ignore[no-untyped-def]
    """Fills count, scale and wear (texts,), offsets (texts + 1,) and `values` with the samples, each ascending and each
    hash once.

    raw, bounds: the texts in UTF-8, and where each begins. values: room for a hash each byte of the longest text and
    WINDOW more, beyond what is filled.
    """
    longest = 0
    for text in range(len(count)):
        longest = max(longest, bounds[text + 1] - bounds[text])
    units, turned = np.empty(longest + WINDOW, np.uint32), np.empty(longest + WINDOW, np.uint32)
    filled = 0
    before, numbers = np.zeros(4, np.int64), np.zeros(5, np.int64)
    for text in range(len(count)):
        many = read(raw, bounds[text], bounds[text + 1], letters, weights, kinds, units, before, numbers)
        wear[text] = numbers[2]
        # the shingles
        windows = max(many - WINDOW + 1, 0)
        bits = 0
        while bits < coarsest and windows >= sample << (bits + 1):
            bits += 1
        count[text], scale[text] = windows, bits
        most = np.uint32(0xFFFFFFFF) >> np.uint32(bits)
        begun, total = filled, np.uint32(0)
        for place in range(many):
            turned[place] = mixed(units[place], ONE, TWO)
            total = np.uint32(total * BASE + turned[place])
            if place >= WINDOW:
                total = np.uint32(total - turned[place - WINDOW] * LEAVING)
            if place >= WINDOW - 1:
                high = final(total, TWO, THREE)
                if high <= most:
                    low = np.uint32(0)
                    for step in range(place - WINDOW + 1, place + 1):
                        low = np.uint32(low * OTHER_BASE + mixed(units[step], OTHER_ONE, OTHER_TWO))
                    values[filled] = np.uint64(high) << np.uint64(32) | np.uint64(final(low, OTHER_TWO, OTHER_THREE))
                    filled += 1
        found = np.sort(values[begun:filled])
        filled = begun
        for place in range(len(found)):
            if place == 0 or found[place] != found[place - 1]:
                values[filled] = found[place]
                filled += 1
        offsets[text + 1] = filled
    return filled
