"""CSV and TSV through pyarrow: a header line, quoted fields with line breaks, every column as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import csv

from datamask.corpus.columns import mend_strings
from datamask.corpus.inputs import damage, open_stream
from datamask.corpus.plan import Part
from datamask.errors import InputError

BLOCK_BYTES = 32 << 20  # a single row may be so large


def header(part: Part) -> pa.Schema:
    """The file's columns, all strings.

    :raises InputError: the file has no header or is no CSV.
    """
    for batch, _ in _read(part, None):
        return pa.schema([(name, pa.string()) for name in batch.schema.names])
    raise InputError(f"{part.path}: no header line")


def batches(part: Part, schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
    """(rows, the raw rows found since that have another number of fields than the header)."""
    for batch, malformed in _read(part, schema.names):
        arrays = []
        for name, array in zip(schema.names, batch.columns, strict=True):
            text = pa.Array.from_buffers(pa.string(), len(array), array.buffers(), offset=array.offset)
            arrays.append(text if name == "text" else mend_strings(text)[0])
        yield pa.RecordBatch.from_arrays(arrays, schema=schema), malformed


def _read(part: Part, names: list[str] | None) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
    malformed: list[str] = []

    def skip(row: Any) -> str:
        malformed.append(row.text or "")
        return "skip"

    parse = csv.ParseOptions(
        delimiter="\t" if part.format == "tsv" else ",", newlines_in_values=True, invalid_row_handler=skip
    )
    types = {name: pa.binary() for name in names or ()}
    convert = csv.ConvertOptions(column_types=types, check_utf8=False, strings_can_be_null=False)
    read = csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
    with damage(part.path), open_stream(part.path, part.format) as stream:
        for batch in csv.open_csv(stream, read, parse, convert):
            found, malformed[:] = list(malformed), []
            yield batch, found
