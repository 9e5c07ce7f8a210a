"""The letters of texts that are compared: lower case, without accents, letters and digits alone.

So case, spaces, line ends and punctuation never matter, and scripts that put no spaces between words need no rule of
their own. A letter of a script that says more with one (Han, Hangul, kana, Ethiopic) counts as two or three, so that a
window of WINDOW letters holds two to three words in all. Windows of characters are Broder's w-shingling (1997, "On the
resemblance and containment of documents").
"""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datamask.text.surface import TABLE, byte_kinds

WINDOW = 12  # letters: 2.5 English words; benchmarks/LOG.md has 8 to 20
LETTERS = 0x32000  # from TABLE to here lie rare ideographs, above marks without a meaning here
DIGIT = np.uint32(ord("0"))
# code points a letter of which counts for several: first, last, how many
WEIGHTS = (
    (0x1200, 0x139F, 2),  # Ethiopic: a syllable
    (0x2D80, 0x2DDF, 2),
    (0x3040, 0x30FF, 2),  # kana
    (0x3400, 0x4DBF, 3),  # Han
    (0x4E00, 0x9FFF, 3),
    (0xAB00, 0xAB2F, 2),
    (0xAC00, 0xD7A3, 2),  # Hangul syllables
    (0xF900, 0xFAFF, 3),
    (TABLE, LETTERS, 3),
)
HAN_AND_KANA = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
# marks that are left out: accents, vowel points of Hebrew and Arabic. Those of Indic scripts are letters.
POINTS = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670), (0x0640, 0x0640))
CASED = ((0, 0x3400), (0x4DC0, 0x4E00), (0xA000, 0xAC00), (0xD7A4, TABLE))  # but Han and Hangul: letters as they are
SAME = {"ς": "σ", "ı": "i", "ſ": "s"}

_SEEDS = ((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35), (0x27D4EB2F, 0x165667B1, 0xB5297A4D))  # odd; xxHash's and murmur3's


class Tables(NamedTuple):
    """What the loops know of each code point."""

    letters: np.ndarray  # (TABLE,) uint32: the normalised letter, DIGIT for a digit, 0 for what is none
    latin: np.ndarray  # the same in a text of Latin letters, where a capital is that which it looks like
    weights: np.ndarray  # (TABLE,) uint8: for how many letters a letter counts
    kinds: np.ndarray  # (TABLE,) uint8: see `surface.byte_kinds`


@cache
def tables() -> Tables:
    """Made at first use."""
    letters = np.arange(TABLE, dtype=np.uint32)
    alike = _confusable()
    latin_of = {}
    for code in (code for first, last in CASED for code in range(first, last)):
        letters[code] = 0
        character = chr(code)
        plain = _plain(character)
        if unicodedata.category(plain)[0] in "LNM" and not _point(code):
            letters[code] = DIGIT if plain.isdigit() else ord(_plain(alike.get(plain, plain)))
            if plain != character and code >= 0x80:
                looks = _plain(alike.get(character, character))
                if looks.isascii() and looks.isalpha():
                    latin_of[code] = ord("i" if looks == "l" else looks)  # the table has a capital I look like an l
    latin = letters.copy()
    latin[list(latin_of)] = list(latin_of.values())
    weights = np.ones(TABLE, np.uint8)
    for first, last, weight in WEIGHTS:
        weights[first : last + 1] = weight
    return Tables(letters, latin, weights, byte_kinds())


def _confusable() -> dict[str, str]:
    """Of each character that looks like another by Unicode's table (UTS 39), that other."""
    found: dict[str, str] = json.loads(Path(__file__).with_name("confusables.json").read_text(encoding="utf-8"))
    return found


def _point(code: int) -> bool:
    return any(first <= code <= last for first, last in POINTS)


def _plain(character: str) -> str:
    lower = character.lower() if len(character.lower()) == 1 else character
    lower = SAME.get(lower, lower)
    parts = unicodedata.normalize("NFKD", lower)
    if len(parts) > 1 and all(_point(ord(mark)) for mark in parts[1:]):
        return parts[0].lower()
    return parts.lower() if len(parts) == 1 else lower


def unspaced(units: np.ndarray) -> np.ndarray:
    """(n,) bool: letters of scripts without spaces of which one or two make a word: Han and kana."""
    found = units >= TABLE
    for first, last in HAN_AND_KANA:
        found |= (units >= first) & (units <= last)
    return found


def unique_sorted(values: np.ndarray) -> np.ndarray:
    """The values ascending, each once; numpy.unique, which hashes first, takes five times as long on these."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]
