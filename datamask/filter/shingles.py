"""What two texts are compared by: the set of their shingles, windows of 12 letters of the normalised text.

    a, b = shingles("To be, or not to be …"), shingles("TO BE OR NOT TO BE")
    likeness(a, b)      # Likeness(jaccard=1.0, containment=1.0): what a decision records can be computed again

Normalised: lower case, without accents, and letters and digits alone, so that case, spaces, line ends and punctuation
never matter, and scripts that put no spaces between words need no rule of their own. A letter of a script that says
more with one (Han, Hangul, kana, Ethiopic) counts as two or three, so that a window holds two to three words in all.
Windows of characters are Broder's w-shingling (1997, "On the resemblance and containment of documents").
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.filter.pair_loops import in_common

WINDOW = 12  # letters: 2.5 English words; benchmarks/LOG.md has 8 to 20
TABLE = 0x20000  # code points looked up; above lie rare ideographs (letters) and marks without a meaning here
LETTERS = 0x32000
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
UNSPACED = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
FIRST_WEIGHTED = WEIGHTS[0][0]
# marks that are left out: accents, vowel points of Hebrew and Arabic. Those of Indic scripts are letters.
POINTS = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670), (0x0640, 0x0640))
CASED = ((0, 0x3400), (0x4DC0, 0x4E00), (0xA000, 0xAC00), (0xD7A4, TABLE))  # but Han and Hangul: letters as they are
SAME = {"ς": "σ", "ı": "i", "ſ": "s"}

_U = np.uint32
_SEEDS = ((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35), (0x27D4EB2F, 0x165667B1, 0xB5297A4D))  # odd; xxHash's and murmur3's


@cache
def letters() -> np.ndarray:
    """(TABLE,) uint32: the normalised letter of each code point, 0 for what is none."""
    table = np.arange(TABLE, dtype=np.uint32)
    for code in (code for first, last in CASED for code in range(first, last)):
        table[code] = 0
        character = chr(code)
        if unicodedata.category(character)[0] in "LNM" and not _point(code):
            table[code] = ord(_plain(character))
    return table


def _point(code: int) -> bool:
    return any(first <= code <= last for first, last in POINTS)


def _plain(character: str) -> str:
    lower = character.lower() if len(character.lower()) == 1 else character
    lower = SAME.get(lower, lower)
    parts = unicodedata.normalize("NFKD", lower)
    if len(parts) > 1 and all(_point(ord(mark)) for mark in parts[1:]):
        return parts[0].lower()
    return parts if len(parts) == 1 else lower


@cache
def weights() -> np.ndarray:
    """(TABLE,) uint8: for how many letters one counts."""
    table = np.ones(TABLE, np.uint8)
    for first, last, weight in WEIGHTS:
        table[first : last + 1] = weight
    return table


def unspaced(units: np.ndarray) -> np.ndarray:
    """(n,) bool: letters of scripts without spaces of which one or two make a word: Han and kana."""
    found = units >= TABLE
    for first, last in UNSPACED:
        found |= (units >= first) & (units <= last)
    return found


@dataclass(frozen=True, eq=False)
class Shingles:
    """The shingles of several texts: those of text i are `hashes[first[i] : first[i] + count[i]]`, in order."""

    hashes: np.ndarray  # (U − 11,) uint32; between two texts lie windows that belong to neither
    units: np.ndarray  # (U,) uint32: the letters of all texts; hashes[j] is of units[j : j + 12]
    first: np.ndarray  # (texts,) int64
    count: np.ndarray  # (texts,) int64

    def wide(self, which: np.ndarray) -> np.ndarray:
        """The 64-bit hashes (n,) of the shingles of these numbers: the 32 bits of `hashes`, then 32 others."""
        high = self.hashes[which].astype(np.uint64) << np.uint64(32)
        return high | _other_half(self.units, which).astype(np.uint64)


def codes_of(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(code points (C,) uint32 of all texts one after another, where each text ends (texts,) int64); null: empty."""
    filled = pc.fill_null(texts, "")
    ends = np.cumsum(pc.utf8_length(filled).to_numpy(zero_copy_only=False).astype(np.int64))
    text = "".join(filled.to_pylist())
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32), ends


def windows(codes: np.ndarray, ends: np.ndarray) -> Shingles:
    """The shingles of texts given by their code points, one after another, and their ends (see `codes_of`)."""
    highest = int(codes.max()) if len(codes) else 0
    if highest < TABLE:
        units = letters()[codes]
    else:
        units = letters()[np.where(codes < TABLE, codes, 0)]
        rare = (codes >= TABLE) & (codes < LETTERS)
        units[rare] = codes[rare]
    kept = np.flatnonzero(units)
    stops = np.searchsorted(kept, ends)
    units = units[kept]
    if highest >= FIRST_WEIGHTED:
        often = np.where(units < TABLE, weights()[np.minimum(units, TABLE - 1)], 3)
        place = np.concatenate([[0], np.cumsum(often, dtype=np.int64)])
        stops = place[stops]
        units = np.repeat(units, often)
    counts = np.diff(stops, prepend=0)
    short = (counts > 0) & (counts < WINDOW)
    if short.any():  # a text shorter than a window is one shingle: zeros are put after it
        missing = np.where(short, WINDOW - counts, 0)
        units = np.insert(units, np.repeat(stops, missing), 0)
        counts = counts + missing
    return Shingles(_hash(units), units, np.cumsum(counts) - counts, np.maximum(counts - WINDOW + 1, 0))


def shingles(text: str) -> np.ndarray:
    """A text's shingles: their 32-bit hashes, ascending, each once, (n,) uint32."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    found = windows(codes, np.array([len(codes)]))
    return once(found.hashes[: found.count[0]])


def once(values: np.ndarray) -> np.ndarray:
    """The values ascending, each once; numpy.unique, which hashes first, takes five times as long on these."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


class Likeness(NamedTuple):
    """Of two texts: of all their shingles the share they have in common; of the smaller set's, the share in the other.

    An empty text is like nothing.
    """

    jaccard: float
    containment: float


def likeness(one: np.ndarray, other: np.ndarray) -> Likeness:
    """Of two texts given by their `shingles`."""
    if not len(one) or not len(other):
        return Likeness(0.0, 0.0)
    common = int(in_common(one, other))
    return Likeness(common / (len(one) + len(other) - common), common / min(len(one), len(other)))


def _mixed(units: np.ndarray, seed: tuple[int, int, int]) -> np.ndarray:
    value = units * _U(seed[0])
    value ^= value >> _U(15)
    value *= _U(seed[1])
    return value


def _final(value: np.ndarray, seed: tuple[int, int, int]) -> np.ndarray:
    value ^= value >> _U(16)
    value *= _U(seed[1])
    value ^= value >> _U(13)
    value *= _U(seed[2])
    value ^= value >> _U(16)
    return value


def _hash(units: np.ndarray) -> np.ndarray:
    """(U − 11,) uint32: a polynomial over 12 letters, built by doubling: of 2, 4, 8, then 8 and 4."""
    if len(units) < WINDOW:
        return np.zeros(0, np.uint32)
    base = _SEEDS[0][2] | 1
    one = _mixed(units, _SEEDS[0])
    two = one[:-1] * _U(base)
    two += one[1:]
    four = two[:-2] * _U(pow(base, 2, 1 << 32))
    four += two[2:]
    eight = four[:-4] * _U(pow(base, 4, 1 << 32))
    eight += four[4:]
    twelve = eight[:-4] * _U(pow(base, 4, 1 << 32))
    twelve += four[8:]
    return _final(twelve, _SEEDS[0])


def _other_half(units: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n,) uint32: another polynomial of the 12 letters that begin at `starts`."""
    base = _U(_SEEDS[1][2] | 1)
    value = np.zeros(len(starts), np.uint32)
    for step in range(WINDOW):
        value *= base
        value += _mixed(units[starts + step], _SEEDS[1])
    return _final(value, _SEEDS[1])
