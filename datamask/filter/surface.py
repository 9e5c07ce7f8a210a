"""How intact the surface of a text is: what upper-casing, doubled spaces or lost capitals do to a copy of it.

Of documents with the same words, the one with fewest blemishes is the original as far as anybody can tell. The count
means nothing between different texts: source code has capitals inside words, and poems begin lines in lower case.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np

TABLE = 0x20000
UPPER, LOWER, SPACE, STOP, RETURN = 1, 2, 4, 8, 16


@cache
def kinds() -> np.ndarray:
    """(TABLE,) uint8: upper- and lower-case letters, spaces within a line, ends of sentences, carriage returns."""
    table = np.zeros(TABLE, np.uint8)
    for code in (*range(0x3400), *range(0xA640, 0xA800), *range(0xFB00, 0xFFFF), *range(0x10400, 0x10500)):
        category = unicodedata.category(chr(code))
        table[code] = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Zs": SPACE}.get(category, 0)
    table[[ord("\t")]] = SPACE
    table[[ord("\r")]] = RETURN
    table[[ord(mark) for mark in ".!?…"]] = STOP
    return table


def blemishes(codes: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(texts,) int: places where the surface is unusual, of texts given by their code points and ends.

    An upper-case letter after a letter, a space after a space, a lower-case letter after the end of a sentence, a
    carriage return.
    """
    if not len(codes):
        return np.zeros(len(ends), np.int64)
    kind = kinds()[codes if codes.max() < TABLE else np.minimum(codes, TABLE - 1)]
    found = np.zeros(len(kind), bool)
    before, now = kind[:-1], kind[1:]
    found[1:] = ((now == UPPER) & ((before & (UPPER | LOWER)) != 0)) | ((now == SPACE) & (before == SPACE))
    found[2:] |= (kind[2:] == LOWER) & (kind[1:-1] == SPACE) & (kind[:-2] == STOP)
    found |= kind == RETURN
    places = np.flatnonzero(found)
    return np.diff(np.searchsorted(places, ends), prepend=0)
