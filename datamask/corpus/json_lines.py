"""JSON lines as they are found: lines of any length, some of them broken, each with a defined outcome."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from datamask.errors import InputError

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 256 << 20  # a longer line is no document; it is passed over without being held in memory
MAX_DEPTH = 50  # of nested values; parquet's readers and writers recurse
UTF8_BOM = b"\xef\xbb\xbf"


def lines(stream: pa.NativeFile, limit: int = MAX_LINE_BYTES) -> Iterator[bytes | None]:
    """Every line without its end (\\n, \\r\\n) and without a first byte-order mark; None for one over `limit` bytes."""
    held: list[bytes] = []
    size = 0
    first = True
    while block := stream.read(BLOCK_BYTES):
        if first:
            block = block.removeprefix(UTF8_BOM)
            first = False
        *ended, rest = block.split(b"\n")
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


def parse(line: bytes | None) -> tuple[dict[str, Any], str | None]:
    """The line's object and None, or {} and why it is no document: one of `index.REASONS`."""
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
    """The value as JSON text; NaN and integers of any size as Python writes them."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
    except (ValueError, RecursionError):
        return None, "broken_json"
    try:
        to_json(value).encode("utf-8")
    except (UnicodeEncodeError, RecursionError):
        return None, "lone_surrogate"
    return value, None


def check_head(head: bytes, path: str, kind: str = "jsonl") -> None:
    """Raises when the first bytes show that the file is something else than its name says.

    :param kind: jsonl, csv, tsv or txt.
    :raises InputError: names the file, what it is, and what to do.
    """
    seems = None
    if head.startswith(b"PAR1"):
        seems, remedy = "a parquet file", "rename it to .parquet"
    elif head.startswith(b"ARROW1"):
        seems, remedy = "an Arrow file", "rename it to .arrow"
    elif head.startswith(b"\x1f\x8b"):
        seems, remedy = "gzip", f"rename it to .{kind}.gz"
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        seems, remedy = "zstandard", f"rename it to .{kind}.zst"
    elif head.startswith(b"PK\x03\x04"):
        seems, remedy = "a zip archive or an Excel workbook", f"rename it to .{kind}.zip, or save the sheet as CSV"
    elif kind == "jsonl" and head.removeprefix(UTF8_BOM).lstrip().startswith(b"["):
        seems, remedy = "one JSON array, not JSON lines", "convert it: jq -c '.[]'"
    if seems:
        says = {"jsonl": "JSON lines", "csv": "CSV", "tsv": "TSV", "txt": "text"}[kind]
        raise InputError(f"{path}: its name says {says} but it is {seems}; {remedy}")
