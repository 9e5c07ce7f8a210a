"""Inner loops over texts in UTF-8, compiled by Numba.

A module of its own, so that importing what reads texts does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.text.code_points import BITS, CJK, COMPOSED, JOINING_MARK, MARK, OTHER, PLAIN, TABLE, WHITE, WIDTH


@compiled
def code_point(raw, at):  # type: ignore[no-untyped-def]
    """The code point that begins at a byte of valid UTF-8, and its bytes."""
    first = int(raw[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | int(raw[at + 1]) & 0x3F, 2
    if first < 0xF0:
        return (first & 0x0F) << 12 | (int(raw[at + 1]) & 0x3F) << 6 | int(raw[at + 2]) & 0x3F, 3
    return (
        (first & 0x07) << 18
        | (int(raw[at + 1]) & 0x3F) << 12
        | (int(raw[at + 2]) & 0x3F) << 6
        | int(raw[at + 3]) & 0x3F,
        4,
    )


@compiled
def write_point(code, made, at):  # type: ignore[no-untyped-def]
    """Writes a code point in UTF-8; returns where the next goes."""
    if code < 0x80:
        made[at] = code
        return at + 1
    if code < 0x800:
        made[at], made[at + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        made[at], made[at + 1], made[at + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
        return at + 3
    made[at], made[at + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 0x3F
    made[at + 2], made[at + 3] = 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
    return at + 4


@compiled
def may_join(first, second, order, pairs):  # type: ignore[no-untyped-def]
    """Whether two code points may be others in their normal form; the tables are as `code_points.Tables` has them."""
    if first < TABLE and order[first] == COMPOSED:
        return True
    key = np.uint64(first) << np.uint64(32) | np.uint64(second)
    slot = np.int64(key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - BITS))
    while pairs[slot]:
        if pairs[slot] == key:
            return True
        slot = (slot + 1) & (len(pairs) - 1)
    return False


@compiled
def clashes(before, was, last, code, is_, order, pairs):  # type: ignore[no-untyped-def]
    """Whether a code point, a mark or one that joins others, needs the library for what stands before it: the code
    point `before`, its kind `was`, and what it became at `last`."""
    marked = was in (MARK, JOINING_MARK)
    if is_ == JOINING_MARK and marked:
        return True
    if is_ == MARK:
        return marked and order[before] > order[code]
    return may_join(before, code, order, pairs) or may_join(last, code, order, pairs)


@compiled
def normalise_texts(raw, bounds, kind, order, becomes, pairs, made, ends):  # type: ignore[no-untyped-def]
    """Fills `made` with the normalised texts in UTF-8, one after the other, and ends (texts,) with where each ends
    there: −1 for a text that is left to the library, and is not there.

    raw, bounds: the texts in UTF-8, and where each begins; the tables as `code_points.Tables` has them. There must be
    room for twice the texts' bytes.
    """
    filled = 0
    for text in range(len(ends)):
        begun = filled
        at, end = bounds[text], bounds[text + 1]
        white, good = False, True  # white space since the last letter
        before, was, last = (
            np.int64(0),
            np.uint8(WHITE),
            np.int64(0),
        )  # of the code point before: its kind, and what it became
        while at < end:
            code, size = np.int64(raw[at]), np.int64(1)
            if code >= 0x80:
                code, size = code_point(raw, at)
            at += size
            is_ = np.uint8(PLAIN)
            if code < TABLE:
                is_ = kind[code]
            elif code >= CJK:
                is_ = np.uint8(OTHER)
            if is_ == WHITE:
                white = True
                before, was = code, is_
                continue
            if is_ != PLAIN:
                if is_ == OTHER:
                    good = False
                    break
                if clashes(before, was, last, code, is_, order, pairs):
                    good = False
                    break
            if white and filled > begun:
                made[filled] = 0x20
                filled += 1
            white = False
            before, was = code, is_
            last = code
            if code < TABLE:
                last = np.int64(becomes[code, 0])
                for step in range(1, WIDTH):
                    if becomes[code, step]:
                        filled = write_point(last, made, filled)
                        last = np.int64(becomes[code, step])
            filled = write_point(last, made, filled)
        ends[text] = filled if good else -1
        if not good:
            filled = begun


@compiled
def composed(raw, bounds, kind, order, becomes, pairs, points, ends):  # type: ignore[no-untyped-def]
    """Fills `points` with the code points of the texts in NFKC, one text after the other, and ends (texts,) with where
    each ends there: −1 for a text that is left to the library, and is not there.

    raw, bounds: the texts in UTF-8, and where each begins; the tables are those of NFKC. There must be room for WIDTH
    times the texts' bytes.
    """
    filled = 0
    for text in range(len(ends)):
        begun = filled
        at, end = bounds[text], bounds[text + 1]
        good = True
        before, was, last = np.int64(0), np.uint8(PLAIN), np.int64(0)
        while at < end:
            code, size = np.int64(raw[at]), np.int64(1)
            if code < 0x80:  # nothing but itself
                points[filled] = code
                filled, at, before, was, last = filled + 1, at + 1, code, np.uint8(PLAIN), code
                continue
            code, size = code_point(raw, at)
            at += size
            is_ = kind[code] if code < TABLE else np.uint8(OTHER if code >= CJK else PLAIN)
            if is_ == OTHER or (is_ != PLAIN and clashes(before, was, last, code, is_, order, pairs)):
                good = False
                break
            before, was, last = code, is_, code
            if code < TABLE:
                last = np.int64(becomes[code, 0])
                for step in range(1, WIDTH):
                    if becomes[code, step]:
                        points[filled] = last
                        filled += 1
                        last = np.int64(becomes[code, step])
            points[filled] = last
            filled += 1
        ends[text] = filled if good else -1
        if not good:
            filled = begun
