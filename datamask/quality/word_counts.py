"""How often words, and pairs of words, occur in each half of a sample of the pool.

A document is measured by the half that the hash of its words keeps it out of (two-fold cross-fitting): no document is
judged by counts that have seen it, and a copy of it falls into the same half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from datamask.compiling import compiled
from datamask.text.batch_words import BatchWords
from datamask.text.code_points import BASE, mix_hash

HALVES = 2
PAIR = BASE  # factor of the first of two hashes
BEGINNING = 500  # words by which a document's half is chosen
_COUNT_BITS = 6  # of a slot's 16; the other ten tell its key from another that falls on the same slot
_STEPS = 4  # a count is kept as its logarithm, so many steps a factor of two
_COUNTS = np.concatenate([[0], 2 ** (np.arange((1 << _COUNT_BITS) - 1) / _STEPS)]).astype(np.float32)


@dataclass(frozen=True)
class CountTable:
    """Counts by 64-bit key in each half, within 9 %, in a slot of 16 bits each.

    Of keys that meet in one slot the most frequent stays. One key in a thousand that is not there is taken for one
    that is.
    """

    slots: np.ndarray  # (HALVES, 2**k) uint16

    @classmethod
    def of(cls, keys: Sequence[np.ndarray]) -> CountTable:
        """Of each half's (n,) uint64 keys, one for each occurrence."""
        distinct = [np.unique(half, return_counts=True) for half in keys]
        bits = max(10, int(2 * max(len(found) for found, _ in distinct)).bit_length())
        slots = np.zeros((HALVES, 1 << bits), dtype=np.uint16)
        for half, (found, counts) in enumerate(distinct):
            order = np.argsort(counts, kind="stable")
            found, counts = found[order], counts[order]
            level = np.minimum(1 + np.rint(_STEPS * np.log2(counts)), (1 << _COUNT_BITS) - 1).astype(np.uint16)
            check = (found & np.uint64(0xFFFF >> _COUNT_BITS)).astype(np.uint16) << np.uint16(_COUNT_BITS)
            slots[half, found >> np.uint64(64 - bits)] = level | check  # of several for a slot the last, most frequent
        return cls(slots)

    @property
    def places(self) -> tuple[np.ndarray, np.uint64, np.ndarray]:
        """What the loops look a key up in: slots, by how many bits a key is shifted, what counts stand for."""
        return self.slots, np.uint64(65 - self.slots.shape[1].bit_length()), _COUNTS

    def of_documents(self, keys: np.ndarray, first: np.ndarray, half: np.ndarray) -> np.ndarray:
        """(tokens,) float32 counts of (tokens,) uint64 keys, 0 for what is not there: document d's, from first[d] to
        first[d + 1], in its half (documents,)."""
        found = np.empty(len(keys), np.float32)
        look_up_all(*self.places, keys, first, half, found)
        return found


@dataclass(frozen=True)
class NgramCounts:
    """What was counted in the sample."""

    words: CountTable
    pairs: CountTable  # of words
    tails: CountTable  # how words end
    heads: CountTable  # how words begin
    joints: CountTable  # how one ends and the next begins


TABLES = tuple(field.name for field in fields(NgramCounts))


def halves(words: BatchWords) -> np.ndarray:
    """(documents,) 0 or 1, by the first BEGINNING words whatever their order: a sample may hold no more of it."""
    sums = np.append(np.uint64(0), np.cumsum(words.hashes))
    first, last = words.first[:-1], words.first[1:]
    return (mix_hash(sums[np.minimum(first + BEGINNING, last)] - sums[first]) >> np.uint64(63)).astype(np.int64)


def count_ngrams_by_half(batches: Iterable[BatchWords]) -> NgramCounts:
    """The counts of both halves of a sample."""
    held: dict[str, list[list[np.ndarray]]] = {
        name: [[np.zeros(0, np.uint64)] for _ in range(HALVES)] for name in TABLES
    }
    for words in batches:
        document, half = words.document, halves(words)[words.document]
        place = np.flatnonzero(document[:-1] == document[1:])
        found = {"words": (words.hashes, half), "tails": (words.tails, half), "heads": (words.heads, half)}
        for name, left, right in (("pairs", words.hashes, words.hashes), ("joints", words.tails, words.heads)):
            found[name] = neighbours(left, right)[place], half[place]
        for name, (keys, own) in found.items():
            for one in range(HALVES):
                held[name][one].append(keys[own == one])
    return NgramCounts(**{name: CountTable.of([np.concatenate(half) for half in held.pop(name)]) for name in TABLES})


def neighbours(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(tokens,) uint64: the key of each token's `left` and the next one's `right`; the last has none."""
    return np.append(mix_hash(left[:-1] * PAIR + right[1:]), np.zeros(min(len(left), 1), np.uint64))


@compiled
def counted(slots, shift, counts, key):  # type: ignore[no-untyped-def]
    """The count of one key in its half's slots."""
    held = slots[np.int64(key >> shift)]
    same = (held >> np.uint16(6)) == np.uint16(key & np.uint64(0x3FF))
    return counts[np.int64(held & np.uint16(63)) * np.int64(same)]  # without a branch, which nobody could foretell


@compiled
def look_up_all(slots, shift, counts, keys, first, half, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) float32 with the counts of keys (n,), document d's from first[d] to first[d + 1], in its half
    (documents,); see `CountTable`.

    slots: (halves, 2**k) uint16; shift: 64 − k; counts: (64,).
    """
    for document in range(len(first) - 1):
        mine = slots[half[document]]
        for at in range(first[document], first[document + 1]):
            found[at] = counted(mine, shift, counts, keys[at])
