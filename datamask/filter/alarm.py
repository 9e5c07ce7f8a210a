"""Whether duplicates take far more of one language or source than they should: a sign of a wrong setting or encoder."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.read import corpus_schema, read_documents
from datamask.errors import InputError
from datamask.stages import ShardFiles

COLUMNS = ("language", "source")  # of the corpus, where it has them
LEAST = 20  # documents of a group, below which a share says little
NAMED = 5  # groups in a message, worst first

_log = logging.getLogger(__name__)


def alarm_columns(shards: Sequence[Shard], config: Config) -> tuple[tuple[str, ...], pa.Schema]:
    """Those of COLUMNS that the corpus has, and its schema."""
    with_parts = [shard for shard in shards if shard.parts]
    schema = corpus_schema(with_parts, config) if with_parts else pa.schema([])
    return tuple(name for name in COLUMNS if name in schema.names), schema


def read_groups(
    files: ShardFiles, chunk_id: np.ndarray, columns: Sequence[str], schema: pa.Schema | None, config: Config
) -> Iterator[tuple[str, np.ndarray]]:
    """(column, values (n,) str of these documents; null: ""). chunk_id: (n,)."""
    batches = list(read_documents(files, config, columns, schema=schema)) if columns and len(chunk_id) else []
    table = pa.Table.from_batches(batches) if batches else None
    for name in columns:
        if table is None:
            yield name, np.zeros(0, dtype=str)
            continue
        values = pc.fill_null(table[name].cast(pa.string()), "").to_numpy(zero_copy_only=False)
        yield name, values[np.searchsorted(table["chunk_id"].to_numpy(), chunk_id)].astype(str)


class Losses:
    """Documents of each group, and those of them that fall."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, tuple[int, int]]] = {}

    def add(self, column: str, values: np.ndarray, fallen: np.ndarray) -> None:
        """Some documents: values (n,) str, fallen (n,) bool."""
        unique, place = np.unique(values, return_inverse=True)
        counts = np.bincount(place, minlength=len(unique)), np.bincount(place, fallen, minlength=len(unique))
        for value, count, lost in zip(unique.tolist(), *(column.tolist() for column in counts), strict=True):
            self._count(column, value, count, int(lost))

    def join(self, other: Losses) -> None:
        """The documents of another as well."""
        for column, groups in other:
            for value, count, lost in groups:
                self._count(column, value, count, lost)

    def _count(self, column: str, value: str, count: int, lost: int) -> None:
        known = self._counts.setdefault(column, {})
        before = known.get(value, (0, 0))
        known[value] = (before[0] + count, before[1] + lost)

    def __iter__(self) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
        """(column, its values with documents and fallen ones, sorted)."""
        for column, counts in self._counts.items():
            yield column, [(value, *counts[value]) for value in sorted(counts)]


def raise_alarm(losses: Losses, share: float, do: str) -> list[str]:
    """A sentence for each group of which more than `share` falls, worst first; logged.

    :raises InputError: there is one, and `do` is "stop".
    """
    said = []
    for name, groups in losses:
        over = [group for group in groups if group[0] and group[1] >= LEAST and group[2] > share * group[1]]
        for value, count, lost in sorted(over, key=lambda group: (-group[2] / group[1], group[0])):
            said.append((lost / count, f"{name} {value}: {lost} of {count} documents"))
    sentences = [text for _, text in sorted(said, key=lambda item: -item[0])]
    if not sentences:
        return []
    message = (
        f"duplicates take over {share:.0%} of {'; '.join(sentences[:NAMED])}"
        + (f"; and of {len(sentences) - NAMED} other groups" if len(sentences) > NAMED else "")
        + ". Look at pairs in the report; if they are none, raise duplicates.jaccard or duplicates.containment; "
        "if they are, raise duplicates.alarm_share"
    )
    if do == "stop":
        raise InputError(message)
    _log.warning("%s", message)
    return sentences
