"""CSV and TSV: quoted fields with line breaks, every column as text, every row accounted for; `sniff` says how.

The standard library's reader is used, over bytes as they are: pyarrow's drops a malformed row that is not UTF-8 without
a word.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

import pyarrow as pa

from datamask.corpus.inputs import damage
from datamask.corpus.plan import Part, Reading
from datamask.corpus.project import excerpt
from datamask.corpus.streams import open_stream
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
            if part.reading and not part.reading.header:
                return pa.schema([(f"column{number}", pa.string()) for number in range(1, 1 + len(row))])
            return pa.schema([(name.encode(BYTES).decode("utf-8"), pa.string()) for name in row])
    raise InputError(f"{part.path}: no header line")


def batches(part: Part, schema: pa.Schema) -> Iterator[Rows]:
    """(rows, reasons, excerpts): strings as they are in the file, not yet checked to be UTF-8; null where a row has
    another number of fields than the header."""
    rows: list[list[str]] = []
    size = 0
    headed = part.reading.header if part.reading else True
    for number, row in enumerate(_rows(part)):
        if number == 0 and headed:
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
    reading = part.reading or Reading("utf-8")
    separator = reading.separator or ("\t" if part.format.startswith("tsv") else ",")
    with damage(part.path), open_stream(part.path, part.format, reading.encoding) as stream:
        text = io.TextIOWrapper(stream, encoding=BYTES, newline="")
        try:
            yield from csv.reader(_unmarked(text), delimiter=separator)
        except csv.Error as error:
            raise InputError(f"{part.path}: not readable as {part.format.upper()} ({one_line(error)})") from error


def _unmarked(lines: Iterable[str]) -> Iterator[str]:
    """Without a byte-order mark, behind which the reader would take a quote for a letter."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\xef\xbb\xbf")
