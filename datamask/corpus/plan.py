"""The shard plan: which rows of which files form a shard: a file, a run of row groups, or a group of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

_QUOTES = {
    "double": "",
    "backslash": ", quotation marks within fields escaped by a backslash",
    "none": ", quotation marks as part of the text",
}

Value = str | int | None


@dataclass(frozen=True)
class Reading:
    """How a file is read that is not read as its format by default is."""

    encoding: str  # Python's name
    guessed: bool = False  # the encoding was guessed, not given nor marked
    separator: str | None = None  # of CSV
    header: bool = True  # of CSV
    quotes: str = "double"  # of CSV: what a quotation mark is, see corpus.quotes
    line_end: str = "\n"
    folders: tuple[tuple[str, Value], ...] = ()  # columns that the folders around it name, see corpus.columns

    def __str__(self) -> str:
        named = f"{self.encoding}{' (guessed)' if self.guessed else ''}"
        separated = f", separated by {self.separator!r}" if self.separator else ""
        headed = "" if self.header else ", without a header line"
        ended = ", its lines ended by CR" if self.line_end == "\r" else ""
        folders = f", with {', '.join(name for name, _ in self.folders)} of its folders" if self.folders else ""
        return f"{named}{separated}{headed}{_QUOTES[self.quotes]}{ended}{folders}"


@dataclass(frozen=True)
class Part:
    """A file, or a run of a parquet file's row groups."""

    path: str
    format: str  # parquet, arrow, or jsonl, csv, tsv, txt, warc, wet with or without .gz, .zst, .bz2, .xz, .zip
    fingerprint: str  # of the whole file's content
    bytes: int
    row_groups: tuple[int, int] | None = None  # first, one past the last; None: all
    rows: int | None = None  # None: not known before the file is converted
    reading: Reading | None = None  # None: UTF-8, and what the format's name says

    @property
    def read_as(self) -> Reading:
        return self.reading or Reading("utf-8")


@dataclass(frozen=True)
class Shard:
    """A unit of work. `chunk_id` is a row's number in it, so (name, chunk_id) names a document for ever."""

    name: str  # unique in the corpus, safe as a file name, the same whatever the order of the inputs
    parts: tuple[Part, ...]
    fingerprint: str  # of the content of its rows, not of where they lie
    converted_from: tuple[Part, ...] = ()  # the user's own files, where `parts` is what they were converted to
    beside: Part | None = None  # language and language_score of every row, in place of the parts' own

    @property
    def columns_key(self) -> str:
        """Of the content of its rows and of what is beside them."""
        return f"{self.fingerprint}-{self.beside.fingerprint}" if self.beside else self.fingerprint

    @property
    def rows(self) -> int | None:
        """Rows of all parts; None while a part is not converted yet."""
        rows = [part.rows for part in self.parts]
        return None if None in rows else sum(row for row in rows if row is not None)


@dataclass(frozen=True)
class FailedFile:
    """A file that cannot be read, and why, in the user's words."""

    path: str
    error: str


@dataclass(frozen=True)
class Plan:
    """What will be read (`shards`), what could not be (`failures`) and what is nothing to read (`skipped`)."""

    shards: tuple[Shard, ...]  # by name
    failures: tuple[FailedFile, ...] = ()  # by path; a release is refused unless run.allow_failed_shards
    skipped: tuple[FailedFile, ...] = ()  # by path; met in a folder or glob: no format we read, or no rows


_PLAN, _PART = TypeAdapter(Plan), TypeAdapter(Part)  # JSON's lists become tuples again


def to_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(data: Mapping[str, Any]) -> Plan:
    """The plan that `to_json` wrote, without the files that shards were converted from."""
    plan = _PLAN.validate_python(data)
    return replace(plan, shards=tuple(replace(shard, converted_from=()) for shard in plan.shards))


def part_of(source: Mapping[str, Any]) -> Part:
    """What a release's manifest names as a source of a shard, without its rows."""
    return replace(_PART.validate_python(source), rows=None)
