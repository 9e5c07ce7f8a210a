"""What the compiled loops of `signature_loops` do, by arrays that are passed over many times: the definitions that they
are tested against."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.text.letters import _SEEDS, DIGIT, LETTERS, WEIGHTS, WINDOW, tables
from datamask.text.surface import (
    BREAK,
    BROKEN,
    CASED,
    LONG,
    LOWER,
    MARK,
    PARAGRAPH,
    QUOTE,
    RETURN,
    SENTENCE,
    SHOUTED,
    SPACE,
    STOP,
    TABLE,
    UPPER,
    Surface,
    byte_kinds,
)

FIRST_WEIGHTED = WEIGHTS[0][0]


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
        units = tables().letters[codes]
    else:
        units = tables().letters[np.where(codes < TABLE, codes, 0)]
        rare = (codes >= TABLE) & (codes < LETTERS)
        units[rare] = codes[rare]
    kept = np.flatnonzero(units)
    number = np.searchsorted(ends, kept, side="right")
    again = np.zeros(len(kept), bool)  # a number is one digit
    again[1:] = (units[kept][1:] == DIGIT) & (units[kept][:-1] == DIGIT) & (number[1:] == number[:-1])
    kept = kept[~again]
    stops = np.searchsorted(kept, ends)
    units = units[kept]
    if highest >= FIRST_WEIGHTED:
        often = np.where(units < TABLE, tables().weights[np.minimum(units, TABLE - 1)], 3)
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


def _mixed(units: np.ndarray, seed: tuple[int, int, int]) -> np.ndarray:
    value = units * np.uint32(seed[0])
    value ^= value >> np.uint32(15)
    value *= np.uint32(seed[1])
    return value


def _final(value: np.ndarray, seed: tuple[int, int, int]) -> np.ndarray:
    value ^= value >> np.uint32(16)
    value *= np.uint32(seed[1])
    value ^= value >> np.uint32(13)
    value *= np.uint32(seed[2])
    value ^= value >> np.uint32(16)
    return value


def _hash(units: np.ndarray) -> np.ndarray:
    """(U − 11,) uint32: a polynomial over 12 letters, built by doubling: of 2, 4, 8, then 8 and 4."""
    if len(units) < WINDOW:
        return np.zeros(0, np.uint32)
    base = _SEEDS[0][2] | 1
    one = _mixed(units, _SEEDS[0])
    two = one[:-1] * np.uint32(base)
    two += one[1:]
    four = two[:-2] * np.uint32(pow(base, 2, 1 << 32))
    four += two[2:]
    eight = four[:-4] * np.uint32(pow(base, 4, 1 << 32))
    eight += four[4:]
    twelve = eight[:-4] * np.uint32(pow(base, 4, 1 << 32))
    twelve += four[8:]
    return _final(twelve, _SEEDS[0])


def _other_half(units: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n,) uint32: another polynomial of the 12 letters that begin at `starts`."""
    base = np.uint32(_SEEDS[1][2] | 1)
    value = np.zeros(len(starts), np.uint32)
    for step in range(WINDOW):
        value *= base
        value += _mixed(units[starts + step], _SEEDS[1])
    return _final(value, _SEEDS[1])


def surface(text: str) -> Surface:
    """What `read` says of a text without escapes, line by line; the digest is left out."""
    kind = [BREAK] * 3 + [int(byte_kinds()[min(ord(c), TABLE - 1)]) for c in text]
    white, letter = SPACE | RETURN | BREAK, UPPER | LOWER
    places = range(3, len(kind))
    cased = [k for k in kind if k & letter]
    shouted = sum(kind[p] & UPPER != 0 and kind[p - 1] & letter != 0 for p in places)
    blemishes = sum(kind[p] == RETURN for p in places)
    blemishes += sum(kind[p] & LOWER != 0 and kind[p - 1] == SPACE and kind[p - 2] == STOP for p in places)
    blemishes += sum(kind[p] == kind[p - 1] == SPACE and not kind[p - 2] & white for p in places)
    blemishes += shouted if shouted > SHOUTED * len(cased) else 0
    blemishes += len(cased) >= CASED and not any(k & UPPER for k in cased)
    blemishes += len(text) >= LONG and "\n" not in text
    parts = sum(k & (MARK | STOP) != 0 and k != QUOTE for k in kind)
    parts += sum(kind[p] & white != 0 and not kind[p - 1] & white for p in places)
    parts += sum(kind[p] == BREAK and kind[p - 1] != BREAK for p in places)
    prose = quoted = 0
    for line in re.findall("[^\n]*\n|[^\n]+$", text):
        codes, ends = codes_of(pa.array([line]))
        letters_ = len(windows(codes, ends).units) if len(windows(codes, ends).hashes) else 0
        marks = [int(byte_kinds()[min(ord(c), TABLE - 1)]) for c in line]
        if line.lstrip(" \t\r\u00a0").startswith(">"):
            quoted += letters_
        elif letters_ >= PARAGRAPH or (letters_ >= SENTENCE and STOP in marks[-3:]):
            prose += letters_
    broken = sum(k == BROKEN for k in kind)
    return Surface(blemishes, blemishes - parts, broken, prose, quoted, sum(c.isdigit() for c in text), 0)
