"""Which documents hold which sampled shingle, laid out on disk in partitions of the hash, so that memory stays flat.

Only what two documents share is kept of a partition: most sampled shingles are seen once in a corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datamask.filter.pair_loops import WIDTH
from datamask.filter.signatures import COARSEST, sample_bound

KEYS = 8  # smallest shingles of a sample, by which a document finds others: at containment 0.6 all 8 miss one in 1,500
PARTITION = 1 << 23  # postings of a partition, about: 100 MB, and 50 to sort a range of them
RANGES = 8  # of the hashes of a partition, which are sorted one after another
POSTING = np.dtype([("hash", np.uint64), ("document", np.uint32)])  # document: its number · 2 + 1 if it is a key
WIDE = np.dtype([("hash", np.uint64), ("document", np.uint64)])  # POSTING of documents of all groups


@dataclass(frozen=True, eq=False)
class SeenDocuments:
    """How much of each document that may have duplicates is sampled, in the order they count as seen: (N,) each, mapped
    from files."""

    scale: np.ndarray  # int8
    sampled: np.ndarray  # (N, COARSEST + 1) uint16: shingles of its sample that a sample of each scale would hold


def postings_of(lengths: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """(H,) POSTING of documents numbered from 0: lengths (n,) of their samples, and their hashes one after another.

    A posting's hash has its halves exchanged: the first bits of a sampled hash say nothing, and so partitions, which
    are ranges of the other half, one after another are ascending.
    """
    found = np.empty(len(hashes), POSTING)
    found["hash"] = hashes << np.uint64(32) | hashes >> np.uint64(32)
    rank = np.arange(len(hashes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found["document"] = 2 * np.repeat(np.arange(len(lengths)), lengths) + (rank < KEYS)
    return found


def sampled(lengths: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """(n, COARSEST + 1) uint16: how many of each sample are within each scale's bound."""
    found = np.empty((len(lengths), COARSEST + 1), np.uint16)
    ends = np.cumsum(lengths)
    for scale, bound in enumerate(sample_bound(np.arange(COARSEST + 1))):
        within = np.append(0, np.cumsum(hashes <= bound))
        found[:, scale] = np.minimum(within[ends] - within[ends - lengths], 0xFFFF)
    return found


def run_starts(values: np.ndarray) -> np.ndarray:
    """(R,) int64: where each run of equal values (n,) begins."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])


def different(hashes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(hashes ascending, each once; how many different values, int64, each has) of hashes and their values, (n,), which
    have WIDTH bits at most."""
    each, run = np.unique(hashes, return_inverse=True)
    pairs = np.sort(run.astype(np.uint64) << np.uint64(WIDTH) | values.astype(np.uint64))
    owners = pairs[run_starts(pairs)] >> np.uint64(WIDTH)
    return each, np.bincount(owners.astype(np.int64), minlength=len(each))


@dataclass(frozen=True, eq=False)
class Shared:
    """A partition's shingles that several documents sampled, shingle by shingle; of one, longest document first."""

    hash: np.ndarray  # (P,) uint64, ascending
    document: np.ndarray  # (P,) int64
    key: np.ndarray  # (P,) bool

    @classmethod
    def joined(cls, parts: Sequence[Shared]) -> Shared:
        """Of ranges of a partition, in their order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("hash", "document", "key")))

    def postings(self) -> np.ndarray:
        """(P,) WIDE, the document without a flag."""
        found = np.empty(len(self.hash), WIDE)
        found["hash"], found["document"] = self.hash, self.document
        return found


def shared_of(found: np.ndarray, windows: np.ndarray) -> Shared:
    """Of a partition's WIDE; windows (N,): the documents' lengths. Where a number needs more than 32 bits with its
    flag, documents of more letters than the others can count are of one length."""
    ordered = found[np.argsort(found["hash"])]
    lengths = np.diff(run_starts(ordered["hash"]), append=len(ordered))
    several = ordered[np.repeat(lengths > 1, lengths)]
    hashes, document = several["hash"], several["document"]
    # of a shingle, the longest document first, then in their order
    bits = max(32, (2 * len(windows)).bit_length())
    longest = np.uint64((1 << (64 - bits)) - 1)
    shorter = longest - np.minimum(windows[document >> np.uint64(1)].astype(np.uint64), longest)
    ranked = shorter << np.uint64(bits) | document
    flagged = ranked[np.lexsort((ranked, hashes))] & np.uint64((1 << bits) - 1)
    return Shared(hashes, (flagged >> np.uint64(1)).astype(np.int64), (flagged & np.uint64(1)).astype(bool))
