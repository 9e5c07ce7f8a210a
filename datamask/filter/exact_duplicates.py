"""Exact duplicates over all shards, by parts of the texts' hashes: no worker holds more than a part or a group.

publish      map over groups of shards: writes the hashes of a group's documents, dealt to parts
find         map over parts: the documents of a part that repeat another, dealt to groups
read         a group's documents that repeat another
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.maps import gather, partition_of, read_arrays, records_of, write_arrays, write_dealt

PART_ROWS = 1 << 18  # documents of a part: 8 MB, and some times that to sort them
# the hash; the document: its shard's place in the group, its place among the shard's documents
TEXT = np.dtype([("high", "<u8"), ("low", "<u8"), ("wear", "<i4"), ("shard", "<i4"), ("row", "<i4")])
PLACE = np.dtype([("shard", "<i4"), ("row", "<i4")])
CODES, TEXTS = "codes-{}.npz", "texts-{}"  # files of a group, named by its key: what filters say, the texts' hashes


def hash_halves(hashes: pa.ChunkedArray) -> np.ndarray:
    """(n, 2) uint64: the two halves of texts' hashes, none null."""
    joined: bytes = b"".join(hashes.to_pylist())
    return np.frombuffer(joined, "<u8").reshape(-1, 2)


def repeats(ordered: np.ndarray) -> np.ndarray:
    """(n,) bool: which of these records, ordered by `high` and `low`, have the hash of the one before."""
    same = (ordered["high"][1:] == ordered["high"][:-1]) & (ordered["low"][1:] == ordered["low"][:-1])
    return np.append(False, same)[: len(ordered)]


def text_records(shard: int, rows: pa.Table, among: np.ndarray) -> np.ndarray:
    """(n,) TEXT of a shard's documents; rows: text_hash and wear; among (rows,) bool: which of them are compared."""
    chosen = np.flatnonzero(among)
    high, low = hash_halves(rows["text_hash"].take(pa.array(chosen))).T
    found = records_of(TEXT, high=high, low=low, wear=rows["wear"].to_numpy()[chosen], row=chosen)
    found["shard"] = shard
    return found


@dataclass(frozen=True)
class ExactDuplicates:
    """The filter `filter.exact_duplicates`, with the files between its rounds. What a group says of itself is kept for
    the next run, under the group's key."""

    name: ClassVar[str] = "exact_duplicate"

    folder: str
    kept: str
    keys: tuple[str, ...]  # of the groups
    parts: int  # 0: exact duplicates are not asked for

    def looked_at(self, group: int) -> bool:
        """Whether a group is published already."""
        return storage.exists(self._codes(group))

    def publish(
        self, group: int, codes: Sequence[np.ndarray], chunk_ids: Sequence[np.ndarray], passed: Sequence[np.ndarray]
    ) -> None:
        """A group's documents, shard by shard: what the other filters said, chunk_id, and the texts to compare."""
        if self.parts:
            every = np.concatenate(passed)
            write_dealt(self._texts(group), every, partition_of(every["high"], self.parts), self.parts)
        ends = np.cumsum([len(each) for each in codes])
        write_arrays(self._codes(group), codes=np.concatenate(codes), chunk_id=np.concatenate(chunk_ids), ends=ends)

    def read(self, group: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each shard of a group: chunk_id, codes, and the places of the documents that repeat another."""
        codes, chunk_id, ends = read_arrays(self._codes(group), "codes", "chunk_id", "ends")
        repeated = gather([self._repeated(part) for part in range(self.parts)], PLACE, group)
        for shard, end in enumerate(ends.tolist()):
            start = int(ends[shard - 1]) if shard else 0
            yield chunk_id[start:end], codes[start:end], np.sort(repeated["row"][repeated["shard"] == shard])

    def find(self, part: int) -> None:
        """Publishes which documents of a part repeat another: of equal texts the least worn stays, or the first."""
        if storage.exists(self._repeated(part)):
            return
        dealt = [gather([self._texts(group)], TEXT, part) for group in range(len(self.keys))]
        every = np.concatenate([np.zeros(0, TEXT), *dealt])
        group = np.repeat(np.arange(len(dealt)), [len(each) for each in dealt])
        # in the order of the groups, shards and rows, which a stable sort keeps
        order = np.lexsort((every["wear"], every["low"], every["high"]))
        every, group = every[order], group[order]
        again = repeats(every)
        places = records_of(PLACE, shard=every["shard"][again], row=every["row"][again])
        write_dealt(self._repeated(part), places, group[again], len(self.keys))

    def _codes(self, group: int) -> str:
        return storage.join(self.kept, CODES.format(self.keys[group]))

    def _texts(self, group: int) -> str:
        return storage.join(self.kept, TEXTS.format(self.keys[group]))

    def _repeated(self, part: int) -> str:
        return storage.join(self.folder, f"repeated-{part}")
