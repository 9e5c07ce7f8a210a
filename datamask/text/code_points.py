"""What Unicode's normal forms make of a code point, as tables for compiled loops.

Most texts need no more than a look at each code point and the one before it (the quick check of UAX 15, section 9);
the others are left to the library.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

TABLE = 0x20000  # code points looked up; above, up to CJK, lie ideographs that are as they are
CJK = 0x2F800
PLAIN, WHITE, MARK, JOINING, JOINING_MARK, OTHER = range(6)  # kinds of code point, see `Tables`
WIDTH = 3  # code points that one may become
# looked at: neither Han, Hangul syllables, Tangut nor what is private, which are as they are
PARTS = ((0, 0x3400), (0x4DC0, 0x4E00), (0xA000, 0xAC00), (0xD7A4, 0xE000), (0xF900, 0x17000), (0x18800, TABLE))
LEADING = (0x1100, 0x1113)  # Hangul's consonants: a syllable is made of one and what follows
COMPOSED = 255
BITS = 13  # of the table of pairs that are composed


class Tables(NamedTuple):
    """What the loop knows of each code point below TABLE."""

    kind: np.ndarray  # (TABLE,) uint8
    # PLAIN: a starter that is as it is beside others; WHITE: white space; MARK: no starter, else as PLAIN;
    # JOINING, JOINING_MARK: may be composed with what stands before it; OTHER: for the library
    order: np.ndarray  # (TABLE,) uint8: the combining class; COMPOSED of what is made of a letter and a mark
    becomes: np.ndarray  # (TABLE, WIDTH) uint32: what the form makes of it, PLAIN each; 0 where there is no more
    pairs: np.ndarray  # (2**BITS,) uint64: what is composed, first << 32 | second, by open addressing; 0: empty


@cache
def tables(form: Literal["NFC", "NFKC"]) -> Tables:
    """The tables, made at first use: of NFC and then case-folding, or of NFKC."""
    kind, order = np.zeros(TABLE, np.uint8), np.zeros(TABLE, np.uint8)
    becomes = np.zeros((TABLE, WIDTH), np.uint32)
    becomes[:, 0] = np.arange(TABLE)
    composed, others = [], []
    codes = [code for part in PARTS for code in range(*part)]
    for code in codes:
        character = chr(code)
        order[code] = unicodedata.combining(character)
        made = unicodedata.normalize(form, character)
        if form == "NFC" and character.isspace():
            kind[code] = WHITE
        elif 0xD800 <= code < 0xE000 or (form == "NFC" and made != character):
            kind[code] = OTHER
        elif made != character or (form == "NFC" and character.casefold() != character):
            others.append((code, made if form == "NFKC" else character.casefold()))
        elif order[code]:
            kind[code] = MARK
        parts = unicodedata.decomposition(character)
        if parts and parts[0] != "<" and kind[code] in (PLAIN, MARK) and made == character:
            one, other = (int(part, 16) for part in parts.split())
            composed.append((one, other))
            order[code] = COMPOSED
    for code in (*range(*LEADING), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)):
        kind[code] = OTHER  # Hangul by letters
    for _, other in composed:
        kind[other] = JOINING_MARK if order[other] else JOINING
    unsure = {code for code, _ in others}
    for code, made in others:
        points = [ord(point) for point in made]
        good = len(points) <= WIDTH and kind[code] == PLAIN and unicodedata.combining(chr(code)) == 0
        if good and all(point < TABLE and kind[point] == PLAIN and point not in unsure for point in points):
            becomes[code] = [*points, 0, 0][:WIDTH]
    kind[[code for code in unsure if becomes[code, 0] == code]] = OTHER
    pairs = np.zeros(1 << BITS, np.uint64)
    for one, other in composed:
        key = one << 32 | other
        slot = key * 0x9E3779B97F4A7C15 % (1 << 64) >> (64 - BITS)
        while pairs[slot]:
            slot = (slot + 1) % (1 << BITS)
        pairs[slot] = key
    return Tables(kind, order, becomes, pairs)
