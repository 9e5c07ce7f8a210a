"""Which selected documents go into which data file, decided before any text is read.

A stripe is a run of selected documents in the corpus's order, cut just before any dump's file would grow beyond its
bounds. It is written in one pass, as one file for each dump in it: data/<dump>/<stripe>_00000.parquet. So the text is
read once however the dumps are mixed, stripes can be written side by side, and neither their bounds nor their bytes
depend on how many are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

NO_DUMP = "unspecified"  # folder of documents without a dump
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}(?<!\.)")


@dataclass
class Run:
    """A stripe's part of one shard: selected rows `first` to `last` (chunk_ids, both included)."""

    shard: int  # place in the list of shards
    first: int
    last: int


@dataclass
class Stripe:
    number: int
    runs: list[Run] = field(default_factory=list)
    rows: int = 0


def cut(
    selections: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], rows_per_file: int, bytes_per_file: int
) -> Iterator[Stripe]:
    """Stripes such that no dump has more than `rows_per_file` rows or `bytes_per_file` bytes of text in one of them.

    A single longer document has a file of its own.

    :param selections: for each shard in order (chunk_ids ascending, dump codes, bytes of text) of its selected rows;
        a dump has the same code in every shard.
    """
    stripe = Stripe(0)
    held_rows: dict[int, int] = {}
    held_bytes: dict[int, int] = {}
    for shard, (chunk_ids, dumps, sizes) in enumerate(selections):
        start = 0
        while start < len(chunk_ids):
            end = len(chunk_ids)
            for dump in np.unique(dumps[start:]).tolist():
                places = start + np.flatnonzero(dumps[start:] == dump)
                rows = held_rows.get(dump, 0)
                over_rows = np.arange(rows + 1, rows + 1 + len(places)) > rows_per_file
                over_bytes = held_bytes.get(dump, 0) + np.cumsum(sizes[places]) > bytes_per_file
                over = over_rows | over_bytes
                if rows == 0:
                    over[0] = False
                if over.any():
                    end = min(end, int(places[np.argmax(over)]))
            if end > start:
                stripe.runs.append(Run(shard, int(chunk_ids[start]), int(chunk_ids[end - 1])))
                stripe.rows += end - start
                for dump in np.unique(dumps[start:end]).tolist():
                    mine = dumps[start:end] == dump
                    held_rows[dump] = held_rows.get(dump, 0) + int(mine.sum())
                    held_bytes[dump] = held_bytes.get(dump, 0) + int(sizes[start:end][mine].sum())
            if end < len(chunk_ids):
                yield stripe
                stripe = Stripe(stripe.number + 1)
                held_rows, held_bytes = {}, {}
            start = end
    if stripe.rows:
        yield stripe


class Folders:
    """Dump values to codes and folder names; no value, however odd, leads out of data/ or into another's folder."""

    def __init__(self) -> None:
        self.codes: dict[str | None, int] = {}

    def code(self, dump: str | None) -> int:
        return self.codes.setdefault(dump, len(self.codes))

    def names(self) -> dict[str | None, str]:
        """Value: folder name. The same values give the same names, in whatever order they were met."""
        names: dict[str | None, str] = {}
        taken = {NO_DUMP}
        for dump in sorted(value for value in self.codes if value is not None):
            name = dump
            if not _SAFE.fullmatch(dump) or dump.casefold() in taken:  # file systems may not tell upper from lower case
                readable = re.sub(r"[^A-Za-z0-9_+-]+", "-", dump).strip("-")[:80] or "dump"
                name = f"{readable}-{hashlib.sha256(dump.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
            taken.add(name.casefold())
            names[dump] = name
        if None in self.codes:
            names[None] = NO_DUMP
        return names


def file_name(stripe: int, file: int = 0) -> str:
    """FineWeb's names: 000_00000.parquet."""
    return f"{stripe:03d}_{file:05d}.parquet"
