"""What kind of character each code point is: lookup tables, built once a process (about 0.2 s)."""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np
import regex

# Flags of a code point.
SPACE = 1  # str.isspace
ALPHA = 2  # str.isalpha
SYMBOL = 4  # punctuation and control characters: a word made of these alone is no word (datatrove, utils/text.py)
TERMINAL = 8  # ends a sentence, in any script: Unicode's Sentence_Terminal
QUOTE = 16  # " and ': with TERMINAL, C4's terminal punctuation
LINE_BREAK = 32  # str.splitlines
UNSPACED = 64  # a letter of a script written without spaces

# Kinds: how a character takes part in words, four bits each. The rules are in `words.py`.
BLANK, LOWER, UPPER, DIGIT, OTHER, PERIOD, COMMA, HYPHEN, INFIX, APOSTROPHE, EDGE, COLON, ALWAYS, SINGLE = range(14)
KINDS = 14

# CCNet's punctuation beyond ASCII (normalizer.py), which datatrove's filters use; the digit among it is CCNet's own.
_CCNET = "—”％１〈、━【「」，】；“《„’∶´．（–？！：～«〉》）。…►»"
_CONTROL = [chr(c) for c in (*range(9), 11, 12, *range(13, 32), *range(127, 160))]
LAST = 0x33480  # code points from here on are unassigned, tags or private: category "Cn" as far as words go


@dataclass(frozen=True)
class Tables:
    """Each indexed by code point."""

    flags: np.ndarray  # (0x110000,) uint8
    kinds: np.ndarray  # (0x110000,) uint8
    ascii_lower: np.ndarray  # (0x110000,) uint8: the lowercase letter if that is ASCII, else 0x80


@cache
def tables() -> Tables:
    """The tables of all code points, made at first use."""
    flags = np.zeros(0x110000, dtype=np.uint8)
    kinds = np.full(0x110000, OTHER, dtype=np.uint8)
    ascii_lower = np.full(0x110000, 0x80, dtype=np.uint8)
    terminal = regex.compile(r"\p{Sentence_Terminal}")
    unspaced = regex.compile(
        r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tai_Le}\p{New_Tai_Lue}\p{Javanese}\p{Tibetan}]"
    )
    symbols = set(string.punctuation) | set(_CCNET) | set(_CONTROL)
    for point in range(LAST):
        if 0xD800 <= point < 0xE000:
            continue
        char = chr(point)
        category = unicodedata.category(char)
        if category == "Cn":
            continue
        flag = 0
        if char.isspace():
            flag |= SPACE
            if len(f"a{char}a".splitlines()) > 1:
                flag |= LINE_BREAK
        if char.isalpha():
            flag |= ALPHA
        if terminal.match(char):
            flag |= TERMINAL | SYMBOL
        if char in symbols:
            flag |= SYMBOL
        if char in "\"'":
            flag |= QUOTE
        if point > 0xFF and category[0] in "LM" and unspaced.match(char):
            flag |= UNSPACED
        flags[point] = flag
        kinds[point] = _kind(char, category, flag)
        lowered = char.lower()
        if len(lowered) == 1 and lowered < "\x80":
            ascii_lower[point] = ord(lowered)
    for table in (flags, kinds, ascii_lower):
        table.setflags(write=False)
    return Tables(flags, kinds, ascii_lower)


def _kind(char: str, category: str, flag: int) -> int:
    if flag & SPACE:
        return BLANK
    if flag & UNSPACED:
        return OTHER if category[0] == "M" else SINGLE
    if char in ".,":
        return PERIOD if char == "." else COMMA
    if char in "-~":
        return HYPHEN
    if char in ":<>=":
        return COLON
    if char == "/":
        return INFIX
    if char in "'’":
        return APOSTROPHE
    if char in "—–" or category == "So":
        return ALWAYS
    if (category[0] == "P" and char not in "@\\") or category == "Sc" or char in "`´":
        return EDGE
    if category == "Lu":
        return UPPER
    if category[0] in "LM":
        return LOWER
    return DIGIT if category[0] == "N" else OTHER
