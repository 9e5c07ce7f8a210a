"""A batch under its file's names becomes a batch under ours: chosen, renamed, cast, and every string valid UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from datamask.corpus.columns import FINEWEB, Column, canonical, mend_strings
from datamask.corpus.types import as_released, widened
from datamask.errors import InputError, one_line

EXCERPT = 200  # characters kept of what is quarantined
# why a row is no document, known while reading; empty for every row of a sound file
EXTRA = (pa.field("_reason", pa.string()), pa.field("_excerpt", pa.string()))
Row = TypeVar("Row")
Told = tuple[Row, str | None, str | None, int]  # a row, why it is no document and its beginning then, its size
Rows = tuple[pa.RecordBatch, list[str | None], list[str | None]]  # what a reader gives: rows, reasons, excerpts


def project(
    batch: pa.RecordBatch,
    columns: Sequence[Column],
    schema: pa.Schema,
    reasons: pa.Array | None = None,
    excerpts: pa.Array | None = None,
) -> pa.RecordBatch:
    """`batch` with `schema`'s columns, null where its file has none.

    A text that is not UTF-8 becomes null with `_reason` undecodable_text; in other strings the invalid bytes are
    replaced by U+FFFD.

    :param reasons: the batch's own `_reason` column, if it has one; `excerpts` likewise.
    :raises InputError: a value does not fit `schema`.
    """
    known = {column.name: column for column in columns}
    rows = batch.num_rows
    reasons = reasons if reasons is not None else pa.nulls(rows, pa.string())
    excerpts = excerpts if excerpts is not None else pa.nulls(rows, pa.string())
    arrays: dict[str, pa.Array] = {}
    if "text" in known and {"text", "_reason", "_excerpt"} & {*schema.names}:
        arrays["text"], reasons, excerpts = _text(_at(batch, known["text"]), reasons, excerpts)
    for field in schema:
        if field.name in arrays:
            continue
        column = known.get(field.name)
        if column is None:
            arrays[field.name] = pa.nulls(rows, field.type)
            continue
        try:
            array = _mended(_at(batch, column))
        except pa.ArrowInvalid as error:  # seconds of the year 10**11 are no milliseconds
            raise InputError(
                f"column {field.name!r} has a value that a release cannot hold ({one_line(error)}); "
                f"leave the column out: --set corpus.drop=[{field.name}]"
            ) from error
        if field.name in FINEWEB.names:
            array = canonical(array, field.type, exact=field.name == "id")
        try:
            arrays[field.name] = array if array.type == field.type else widened(array, field.type)
        except pa.ArrowInvalid as error:  # an integer beyond 2**53 is no double
            raise InputError(
                f"column {field.name!r} is {array.type} here and {field.type} in other files, which holds not every "
                f"value ({one_line(error)}); leave the column out: --set corpus.drop=[{field.name}]"
            ) from error
    arrays["_reason"], arrays["_excerpt"] = reasons, excerpts
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _at(batch: pa.RecordBatch, column: Column) -> pa.Array:
    array = batch.column(column.path[0])
    return pc.struct_field(array, list(column.path[1:])) if len(column.path) > 1 else array


def _mended(array: pa.Array) -> pa.Array:
    array = as_released(array)
    if pa.types.is_string(array.type):
        return mend_strings(array)[0]
    if pa.types.is_nested(array.type):
        array.validate(full=True)  # strings inside lists and structs: a file with bad ones fails by name
    return array


def _text(array: pa.Array, reasons: pa.Array, excerpts: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    array = as_released(array)
    if pa.types.is_null(array.type):
        return array.cast(pa.string()), reasons, excerpts
    if pa.types.is_binary(array.type):
        array = array.view(pa.string())
    text, bad = mend_strings(array)
    if bad is None:
        return text, reasons, excerpts
    beginnings = [excerpt(raw) if raw is not None else None for raw in array.view(pa.binary()).to_pylist()]
    mask = pa.array(bad)
    reasons = pc.if_else(mask, "undecodable_text", reasons)
    excerpts = pc.if_else(mask, pa.array(beginnings, pa.string()), excerpts)
    return pc.if_else(mask, pa.scalar(None, pa.string()), text), reasons, excerpts


def excerpt(data: bytes) -> str:
    """The beginning of `data` as text that can be read and stored; bytes that are no UTF-8 as \\x.."""
    return data[: 4 * EXCERPT].decode("utf-8", "backslashreplace")[:EXCERPT]


def in_batches(
    rows: Iterable[Told[Row]], most: int, size: int
) -> Iterator[tuple[list[Row], list[str | None], list[str | None]]]:
    """(rows, reasons, excerpts): at most so many rows together, or up to the one by which they have this size."""
    batch: tuple[list[Row], list[str | None], list[str | None]] = [], [], []
    taken = 0
    for row, reason, begins, own in rows:
        batch[0].append(row)
        batch[1].append(reason)
        batch[2].append(begins)
        taken += own
        if len(batch[0]) >= most or taken >= size:
            yield batch
            batch, taken = ([], [], []), 0
    if batch[0]:
        yield batch
