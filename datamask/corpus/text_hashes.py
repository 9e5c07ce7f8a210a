"""The hash that finds a text's copies: equal for texts that differ in case, white space and Unicode's spelling alone.

    text_hashes(pa.array(["One  text.", "one text. "]))      # twice the same 16 bytes

Most texts are normalised by a compiled loop over their bytes; Unicode's quick check (UAX 15, section 9) tells them from
those that need the library.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from datamask.corpus.utf8 import utf8

TABLE = 0x20000  # code points looked up; above, up to CJK, lie ideographs that are as they are
CJK = 0x2F800
PLAIN, WHITE, MARK, JOINING, JOINING_MARK, OTHER = range(6)  # kinds of code point, see `Tables`
BLOCK_BYTES = 1 << 22  # of text, normalised at a time
# looked at: neither Han, Hangul syllables, Tangut nor what is private, which are as they are
PARTS = ((0, 0x3400), (0x4DC0, 0x4E00), (0xA000, 0xAC00), (0xD7A4, 0xE000), (0xF900, 0x17000), (0x18800, TABLE))
LEADING = (0x1100, 0x1113)  # Hangul's consonants: a syllable is made of one and what follows
COMPOSED = 255
BITS = 13  # of the table of pairs that are composed


class Tables(NamedTuple):
    """What the loop knows of each code point below TABLE."""

    kind: np.ndarray  # (TABLE,) uint8
    # PLAIN: a starter that stays as it is in NFC; WHITE: white space; MARK: no starter, else as PLAIN;
    # JOINING, JOINING_MARK: may be composed with what stands before it; OTHER: for the library
    order: np.ndarray  # (TABLE,) uint8: the combining class; COMPOSED of what is made of a letter and a mark
    folded: np.ndarray  # (TABLE, 2) uint32: what case-folding makes of it, PLAIN each; the second is 0 where it is one
    pairs: (
        np.ndarray
    )  # (2**BITS,) uint64: what is composed, first << 32 | second, in an open-addressing table; 0: empty


def normalise(text: str) -> str:
    """What two copies of a text have in common: NFC, case-folded, runs of white space one space, none at the ends."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    else:
        text = text.lower()
    return " ".join(text.split())


def text_hash(text: str) -> bytes:
    """16 bytes, blake2b of the normalised text in UTF-8."""
    return blake2b(normalise(text).encode(), digest_size=16).digest()


def text_hashes(texts: pa.Array) -> list[bytes]:
    """The `text_hash` of each text; of a null that of an empty text.

    :param texts: of type string
    """
    return [blake2b(text, digest_size=16).digest() for text in _normalised(texts)]


def _normalised(texts: pa.Array) -> Iterator[bytes | memoryview]:
    """What is hashed of each text."""
    from datamask.corpus.utf8_loops import fold

    raw, bounds = utf8(texts)
    first = 0
    while first < len(texts):
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + BLOCK_BYTES, side="right")) - 1)
        made = np.empty(2 * int(bounds[last] - bounds[first]), np.uint8)
        ends = np.empty(last - first, np.int64)
        fold(raw, bounds[first : last + 1], *tables(), made, ends)
        begins = 0
        for row, end in zip(range(first, last), ends.tolist(), strict=True):
            if end < 0:
                yield normalise(texts[row].as_py()).encode()
            else:
                yield made[begins:end].data
                begins = end
        first = last


@cache
def tables() -> Tables:
    """The tables, made at first use."""
    kind, order = np.zeros(TABLE, np.uint8), np.zeros(TABLE, np.uint8)
    folded = np.zeros((TABLE, 2), np.uint32)
    folded[:, 0] = np.arange(TABLE)
    composed = []
    codes = [code for part in PARTS for code in range(*part)]
    for code in codes:
        character = chr(code)
        order[code] = unicodedata.combining(character)
        if character.isspace():
            kind[code] = WHITE
        elif unicodedata.normalize("NFC", character) != character or 0xD800 <= code < 0xE000:
            kind[code] = OTHER
        elif order[code]:
            kind[code] = MARK
        parts = unicodedata.decomposition(character)
        if parts and parts[0] != "<" and kind[code] in (PLAIN, MARK):
            one, other = (int(part, 16) for part in parts.split())
            composed.append((one, other))
            order[code] = COMPOSED
    for code in (*range(*LEADING), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3)):
        kind[code] = OTHER  # Hangul by letters
    for _, other in composed:
        kind[other] = JOINING_MARK if order[other] else JOINING
    for code in codes:
        if (made := chr(code).casefold()) != chr(code):
            points = [ord(point) for point in made]
            if len(points) > 2 or kind[code] != PLAIN or any(point >= TABLE or kind[point] for point in points):
                kind[code] = OTHER
            else:
                folded[code] = [*points, 0][:2]
    pairs = np.zeros(1 << BITS, np.uint64)
    for one, other in composed:
        key = one << 32 | other
        slot = key * 0x9E3779B97F4A7C15 % (1 << 64) >> (64 - BITS)
        while pairs[slot]:
            slot = (slot + 1) % (1 << BITS)
        pairs[slot] = key
    return Tables(kind, order, folded, pairs)
