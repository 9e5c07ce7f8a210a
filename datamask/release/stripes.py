"""Which selected documents go into which data file, decided before any text is read.

A stripe is a run of selected documents in the corpus's order. It is written in one pass, as one file for each dump in
it: data/<dump>/<stripe>_00000.parquet. So the text is read once however the dumps are mixed, stripes can be written
side by side, and neither their bounds nor their bytes depend on how many are.

A stripe ends just before any dump's file would grow beyond its bounds, and where a new dump begins once there is
enough in it: a corpus that lies dump by dump, as FineWeb does, has a stripe per dump, or several.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

ENOUGH = 8  # a stripe with an eighth of a file's rows or bytes ends where a new dump begins
NO_DUMP = "unspecified"  # folder of documents without a dump
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}(?<!\.)")


@dataclass
class RowRange:
    """A stripe's part of one shard: selected rows `first` to `last` (chunk_ids, both included)."""

    shard: int  # place in the list of shards
    first: int
    last: int


@dataclass
class Stripe:
    """The runs of documents that are written as one unit."""

    number: int
    runs: list[RowRange] = field(default_factory=list)
    rows: int = 0


def cut_stripes(
    selections: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], rows_per_file: int, bytes_per_file: int
) -> Iterator[Stripe]:
    """Stripes such that no dump has more than `rows_per_file` rows or `bytes_per_file` bytes of text in one of them.

    A single longer document has a file of its own.

    :param selections: for each shard in order (chunk_ids ascending, dump codes, bytes of text) of its selected rows;
        a dump has the same code in every shard.
    """
    stripe, held = Stripe(0), _Held(rows_per_file, bytes_per_file)
    for shard, (chunk_ids, dumps, sizes) in enumerate(selections):
        start = 0
        while start < len(chunk_ids):
            end = held.end(dumps[start:], sizes[start:])
            if end:
                stop = start + end
                stripe.runs.append(RowRange(shard, int(chunk_ids[start]), int(chunk_ids[stop - 1])))
                stripe.rows += end
                held.add(dumps[start:stop], sizes[start:stop])
                start = stop
            if start < len(chunk_ids):
                yield stripe
                stripe, held = Stripe(stripe.number + 1), _Held(rows_per_file, bytes_per_file)
    if stripe.rows:
        yield stripe


class _Held:
    """What a stripe holds of each dump so far."""

    def __init__(self, rows_per_file: int, bytes_per_file: int) -> None:
        self.most = rows_per_file, bytes_per_file
        self.held: dict[int, tuple[int, int]] = {}  # dump: rows, bytes

    def end(self, dumps: np.ndarray, sizes: np.ndarray) -> int:
        """How many of these rows the stripe still takes."""
        end = len(dumps)
        enough_rows, enough_bytes = (most / ENOUGH for most in self.most)
        rows_before, bytes_before = (
            (sum(counts) for counts in zip(*self.held.values(), strict=True)) if self.held else (0, 0)
        )
        bytes_at = bytes_before + np.cumsum(sizes) - sizes  # held before each row
        for dump in np.unique(dumps).tolist():
            places = np.flatnonzero(dumps == dump)
            rows, size = self.held.get(dump, (0, 0))
            over = np.arange(rows + 1, rows + 1 + len(places)) > self.most[0]
            over |= size + np.cumsum(sizes[places]) > self.most[1]
            if not rows:
                first = int(places[0])
                over[0] = rows_before + first >= enough_rows or bytes_at[first] >= enough_bytes
            if over.any():
                end = min(end, int(places[np.argmax(over)]))
        return end

    def add(self, dumps: np.ndarray, sizes: np.ndarray) -> None:
        for dump in np.unique(dumps).tolist():
            mine = dumps == dump
            rows, size = self.held.get(dump, (0, 0))
            self.held[dump] = rows + int(mine.sum()), size + int(sizes[mine].sum())


def folder_names(dumps: Iterable[str | None]) -> dict[str | None, str]:
    """Value: folder name; no value, however odd, leads out of data/ or into another's folder.

    The same values give the same names, in whatever order they come.
    """
    values = set(dumps)
    names: dict[str | None, str] = {None: NO_DUMP} if None in values else {}
    taken = {NO_DUMP}
    for dump in sorted(value for value in values if value is not None):
        name, said = dump, dump
        while not _SAFE.fullmatch(name) or name.casefold() in taken:  # file systems may not tell upper from lower case
            readable = re.sub(r"[^A-Za-z0-9_+-]+", "-", dump).strip("-+_")[:80] or "dump"
            name = f"{readable}-{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
            said += "/"  # another value may be called as this one's folder would be
        taken.add(name.casefold())
        names[dump] = name
    return names
