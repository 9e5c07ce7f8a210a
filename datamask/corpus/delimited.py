"""CSV and TSV: a header line, quoted fields with line breaks, every column as text, every row accounted for.

The standard library's reader is used, over bytes as they are: pyarrow's drops a malformed row that is not UTF-8 without
a word.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import pyarrow as pa

from datamask.corpus.inputs import damage, open_stream
from datamask.corpus.plan import Part
from datamask.corpus.project import excerpt
from datamask.errors import InputError, one_line

BATCH_ROWS = 2000
BATCH_CHARACTERS = 16 << 20
MAX_FIELD = 256 << 20  # characters; a quote that is never closed would take the rest of the file
BYTES = "latin-1"  # a character for every byte

Rows = tuple[pa.RecordBatch, list[str | None], list[str | None]]


def header(part: Part) -> pa.Schema:
    """The file's columns, all strings.

    :raises InputError: the file has no header line, or one that is not UTF-8.
    """
    with damage(part.path):
        for row in _rows(part):
            if row:
                row[0] = row[0].removeprefix("\xef\xbb\xbf")
            return pa.schema([(name.encode(BYTES).decode("utf-8"), pa.string()) for name in row])
    raise InputError(f"{part.path}: no header line")


def batches(part: Part, schema: pa.Schema) -> Iterator[Rows]:
    """(rows, reasons, excerpts): strings as they are in the file, not yet checked to be UTF-8; null where a row has
    another number of fields than the header."""
    rows: list[list[str]] = []
    size = 0
    for number, row in enumerate(_rows(part)):
        if number == 0:
            continue
        rows.append(row)
        size += sum(map(len, row))
        if len(rows) >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield _batch(rows, schema)
            rows, size = [], 0
    if rows:
        yield _batch(rows, schema)


def _batch(rows: list[list[str]], schema: pa.Schema) -> Rows:
    width = len(schema)
    reasons: list[str | None] = [None] * len(rows)
    excerpts: list[str | None] = [None] * len(rows)
    for number, row in enumerate(rows):
        if len(row) != width:
            reasons[number] = "malformed_row" if row else "blank_line"
            excerpts[number] = excerpt(",".join(row).encode(BYTES))
    columns = []
    for at in range(width):
        data = [None if reasons[n] else row[at].encode(BYTES) for n, row in enumerate(rows)]
        columns.append(pa.array(data, pa.binary()).view(pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=schema), reasons, excerpts


def _rows(part: Part) -> Iterator[list[str]]:
    csv.field_size_limit(MAX_FIELD)
    with damage(part.path), open_stream(part.path, part.format) as stream:
        text = io.TextIOWrapper(stream, encoding=BYTES, newline="")
        try:
            yield from csv.reader(text, delimiter="\t" if part.format == "tsv" else ",")
        except csv.Error as error:
            raise InputError(f"{part.path}: not readable as {part.format.upper()} ({one_line(error)})") from error
