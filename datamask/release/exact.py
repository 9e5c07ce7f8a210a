"""Exact duplicates over all shards, by parts of the texts' hashes: nobody holds more than a part, or a group of shards.

publish      a group of shards lays the hashes of its documents out by part
find         a part of the hashes, from all groups: all but one of each text, laid out by group
read         a group's documents that are repeated
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.maps import deal, gather, read_arrays, write_arrays

PART_ROWS = 1 << 18  # documents of a part: 8 MB, and some times that to sort them
TEXT = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("wear", "<i4"), ("group", "<i4"), ("shard", "<i4"), ("row", "<i4")]
)  # the hash; the document: a group of shards, the shard's place in it, the place among the shard's documents
PLACE = np.dtype([("shard", "<i4"), ("row", "<i4")])


def parts_of(rows: int) -> int:
    """How many parts the hashes of so many documents are dealt in."""
    return max(1, -(-rows // PART_ROWS))


def texts(group: int, shard: int, rows: pa.Table, among: np.ndarray) -> np.ndarray:
    """(n,) TEXT of a shard's documents; rows: text_hash and wear; among (rows,) bool: which of them are compared."""
    chosen = np.flatnonzero(among)
    found = np.zeros(len(chosen), TEXT)
    hashes = rows["text_hash"].combine_chunks().take(pa.array(chosen))
    hashes = hashes.chunk(0) if isinstance(hashes, pa.ChunkedArray) else hashes
    if len(chosen):
        both = np.frombuffer(hashes.cast(pa.binary(16)).buffers()[1], "<u8", 2 * len(chosen), 16 * hashes.offset)
        found["high"], found["low"] = both[::2], both[1::2]
    found["wear"] = rows["wear"].to_numpy()[chosen]
    found["group"], found["shard"], found["row"] = group, shard, chosen
    return found


@dataclass(frozen=True)
class Exchange:
    """The files between the rounds."""

    folder: str
    groups: int
    parts: int  # 0: exact duplicates are not asked for

    def looked_at(self, group: int) -> bool:
        return storage.exists(self._codes(group))

    def publish(
        self, group: int, codes: Sequence[np.ndarray], chunk_ids: Sequence[np.ndarray], passed: Sequence[np.ndarray]
    ) -> None:
        """A group's documents, shard by shard: what the other filters said, chunk_id, and the texts to compare."""
        if self.parts:
            every = np.concatenate(passed)
            part = ((every["high"] >> np.uint64(32)) * np.uint64(self.parts)) >> np.uint64(32)
            deal(self._texts(group), every, part.astype(np.int64), self.parts)
        ends = np.cumsum([len(each) for each in codes])
        write_arrays(self._codes(group), codes=np.concatenate(codes), chunk_id=np.concatenate(chunk_ids), ends=ends)

    def read(self, group: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each shard of a group: chunk_id, codes, and the places of the documents that repeat another."""
        codes, chunk_id, ends = read_arrays(self._codes(group), "codes", "chunk_id", "ends")
        repeated = gather([self._repeated(part) for part in range(self.parts)], PLACE, group)
        for shard, end in enumerate(ends.tolist()):
            start = int(ends[shard - 1]) if shard else 0
            yield chunk_id[start:end], codes[start:end], np.sort(repeated["row"][repeated["shard"] == shard])

    def texts_of(self, part: int) -> np.ndarray:
        return gather([self._texts(group) for group in range(self.groups)], TEXT, part)

    def found(self, part: int) -> bool:
        return storage.exists(self._repeated(part))

    def publish_repeated(self, part: int, repeated: np.ndarray) -> None:
        places = np.zeros(len(repeated), PLACE)
        places["shard"], places["row"] = repeated["shard"], repeated["row"]
        deal(self._repeated(part), places, repeated["group"], self.groups)

    def _codes(self, group: int) -> str:
        return storage.join(self.folder, f"codes-{group}.npz")

    def _texts(self, group: int) -> str:
        return storage.join(self.folder, f"texts-{group}")

    def _repeated(self, part: int) -> str:
        return storage.join(self.folder, f"repeated-{part}")


def find(exchange: Exchange, part: int) -> None:
    """Publishes which documents of a part repeat another: of equal texts the least worn stays, or the first."""
    if exchange.found(part):
        return
    every = exchange.texts_of(part)  # in the order of the groups, shards and rows, which a stable sort keeps
    order = np.lexsort((every["wear"], every["low"], every["high"]))
    every = every[order]
    repeats = np.zeros(len(every), bool)
    repeats[1:] = (every["high"][1:] == every["high"][:-1]) & (every["low"][1:] == every["low"][:-1])
    exchange.publish_repeated(part, every[repeats])
