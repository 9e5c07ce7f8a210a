"""How often words, and pairs of words, occur in each half of a sample of the pool.

A document is measured by the half that the hash of its words keeps it out of (two-fold cross-fitting): no document is
judged by counts that have seen it, and a copy of it falls into the same half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from datamask.quality.words import Words, mix

HALVES = 2
PAIR = np.uint64(0x9E3779B97F4A7C15)
_AFFIX = np.uint64(0xC2B2AE3D27D4EB4F)
_COUNT_BITS = 6  # of a slot's 16; the other ten tell its key from another that falls on the same slot
_STEPS = 4  # a count is kept as its logarithm, so many steps a factor of two
_COUNTS = np.concatenate([[0], 2 ** (np.arange((1 << _COUNT_BITS) - 1) / _STEPS)]).astype(np.float32)


@dataclass(frozen=True)
class Table:
    """Counts by 64-bit key, within 9 %, in a slot of 16 bits each; of keys that meet in one slot the most frequent stays.

    One key in a thousand that is not there is taken for one that is.
    """

    slots: np.ndarray  # (2**k,) uint16

    @classmethod
    def of(cls, keys: np.ndarray) -> Table:
        """Of (n,) uint64 keys, one for each occurrence."""
        found, counts = np.unique(keys, return_counts=True)
        bits = max(10, int(2 * len(found)).bit_length())
        order = np.argsort(counts, kind="stable")
        found, counts = found[order], counts[order]
        level = np.minimum(1 + np.rint(_STEPS * np.log2(counts)), (1 << _COUNT_BITS) - 1).astype(np.uint16)
        slots = np.zeros(1 << bits, dtype=np.uint16)
        slots[_slot(found, bits)] = level | _check(found)  # of several for a slot the last, the most frequent
        return cls(slots)

    def count(self, keys: np.ndarray) -> np.ndarray:
        """(n,) float32 counts, 0 for what is not there."""
        found = self.slots[_slot(keys, len(self.slots).bit_length() - 1)]
        level = found & np.uint16((1 << _COUNT_BITS) - 1)
        level[(found ^ _check(keys)) >> np.uint16(_COUNT_BITS) != 0] = 0
        return _COUNTS[level]


def _slot(keys: np.ndarray, bits: int) -> np.ndarray:
    return (keys >> np.uint64(64 - bits)).astype(np.int64)


def _check(keys: np.ndarray) -> np.ndarray:
    return (keys & np.uint64(0xFFFF >> _COUNT_BITS)).astype(np.uint16) << np.uint16(_COUNT_BITS)


@dataclass(frozen=True)
class Pairs:
    """Two tokens of a document, `apart` places from each other; neighbours where that is 1."""

    place: np.ndarray  # (m,) int64: the first one's place
    apart: int
    words: np.ndarray  # (m,) uint64 keys: both words
    tails: np.ndarray  # (m,) uint64: how the first ends
    heads: np.ndarray  # (m,) uint64: how the second begins
    joints: np.ndarray  # (m,) uint64: both

    @classmethod
    def of(cls, words: Words, apart: int = 1) -> Pairs:
        place = np.arange(max(0, len(words.start) - apart))
        place = place[words.document[: len(place)] == words.document[len(words.start) - len(place) :]]
        tails, heads = words.tails[place], words.heads[place + apart]
        return cls(
            place,
            apart,
            mix(words.hashes[place] * PAIR + words.hashes[place + apart]),
            mix(tails + _AFFIX),
            mix(heads * _AFFIX),
            mix(tails * PAIR + heads),
        )


@dataclass(frozen=True)
class Counts:
    """Of one half of the sample."""

    words: Table
    pairs: Table
    tails: Table
    heads: Table
    joints: Table


TABLES = tuple(field.name for field in fields(Counts))


def halves(words: Words) -> np.ndarray:
    """(documents,) 0 or 1, by the words alone whatever their order."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words.hashes)])
    return (mix(sums[words.first[1:]] - sums[words.first[:-1]]) >> np.uint64(63)).astype(np.int64)


def count(batches: Iterable[Words]) -> tuple[Counts, ...]:
    """The counts of both halves of a sample."""
    held: dict[tuple[int, str], list[np.ndarray]] = {(half, name): [] for half in range(HALVES) for name in TABLES}
    for words in batches:
        pairs, half = Pairs.of(words), halves(words)[words.document]
        keys = {name: getattr(pairs, name if name != "pairs" else "words") for name in TABLES if name != "words"}
        for one in range(HALVES):
            held[one, "words"].append(words.hashes[half == one])
            mine = half[pairs.place] == one
            for name, values in keys.items():
                held[one, name].append(values[mine])
    empty = [np.zeros(0, np.uint64)]
    return tuple(
        Counts(**{name: Table.of(np.concatenate(held.pop((half, name)) or empty)) for name in TABLES})
        for half in range(HALVES)
    )
