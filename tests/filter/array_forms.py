"""What the compiled loops of `signature_loops` do, by arrays that are passed over many times: the definitions that they
are tested against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.filter.shingles import _SEEDS, LETTERS, TABLE, WEIGHTS, WINDOW, letters, weights
from datamask.filter.surface import (
    BREAK,
    CASED,
    LONG,
    LOWER,
    MARK,
    PARAGRAPH,
    RETURN,
    SENTENCE,
    SHOUTED,
    SPACE,
    STOP,
    UPPER,
    kinds,
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


class Surfaces(NamedTuple):
    """The `Surface` of some texts, (texts,) int64 each."""

    blemishes: Any
    stops: Any
    wear: Any


def surface(codes: np.ndarray, ends: np.ndarray) -> Surfaces:
    """Of texts given by their code points, one after another, and their ends.

    Blemishes: runs of spaces inside a line and carriage returns; small letters that begin a sentence; every capital of
    a text that is all capitals; one for a text without any capital, and one for a long text on one line.
    """
    if not len(codes):
        return Surfaces(*np.zeros((3, len(ends)), np.int64))
    kind = kinds()[codes if codes.max() < TABLE else np.minimum(codes, TABLE - 1)]

    def counted(found: np.ndarray) -> np.ndarray:
        return np.diff(np.searchsorted(np.flatnonzero(found), ends), prepend=0)

    before, now = kind[:-1], kind[1:]
    white = kind & (SPACE | RETURN | BREAK) != 0
    bad = kind == RETURN
    bad[2:] |= (kind[2:] == SPACE) & (kind[1:-1] == SPACE) & (kind[:-2] & (SPACE | RETURN | BREAK) == 0)
    bad[2:] |= (kind[2:] == LOWER) & (kind[1:-1] == SPACE) & (kind[:-2] == STOP)
    inside = np.zeros(len(kind), bool)
    inside[1:] = (now == UPPER) & (before & (UPPER | LOWER) != 0)
    upper, lower, shouted = counted(kind == UPPER), counted(kind == LOWER), counted(inside)
    blemishes = counted(bad)
    blemishes += np.where(shouted > SHOUTED * (upper + lower), shouted, 0)
    blemishes += (upper == 0) & (lower >= CASED)
    blemishes += (counted(kind == BREAK) == 0) & (np.diff(ends, prepend=0) >= LONG)
    spaces, lines = white.copy(), kind == BREAK
    spaces[1:] &= ~white[:-1]
    lines[1:] &= ~lines[:-1]
    stops = counted(kind == STOP)
    parts = counted(kind == MARK) + stops + counted(spaces) + counted(lines)
    return Surfaces(blemishes, stops, blemishes - parts)


class Proses(NamedTuple):
    """The `Prose` of some texts, (texts,) int64 each."""

    characters: Any
    prose: Any


def prose(codes: np.ndarray, ends: np.ndarray) -> Proses:
    """Of texts given by their code points, one after another, and their ends."""
    if not len(codes):
        return Proses(*np.zeros((2, len(ends)), np.int64))
    kind = kinds()[codes if codes.max() < TABLE else np.minimum(codes, TABLE - 1)]
    cuts = np.flatnonzero(kind == BREAK) + 1
    stops = np.union1d(cuts, ends[ends > 0])
    starts = np.concatenate([[0], stops[:-1]])
    lengths = stops - starts
    stop = kind == STOP
    closed = stop[stops - 1] | stop[np.maximum(stops - 2, starts)] | stop[np.maximum(stops - 3, starts)]
    said = (lengths >= PARAGRAPH) | ((lengths >= SENTENCE) & closed)

    def summed(values: np.ndarray) -> np.ndarray:
        found = np.concatenate([[0], np.cumsum(values)])
        return np.diff(found[np.searchsorted(stops, ends, side="right")], prepend=0)

    return Proses(summed(lengths), summed(np.where(said, lengths, 0)))
