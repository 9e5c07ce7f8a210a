"""JSON lines as they are found: lines of any length, some of them broken, each with a defined outcome."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Container, Iterator
from typing import Any

import orjson
import pyarrow as pa

from datamask.config import Corpus
from datamask.corpus.columns import Column, recognise, with_fields
from datamask.corpus.plan import Part
from datamask.corpus.project import Told, excerpt, in_batches
from datamask.corpus.streams import damage, open_stream
from datamask.errors import InputError

BLOCK_BYTES = 4 << 20
BATCH_LINES = 2000
BATCH_BYTES = 16 << 20
MAX_LINE_BYTES = 256 << 20  # a longer line is no document; it is passed over without being held in memory
MAX_DEPTH = 50  # of nested values; parquet's readers and writers recurse


def read_lines(stream: pa.NativeFile, limit: int = MAX_LINE_BYTES, end: bytes = b"\n") -> Iterator[bytes | None]:
    """Every line without its end (`end`, \\r\\n) and a first byte-order mark; None for one over `limit` bytes."""
    held: list[bytes] = []
    size = 0
    first = True
    while block := stream.read(BLOCK_BYTES):
        if first:
            block = block.removeprefix(BOM_UTF8)
            first = False
        *ended, rest = block.split(end)
        for line in ended:
            if held or size:
                size += len(line)
                held.append(line)
                line = b"".join(held)
            yield line.removesuffix(b"\r") if max(size, len(line)) <= limit else None
            held, size = [], 0
        size += len(rest)
        if size <= limit:
            held.append(rest)
        else:
            held = []
    if size:
        yield b"".join(held).removesuffix(b"\r") if size <= limit else None


def json_rows(part: Part) -> Iterator[tuple[list[dict[str, Any]], list[str | None], list[str | None]]]:
    """Batches of (objects, reasons, excerpts); a line that is no document is {} with its reason and its beginning."""
    return in_batches(_told(part), BATCH_LINES, BATCH_BYTES)


def _told(part: Part) -> Iterator[Told[dict[str, Any]]]:
    with damage(part.path), open_stream(part.path, part.format, part.read_as.encoding) as stream:
        for line in read_lines(stream, end=part.read_as.line_end.encode()):
            row, reason = parse_line(line)
            yield row, reason, excerpt(line or b"") if reason else None, len(line or b"")


def line_end(text: str) -> str:
    """What ends the lines of a file that begins with `text`: \\r alone on old Macintoshes."""
    return "\r" if "\n" not in text and "\r" in text else "\n"


def parse_line(line: bytes | None) -> tuple[dict[str, Any], str | None]:
    """The line's object and None, or {} and why it is no document: one of `quarantine.REASONS`."""
    if line is None:
        return {}, "line_too_long"
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        value, reason = _parse_leniently(line)
        if reason:
            return {}, reason
    if not isinstance(value, dict):
        return {}, "not_an_object"
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        return {}, "nested_too_deep"
    if _rounded(value):  # orjson makes a float of an integer beyond 64 bits; Python's own json keeps every digit
        value, reason = _parse_leniently(line)
        return value or {}, reason
    return value, None


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _joined(text: str) -> bool:
    """Whether a line is several objects, one behind the other."""
    place, found = 0, 0
    try:
        while place < len(text):
            value, place = json.JSONDecoder().raw_decode(text, place)
            place += len(text[place:]) - len(text[place:].lstrip(" \t\r,"))
            found += isinstance(value, dict)
    except (ValueError, RecursionError):
        return False
    return found > 1


def _rounded(value: Any) -> bool:
    """Whether a number in it may be an integer of more than 64 bits, which orjson has made a float."""
    for inner in value.values() if type(value) is dict else value:
        kind = type(inner)
        if kind is float:
            if inner >= 2.0**63 or inner <= -(2.0**63):
                return True
        elif (kind is dict or kind is list) and _rounded(inner):
            return True
    return False


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth


def _parse_leniently(line: bytes) -> tuple[Any, str | None]:
    """Accepts what Python's own json writes (NaN, Infinity); tells apart the ways a line is broken."""
    if not line.strip():
        return None, "blank_line"
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return None, "undecodable_line"
    try:
        value = json.loads(text)
    except RecursionError:  # from a depth on that differs between versions of Python
        return None, "nested_too_deep"
    except ValueError:
        return None, "joined_objects" if _joined(text) else "broken_json"
    try:
        to_json(value).encode("utf-8")
    except (UnicodeEncodeError, RecursionError):
        return None, "lone_surrogate"
    return value, None


# how a file begins that is something else than text: what it is, and the remedy ({kind}: the format's name)
_HEADS = [
    (b"PAR1", "a parquet file", "rename it to .parquet"),
    (b"ARROW1", "an Arrow file", "rename it to .arrow"),
    (b"\x1f\x8b", "gzip", "rename it to .{kind}.gz"),
    (b"\x28\xb5\x2f\xfd", "zstandard", "rename it to .{kind}.zst"),
    (b"BZh", "bzip2", "rename it to .{kind}.bz2"),
    (b"\xfd7zXZ\0", "xz", "rename it to .{kind}.xz"),
    (b"\x04\x22\x4d\x18", "lz4, which is not read", "unpack it: lz4 -d FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it: 7z x FILE"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it: unrar x FILE"),
    (b"\x1f\x9d", "packed by compress, which is not read", "unpack it: uncompress FILE"),
    (b"LZIP", "lzip, which is not read", "unpack it: lzip -d FILE"),
    (b"PK\x03\x04", "a zip archive or an Excel workbook", "rename it to .{kind}.zip, or save the sheet as CSV"),
    (b"SQLite format 3\0", "a SQLite database", "write its table as CSV: sqlite3 -csv -header FILE 'SELECT …'"),
]
_SAYS = {"jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV", "txt": "text"}


def check_head(head: bytes, path: str, format_: str) -> None:
    """
    :param head: the first thousand bytes.
    :param format_: jsonl, csv, tsv or txt, with the compression that the head was unpacked from.
    :raises InputError: the file is something else than its name says; names it, what it is, and what to do.
    """
    kind, _, packed = format_.partition(".")
    seems, remedy = next(((name, what) for magic, name, what in _HEADS if head.startswith(magic)), ("", ""))
    if seems and packed:
        remedy = "unpack it once" if "rename" in remedy else remedy
    plain = head.removeprefix(BOM_UTF8).lstrip()
    if head[257:262] == b"ustar":
        seems, remedy = "a tar archive", "unpack it into a folder: tar -xf FILE"
    elif kind != "txt" and plain[:15].lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
        seems, remedy = (
            "a page of HTML or XML (what a server answers instead of a file?)",
            "copy it again from its source",
        )
    elif kind == "jsonl" and plain.startswith(b"["):
        first, _, rest = plain.partition(b"\n")
        rows = first.rstrip().endswith(b"]") and rest.lstrip().startswith(b"[")
        seems, remedy = "one JSON array, not JSON lines", "convert it: jq -c '.[]' FILE > NEW"
        if rows:
            seems, remedy = "an array on each line, not an object", "name the text: jq -c '{{text: .[0]}}' FILE > NEW"
    if seems:
        inside = f" inside {packed}" if packed else ""
        raise InputError(f"{path}: its name says {_SAYS[kind]} but it is {seems}{inside}; {remedy.format(kind=kind)}")


def check_objects(text: str, path: str, texts: Container[str]) -> None:
    """
    :param text: the file's first MiB; an object that is longer is not looked at.
    :param texts: names of the fields that hold a text.
    :raises InputError: an object spans lines, a line holds several, or the one object wraps the documents.
    """
    text = text.lstrip()
    if not text.startswith("{"):
        return
    first = text.partition(line_end(text))[0].rstrip()
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        if first != "{":
            return
        found, end = {}, len(text)
    rest = text[end:].strip()
    lists = [name for name, value in found.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if lists and not rest and not any(name in texts for name in found):
        raise InputError(
            f"{path}: one JSON object that wraps its documents: {lists[0]!r} holds {len(found[lists[0]]):,} objects; "
            f"write one a line: jq -c '.[\"{lists[0]}\"][]' FILE > NEW"
        )
    if len(first) < end:
        raise InputError(
            f"{path}: JSON objects over several lines (row 0 is {first[:60]!r}), not one a line; "
            "write one a line: jq -c . FILE > NEW"
        )
    if first[end:].lstrip().startswith("{"):
        raise InputError(
            f"{path}: several JSON objects on one line (row 0, joined at character {end:,}); "
            "write one a line: jq -c . FILE > NEW"
        )


def json_columns(schema: pa.Schema, part: Part, settings: Corpus) -> list[Column]:
    """The columns of a file whose objects have these fields.

    :raises InputError: see `columns.recognise`; names the command that writes wrapped documents one a line.
    """
    try:
        return recognise(with_fields(schema, part), settings.columns, part.path, settings.drop)
    except InputError as error:
        raise InputError(f"{error}{_unwrapping(schema)}") from None


def _unwrapping(schema: pa.Schema) -> str:
    """The command that writes the documents of an object that wraps them one a line; nothing if it holds no list."""
    level = [([field.name], field.type) for field in schema]
    while level:
        for names, type_ in level:
            if pa.types.is_list(type_) and pa.types.is_struct(type_.value_type):
                path = "".join(f"[{json.dumps(name, ensure_ascii=False)}]" for name in names)
                return (
                    f". Or, if {'.'.join(names)}, a list of objects, holds the documents, write one a line: "
                    f"jq -c '.{path}[]' FILE > NEW"
                )
        level = [([*at, one.name], one.type) for at, type_ in level if pa.types.is_struct(type_) for one in type_]
    return ""
