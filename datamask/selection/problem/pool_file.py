"""A file of embedded, scored documents in DATAMASK's layout (chunk_id, quality_score, feature_arr), and its mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from datamask import storage
from datamask.config import ResolvedSelect
from datamask.errors import ConfigError, InputError, nearest, some
from datamask.selection.metrics import pool_columns
from datamask.selection.result import Selection
from datamask.selection.sharded.candidates import duplicate_ids, read_features

TOKENS = "token_count"


@dataclass(frozen=True, eq=False)
class PoolFile:
    """chunk_id (N,) as in the file; features (N, d); quality (N, Q); tokens (N,) or None; groups: column -> (N,)."""

    chunk_id: pa.ChunkedArray
    features: np.ndarray
    quality: np.ndarray
    quality_names: tuple[str, ...]
    quality_weights: tuple[float, ...]
    tokens: np.ndarray | None
    groups: dict[str, np.ndarray]


def read_pool(url: str, settings: ResolvedSelect, quality: Sequence[str] = ("quality_score",)) -> PoolFile:
    """Reads the columns that the settings need. quality: names of columns, or name=weight.

    :raises InputError: no such file, not parquet, no rows, a column is missing or not numbers, a chunk_id comes twice,
        features of two widths.
    :raises ConfigError: a weight is not a number.
    """
    weights = dict(_weight(item) for item in quality)
    columns = pool_columns(settings)
    needs_tokens = settings.in_tokens or settings.length_tolerance is not None
    wanted = ["chunk_id", "feature_arr", *weights, *([TOKENS] if needs_tokens else []), *columns]
    table = _read(url, list(dict.fromkeys(wanted)))
    if not table.num_rows:
        raise InputError(f"{url} has no rows")
    repeated = duplicate_ids(table["chunk_id"].to_numpy())
    if len(repeated):
        raise InputError(
            f"{url}: {len(repeated)} chunk_id occur more than once ({some(repeated, 5)}); each document needs its own"
        )
    return PoolFile(
        chunk_id=table["chunk_id"],
        features=read_features(table, url),
        quality=np.stack([_numbers(table, name, url) for name in weights], axis=1),
        quality_names=tuple(weights),
        quality_weights=tuple(weights.values()),
        tokens=_numbers(table, TOKENS, url) if needs_tokens else None,
        groups={name: table[name].cast(pa.string()).fill_null("").to_numpy() for name in columns},
    )


def write_mask(url: str, pool: PoolFile, selection: Selection, facts: dict[str, Any]) -> None:
    """Publishes chunk_id, selected, probability, and repeat where documents may be repeated, in the input's order.

    facts: for the file's metadata.
    """
    fields = [("chunk_id", pool.chunk_id.type), ("selected", pa.bool_()), ("probability", pa.float32())]
    table = pa.table([pool.chunk_id, selection.selected, selection.probability], schema=pa.schema(fields))
    if selection.repeat is not None:
        table = table.append_column("repeat", pa.array(selection.repeat))
    storage.write_output(url, storage.key("select", facts), table.schema, [table], lambda: facts)


def columns_of(url: str) -> list[str]:
    """The names of the file's columns.

    :raises InputError: no such file, or not parquet.
    """
    with _opened(url) as file:
        return list(file.schema_arrow.names)


def _read(url: str, wanted: list[str]) -> pa.Table:
    with _opened(url) as file:
        columns = file.schema_arrow.names
        missing = [name for name in wanted if name not in columns]
        if not missing:
            return file.read(columns=wanted)
    name = missing[0]
    raise InputError(f"{url} has no column {name}{nearest(name, columns)} (found: {', '.join(columns)})")


@contextmanager
def _opened(url: str) -> Iterator[pa.parquet.ParquetFile]:
    try:
        with storage.open_parquet(url) as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"no such file: {url}") from error
    except IsADirectoryError as error:
        raise InputError(
            f"{url} is a folder; --input takes one parquet file (a whole corpus: datamask curate)"
        ) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f"{url} is not a parquet file that can be read: {' '.join(str(error).split())[:200]}"
        ) from error


def _weight(item: str) -> tuple[str, float]:
    name, equals, weight = item.partition("=")
    try:
        return name, float(weight) if equals else 1.0
    except ValueError as error:
        raise ConfigError(f"--quality {item}: expected a column, or column=weight") from error


def _numbers(table: pa.Table, name: str, url: str) -> np.ndarray:
    column = table[name]
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InputError(f"{url}: column {name} is {column.type}; it must hold numbers")
    if column.null_count:
        first = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(
            f"{url}: {column.null_count} rows have no {name} (the first: row {first}); score them or leave them out"
        )
    return column.to_numpy().astype(np.float64)
