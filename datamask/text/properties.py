"""What Unicode says of each code point: looked up once a process, for the tables of all that reads texts."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import regex

LAST = 0x33480  # code points from here on are unassigned, tags or private: category "Cn"
SPACELESS = (  # scripts
    "Han Hiragana Katakana Thai Lao Khmer Myanmar Tai_Le New_Tai_Lue Tai_Tham Javanese Tibetan"
)


@cache
def characters() -> str:
    """Every code point before LAST."""
    return "".join(map(chr, range(LAST)))


@cache
def categories() -> np.ndarray:
    """(LAST,) U2: the general category of each code point."""
    found = np.array([unicodedata.category(character) for character in characters()])
    found.setflags(write=False)
    return found


@cache
def small_letters() -> np.ndarray:
    """(LAST,) uint32: each code point in lower case, where that is one code point; else itself."""
    small = (character.lower() for character in characters())
    lowered = [ord(one) if len(one) == 1 else code for code, one in enumerate(small)]
    found = np.array(lowered, np.uint32)
    found.setflags(write=False)
    return found


@cache
def spaceless() -> np.ndarray:
    """(LAST,) bool: letters, marks and digits of scripts that are written without spaces between words."""
    pattern = "[" + "".join(rf"\p{{{script}}}" for script in SPACELESS.split()) + "]"
    found = np.zeros(LAST, bool)
    found[[match.start() for match in regex.finditer(pattern, characters())]] = True
    found &= np.isin(categories().astype("U1"), ["L", "M", "N"])
    found.setflags(write=False)
    return found
