"""What words are made of: kinds of byte, and the small letters beyond ASCII."""

from __future__ import annotations

import string
import unicodedata
from functools import cache

import numpy as np

from datamask.text import code_points
from datamask.text.properties import categories, small_letters

# Kinds of byte. The tokenizer splits between white space and all else, and between a letter and a sign. What is beyond
# ASCII stays with its neighbours: it may be either, or a mark that the normalizer joins to the letter before it.
SPACE, LETTER, SIGN, BEYOND = 0, 1, 2, 4
KINDS = np.full(256, SIGN, np.uint8)
KINDS[[ord(letter) for letter in string.ascii_letters + string.digits + "_"]] = LETTER
KINDS[[ord(space) for space in "\t\n\v\f\r "]] = SPACE
KINDS[128:] = BEYOND
LOWER = np.arange(256, dtype=np.uint8)
LOWER[ord("A") : ord("Z") + 1] += 32
TABLE = code_points.TABLE  # code points looked up
MARKED = 1 << 31  # of an entry of `letters`
CJK = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4))  # with Hangul: letters as they are


@cache
def letters() -> np.ndarray:
    """(TABLE,) uint32: the small letter of each letter and mark beyond ASCII that NFKC leaves as it is, whatever stands
    beside it but for two marks together; those marks with MARKED. 0: it is another."""
    kind = code_points.tables("NFC").kind
    found = np.zeros(TABLE, np.uint32)
    for first, last in CJK:
        found[first:last] = np.arange(first, last)
    for code in np.flatnonzero((kind == code_points.PLAIN) | (kind == code_points.MARK)).tolist():
        character = chr(code)
        if code < 0x80 or found[code] or categories()[code][0] not in "LM" or len(character.lower()) > 1:
            continue
        if unicodedata.normalize("NFKC", character) == character:
            found[code] = small_letters()[code] | (MARKED if kind[code] == code_points.MARK else 0)
    return found
