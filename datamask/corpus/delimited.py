"""CSV and TSV: quoted fields with line breaks, every column as text, every row accounted for; `sniff` says how.

The standard library's reader is used, over bytes as they are: pyarrow's drops a malformed row that is not UTF-8 without
a word. It is used strictly: a field whose quotation mark is never closed, or is followed by something else than the
field's end, is a broken row, and reading goes on behind it. Otherwise the rest of the file would be one field.
"""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from datamask.corpus.plan import Part
from datamask.corpus.project import Rows, Told, excerpt, in_batches
from datamask.corpus.streams import damage, open_stream
from datamask.errors import InputError

BATCH_ROWS = 2000
BATCH_CHARACTERS = 16 << 20
BLOCK = 1 << 20  # bytes read at a time
MAX_ROW = 256 << 20  # characters
BYTES = "latin-1"  # a character for every byte
SHAPED_ROWS = 1000  # from which the shape of a file's rows is learnt
SHAPES = 5  # of a column's values, at most, where these say which lines begin a row
MANY_LINES = 50  # an open row of so many lines is looked at before its end is found
# stand for bytes that csv would take for something else; no byte is one of them
_BACKSLASH, _QUOTE, _RETURN = "\u0100", "\u0101", "\u0102"
_ESCAPES = re.compile(r'\\([\\"])')
_LONE_RETURN = re.compile("\r(?!\n)")
_MARKED = re.compile(f"[{_BACKSLASH}{_QUOTE}{_RETURN}]")
_AS_WRITTEN = {ord(_BACKSLASH): "\\\\", ord(_QUOTE): '\\"', ord(_RETURN): "\r"}
_AS_MEANT = {ord(_BACKSLASH): "\\", ord(_QUOTE): '"', ord(_RETURN): "\r"}

Row = list[str] | str  # a row's fields, or the text of one whose quotation marks are broken


def separator_of(format_: str) -> str:
    return "\t" if format_.startswith("tsv") else ","


def header(part: Part) -> pa.Schema:
    """The file's columns, all strings.

    :raises InputError: the file has no header line, or one that is not UTF-8.
    """
    with damage(part.path):
        for row in _rows(part):
            if isinstance(row, str):
                raise InputError(
                    f"{part.path}: its first line has a quotation mark that is never closed: {row[:60]!r}; mend it, or "
                    "say that quotation marks are part of the text: --set corpus.quotes=none"
                )
            if not part.read_as.header:
                return pa.schema([(f"column{number}", pa.string()) for number in range(1, 1 + len(row))])
            return pa.schema([(name.encode(BYTES).decode("utf-8"), pa.string()) for name in row])
    raise InputError(f"{part.path}: no header line")


def batches(part: Part, schema: pa.Schema) -> Iterator[Rows]:
    """(rows, reasons, excerpts): strings as they are in the file, not yet checked to be UTF-8; null where a row has
    another number of fields than the header, or its quotation marks are broken."""
    for rows, reasons, excerpts in in_batches(_told(part, len(schema)), BATCH_ROWS, BATCH_CHARACTERS):
        told = list(zip(rows, reasons, strict=True))
        columns = [[None if reason else row[at].encode(BYTES) for row, reason in told] for at in range(len(schema))]
        arrays = [pa.array(column, pa.binary()).view(pa.string()) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema), reasons, excerpts


def _told(part: Part, width: int) -> Iterator[Told[Row]]:
    for row in islice(_rows(part), int(part.read_as.header), None):
        size = sum(map(len, row))
        if isinstance(row, str):
            yield row, "broken_quotes", excerpt(row.encode(BYTES)), size
        elif len(row) != width:
            yield row, "malformed_row" if row else "blank_line", excerpt(",".join(row).encode(BYTES)), size
        else:
            yield row, None, None, size


def _rows(part: Part) -> Iterator[Row]:
    reading = part.read_as
    separator = reading.separator or separator_of(part.format)
    with damage(part.path), open_stream(part.path, part.format, reading.encoding) as stream:
        yield from read_rows(_blocks(stream, reading.line_end, part.path), separator, reading.quotes, reading.line_end)


def _blocks(stream: Any, line_end: str, path: str) -> Iterator[str]:
    """Whole lines, about BLOCK bytes at a time, without a byte-order mark: csv would take a quote behind it for text.

    :raises InputError: a line is longer than MAX_ROW.
    """
    end = line_end.encode()
    held: list[bytes] = []
    size = 0
    first = True
    while data := bytes(stream.read(BLOCK)):
        if first:
            data, first = data.removeprefix(BOM_UTF8), False
        cut = data.rfind(end) + 1
        if cut:
            yield b"".join([*held, data[:cut]]).decode(BYTES)
            held, size = [], 0
        held.append(data[cut:])
        size += len(held[-1])
        if size > MAX_ROW:
            raise InputError(f"{path}: a line of more than {MAX_ROW >> 20} MiB; is it a table of text?")
    if size:
        yield b"".join(held).decode(BYTES)


# ---------------------------------------------------------------- rows


def read_rows(blocks: Iterator[str], separator: str, quotes: str, line_end: str = "\n") -> Iterator[Row]:
    """The rows of a file that comes in blocks of whole lines.

    :param quotes: double, backslash or none, as corpus.quotes.
    """
    csv.field_size_limit(MAX_ROW)
    options = {"delimiter": separator, "quoting": csv.QUOTE_NONE if quotes == "none" else csv.QUOTE_MINIMAL}
    reader = _Reader({**options, "strict": True})
    waiting: list[str] = []  # lines of a row that is still open
    ended = False
    while not ended:
        lines, size, wanted = waiting, 0, sum(map(len, waiting))
        while size <= wanted:  # as much again: a long row is begun anew a few times only
            block = next(blocks, None)
            if block is None:
                ended = True
                break
            size += len(block)
            known = _without_marks(block, quotes, line_end)
            reader.marked |= known is not block
            *whole, last = known.split(line_end)
            lines = [*lines, *[line + line_end for line in whole], *([last] if last else [])]
        waiting = yield from reader.rows(lines, ended)


def _without_marks(block: str, quotes: str, line_end: str) -> str:
    """The block with other characters for what csv would take for a sign: escapes, and carriage returns within lines.

    The block itself where it has none.
    """
    if quotes == "backslash" and "\\" in block:
        block = _ESCAPES.sub(lambda found: _BACKSLASH if found[1] == "\\" else _QUOTE, block)
    if line_end == "\n" and "\r" in block and block.count("\r") != block.count("\r\n"):
        block = _LONE_RETURN.sub(_RETURN, block)
    return block


class _Reader:
    """csv's reader, which goes on behind a row that is broken."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._shape: _Shape | None = None
        self.marked = False  # whether lines hold _BACKSLASH, _QUOTE or _RETURN

    def rows(self, lines: list[str], ended: bool) -> Generator[Row, None, list[str]]:
        """The rows of the lines; returns the lines of the last, where it is open and the file goes on."""
        if self._shape is None:
            self._shape = self._learn(lines)
        at = 0  # line where the current row begins
        while at < len(lines):
            start = at
            found = csv.reader(islice(lines, start, None), **self._options)
            try:
                for row in found:
                    end = start + found.line_num
                    if end - at > 1 and self._swallows(lines[at:end]):
                        break
                    yield self._restored(row, lines[at:end]) if self.marked else row
                    at = end
                else:
                    return []
            except csv.Error as error:
                read_all = start + found.line_num == len(lines)
                open_ = read_all and not ended and "end of data" in str(error)
                short = len(lines) - at < MANY_LINES or not self._swallows(lines[at:])
                if open_ and short and sum(map(len, lines[at:])) < MAX_ROW:
                    return lines[at:]
            yield _as_written(lines[at])
            at += 1
            while at < len(lines) and not self._begins(lines[at]):  # what is left of the broken row, a line a row
                yield _as_written(lines[at])
                at += 1
        return []

    def _restored(self, row: list[str], lines: list[str]) -> list[str]:
        """The fields with the bytes that `_without_marks` replaced; outside quotation marks a backslash is one."""
        if not any(_MARKED.search(field) for field in row):
            return row
        whole = "".join(lines)
        return [
            field.translate(_AS_MEANT if f'"{field.replace(chr(34), chr(34) * 2)}"' in whole else _AS_WRITTEN)
            for field in row
        ]

    def _learn(self, lines: list[str]) -> _Shape:
        rows: list[list[str]] = []
        at = 0
        while at < len(lines) and len(rows) < SHAPED_ROWS:
            found = csv.reader(islice(lines, at, None), **self._options)
            start = at
            try:
                for row in found:
                    rows.append(row)
                    at = start + found.line_num
                    if len(rows) >= SHAPED_ROWS:
                        break
                else:
                    break
            except csv.Error as error:
                if "end of data" in str(error) and len(rows) > SHAPES:
                    break  # the lines end within a row: what follows are lines of its text
                at += 1
        return _Shape.of(rows)

    def _alone(self, line: str) -> tuple[list[str], bool]:
        """The fields of a line by itself, and whether all its quotation marks are closed."""
        try:
            return next(csv.reader([line], **self._options), []), True
        except csv.Error:
            return next(csv.reader([line], **{**self._options, "strict": False}), []), False

    def _begins(self, line: str) -> bool:
        """Whether a line may be a row's first: as far as its fields go they look like the columns'."""
        assert self._shape is not None
        fields, whole = self._alone(line)
        return self._shape.fits(fields if whole else fields[:-1], whole)

    def _swallows(self, lines: list[str]) -> bool:
        """Whether the lines, which quotation marks make one row, are rows of their own but for the first.

        Where a column's values look alike (numbers, names of a form), one line that looks so is a sign; otherwise the
        right number of fields is all there is to go by, which lines of prose may have by chance. A line is no row
        where a field before the last one ends in a quotation mark and does not begin with one: there a text of several
        lines ends, and the other columns follow.
        """
        assert self._shape is not None
        least, share = (1, 0.8) if self._shape.tells else (8, 0.9)
        wanted = max(least, share * (len(lines) - 1))
        separator = self._options["delimiter"]
        likely = [line for line in lines[1:] if line.count(separator) >= self._shape.width - 1]
        if len(likely) < wanted:  # which most rows of several lines are told by
            return False
        rows = 0
        for line in likely:
            fields, whole = self._alone(line)
            rows += whole and self._shape.fits(fields, True) and not _ends_a_text(line, fields)
        return rows >= wanted


def _ends_a_text(line: str, fields: Sequence[str]) -> bool:
    """Whether a field of the line before the last one ends in a quotation mark and does not begin with one."""
    marked = (field for field in fields[:-1] if field.endswith('"'))
    return any(f'"{field.replace(chr(34), chr(34) * 2)}"' not in line for field in marked)


def _as_written(line: str) -> str:
    return line.rstrip("\r\n").translate(_AS_WRITTEN)


@dataclass(frozen=True)
class _Shape:
    """What the rows of a file have in common: their number of fields, and of some columns what values look like."""

    width: int
    columns: dict[int, frozenset[str]]  # of columns whose values have few forms with digits or signs in them

    @staticmethod
    def of(rows: Sequence[Sequence[str]]) -> _Shape:
        width = len(rows[0]) if rows else 0
        rows = [row for row in rows[1:] if len(row) == width]
        columns = {}
        for place in range(width if len(rows) >= SHAPES else 0):
            forms = Counter(_form(row[place]) for row in rows)
            usual: list[str] = []
            while sum(forms[form] for form in usual) < 0.9 * len(rows):
                usual.append(forms.most_common(len(usual) + 1)[-1][0])
            if len(usual) <= SHAPES and all(set(form) - {"a"} for form in usual):
                columns[place] = frozenset(usual)
        return _Shape(width, columns)

    @property
    def tells(self) -> bool:
        return bool(self.columns)

    def fits(self, fields: Sequence[str], whole: bool) -> bool:
        if len(fields) != self.width if whole else len(fields) >= self.width:
            return False
        return all(_form(fields[place]) in forms for place, forms in self.columns.items() if place < len(fields))


def _form(value: str) -> str:
    """What a value looks like: words with digits are 9, words without are a, all else but quotation marks stands."""
    if len(value) > 100:
        return "a"
    return re.sub(
        r"\w+|\"", lambda word: "" if word[0] == '"' else "9" if any(map(str.isdigit, word[0])) else "a", value
    )
