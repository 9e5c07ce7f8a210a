"""Inner loops over texts in UTF-8, compiled by Numba.

A module of its own, so that importing what reads texts does not wait for the compiler.
"""

from __future__ import annotations

from datamask.compiling import compiled


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
