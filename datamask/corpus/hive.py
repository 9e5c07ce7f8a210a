"""Columns that folders name: `dump=CC-MAIN-2024-10/language=en/` says dump and language of every row below.

As pyarrow, DuckDB and Spark read them: %-escapes are decoded, __HIVE_DEFAULT_PARTITION__ is null, the folder's value
holds where the file has the column too. A column is of integers where all its values are, without leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from datamask.corpus.plan import Part, Value

NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")


def folder_values(path: str) -> dict[str, str | None]:
    """What the folders of a file's path say, outermost first; the text is never taken from there."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and name and value.strip("="):
            values[unquote(name)] = None if value == NULL else unquote(value)
    values.pop("text", None)
    return values


def typed_values(values: Sequence[Mapping[str, str | None]]) -> list[tuple[tuple[str, Value], ...]]:
    """The values of each file, as integers in columns that hold nothing else."""
    texts = {name for each in values for name, value in each.items() if value and not _WHOLE.fullmatch(value)}
    return [
        tuple((name, value if value is None or name in texts else int(value)) for name, value in each.items())
        for each in values
    ]


def with_fields(schema: pa.Schema, part: Part) -> pa.Schema:
    """A file's schema with the columns that its folders name."""
    own = dict(part.read_as.folders)
    if not own:
        return schema
    return pa.schema(
        [*(field for field in schema if field.name not in own), *((name, _type(value)) for name, value in own.items())],
        metadata=schema.metadata,
    )


def with_values(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    """A file's rows with the values that its folders give."""
    own = dict(part.read_as.folders)
    if not own:
        return batch
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays |= {name: pa.repeat(pa.scalar(value, _type(value)), batch.num_rows) for name, value in own.items()}
    return pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])


def _type(value: Value) -> pa.DataType:
    return pa.null() if value is None else pa.int64() if isinstance(value, int) else pa.string()
