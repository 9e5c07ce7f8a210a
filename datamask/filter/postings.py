"""Which documents hold which sampled shingle, laid out on disk in partitions of the hash, so that memory stays flat.

Only what two documents share is kept of a partition: most sampled shingles are seen once in a corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datamask.filter.signatures import COARSEST, bound
from datamask.storage import storage_errors

KEYS = 8  # smallest shingles of a sample, by which a document finds others: at containment 0.6 all 8 miss one in 1,500
PARTITION = 1 << 22  # postings of a partition, about: 50 MB, and twice as much to sort them
POSTING = np.dtype([("hash", np.uint64), ("document", np.uint32)])  # document: its number · 2 + 1 if it is a key


@dataclass(frozen=True, eq=False)
class Documents:
    """What is held in memory of each document that may have duplicates, in the order they count as seen: (N,) each."""

    shard: np.ndarray  # int32: number of its shard
    chunk_id: np.ndarray  # int64
    windows: np.ndarray  # int64: its length in shingles
    scale: np.ndarray  # int8
    sampled: np.ndarray  # (N, COARSEST + 1) uint16: shingles of its sample that a sample of each scale would hold
    draw: np.ndarray  # uint64: a random number that depends on its text alone
    fixed: int = 0  # so many, the first, are of earlier releases: they stay whatever is found

    def __len__(self) -> int:
        return len(self.shard)


class Writer:
    """Puts the samples of documents into partitions."""

    def __init__(self, folder: str, partitions: int) -> None:
        self._folder = Path(folder)
        self.partitions = partitions

    def add(self, first: int, lengths: np.ndarray, hashes: np.ndarray) -> None:
        """Samples of documents numbered from `first` on: lengths (n,), and their hashes one after another."""
        rank = np.arange(len(hashes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        found = np.empty(len(hashes), POSTING)
        found["hash"] = hashes
        found["document"] = np.repeat(np.arange(first, first + len(lengths)), lengths) * 2 + (rank < KEYS)
        partition = _partition(hashes, self.partitions)
        order = np.argsort(partition, kind="stable")
        cuts = np.searchsorted(partition[order], np.arange(self.partitions + 1))
        with storage_errors(str(self._folder), "write"):
            for number in range(self.partitions):
                part = found[order[cuts[number] : cuts[number + 1]]]
                if len(part):
                    with (self._folder / f"postings-{number}").open("ab") as file:
                        file.write(part.tobytes())


def _partition(hashes: np.ndarray, partitions: int) -> np.ndarray:
    mixed = (hashes & np.uint64(0xFFFF_FFFF)) * np.uint64(partitions)
    return (mixed >> np.uint64(32)).astype(np.int32)


def sampled(lengths: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """(n, COARSEST + 1) uint16: how many of each sample are within each scale's bound."""
    before = np.zeros(len(hashes) + 1, np.int64)
    ends = np.cumsum(lengths)
    found = np.empty((len(lengths), COARSEST + 1), np.uint16)
    for scale in range(COARSEST + 1):
        np.cumsum(hashes <= bound(np.array([scale]))[0], out=before[1:])
        found[:, scale] = np.minimum(before[ends] - before[ends - lengths], np.iinfo(np.uint16).max)
    return found


@dataclass(frozen=True, eq=False)
class Shared:
    """A partition's shingles that several documents sampled, shingle by shingle; of one, longest document first."""

    shingle: np.ndarray  # (P,) int32: numbered from 0
    document: np.ndarray  # (P,) int32
    key: np.ndarray  # (P,) bool

    def starts(self) -> np.ndarray:
        """Where each shingle's postings begin."""
        return np.flatnonzero(np.diff(self.shingle, prepend=-1))


def read_shared(folder: str, number: int, windows: np.ndarray) -> Shared:
    """A partition; windows (N,): the documents' lengths. What is read once is there in order from then on."""
    path, ready = Path(folder) / f"postings-{number}", Path(folder) / f"postings-{number}.npz"
    if ready.exists():
        with np.load(ready) as held:
            return Shared(held["shingle"], held["document"], held["key"])
    found = np.fromfile(path, POSTING) if path.exists() else np.zeros(0, POSTING)
    order = np.argsort(found["hash"])
    hashes, document = found["hash"][order], found["document"][order]
    new = np.ones(len(hashes), bool)
    new[1:] = hashes[1:] != hashes[:-1]
    several = ~(new & np.append(new[1:], True))
    shingle = (np.cumsum(new[several]) - 1).astype(np.int32)
    key = (document[several] & 1).astype(bool)
    document = (document[several] >> 1).astype(np.int32)
    order = np.lexsort((document, -windows[document], shingle))
    shared = Shared(shingle[order], document[order], key[order])
    with storage_errors(folder, "write"):
        np.savez(ready, shingle=shared.shingle, document=shared.document, key=shared.key)
        path.unlink(missing_ok=True)
    return shared


def partitions_of(folder: str, count: int, windows: np.ndarray) -> Iterator[Shared]:
    for number in range(count):
        yield read_shared(folder, number, windows)
