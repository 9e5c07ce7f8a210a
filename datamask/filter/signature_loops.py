"""The inner loop of `signatures`, compiled by Numba: texts are looked at once, where arrays would be passed over many
times.

A module of its own, so that importing `signatures` does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.corpus.utf8_loops import code_point
from datamask.filter.shingles import _SEEDS, LETTERS, TABLE, WINDOW
from datamask.filter.surface import BREAK, CASED, LONG, LOWER, MARK, RETURN, SHOUTED, SPACE, STOP, UPPER

WHITE = SPACE | RETURN | BREAK
ONE, TWO, THREE = (np.uint32(seed) for seed in _SEEDS[0])
OTHER_ONE, OTHER_TWO, OTHER_THREE = (np.uint32(seed) for seed in _SEEDS[1])
BASE, OTHER_BASE = np.uint32(_SEEDS[0][2] | 1), np.uint32(_SEEDS[1][2] | 1)
LEAVING = np.uint32(pow(_SEEDS[0][2] | 1, WINDOW, 1 << 32))  # the power of a letter that is left behind


@compiled
def mixed(unit, one, two):  # type: ignore[no-untyped-def]
    """As `shingles._mixed`."""
    value = np.uint32(unit * one)
    value = np.uint32(value ^ (value >> np.uint32(15)))
    return np.uint32(value * two)


@compiled
def final(value, two, three):  # type: ignore[no-untyped-def]
    """As `shingles._final`."""
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * two)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(13))) * three)
    return np.uint32(value ^ (value >> np.uint32(16)))


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
    before, earlier = np.uint8(0), np.uint8(0)  # kinds of the two characters before; of another text, at its beginning
    seen = 0  # characters, up to two
    for text in range(len(count)):
        at, end = bounds[text], bounds[text + 1]
        many, characters = 0, 0
        upper, lower, inside, bad, breaks, stops, marks, spaces, lines = 0, 0, 0, 0, 0, 0, 0, 0, 0
        while at < end:
            code, size = code_point(raw, at)
            at += size
            characters += 1
            # the surface, as `surface.surface` has it
            kind = kinds[min(code, TABLE - 1)]
            if kind:
                upper += kind == UPPER
                lower += kind == LOWER
                stops += kind == STOP
                marks += kind == MARK
                breaks += kind == BREAK
                bad += kind == RETURN
                if seen > 0:
                    inside += kind == UPPER and before & (UPPER | LOWER) != 0
                if kind & WHITE and not (seen > 0 and before & WHITE):
                    spaces += 1
                if kind == BREAK and not (seen > 0 and before == BREAK):
                    lines += 1
                if seen > 1 and before == SPACE:
                    bad += kind == SPACE and earlier & WHITE == 0
                    bad += kind == LOWER and earlier == STOP
            earlier, before = before, kind
            seen = min(seen + 1, 2)
            # its letters
            unit = np.uint32(0)
            often = 3
            if code < TABLE:
                unit = letters[code]
            elif code < LETTERS:
                unit = np.uint32(code)
            if unit:
                if unit < TABLE:
                    often = weights[unit]
                for _ in range(often):
                    units[many] = unit
                    many += 1
        blemishes = bad
        if inside > SHOUTED * (upper + lower):
            blemishes += inside
        blemishes += upper == 0 and lower >= CASED
        blemishes += breaks == 0 and characters >= LONG
        wear[text] = blemishes - (marks + stops + spaces + lines)
        # the shingles, as `shingles.windows` has them
        while 0 < many < WINDOW:
            units[many] = 0
            many += 1
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
