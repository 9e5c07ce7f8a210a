"""Rows counted by a second way: equal to what was written, and more than what a reader that stops early finds."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
from pathlib import Path

import pytest
import zstandard

from datamask.corpus.plan import Reading
from datamask.release.source_rows import count_rows

PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


def count(tmp_path: Path, format_: str, data: bytes, reading: Reading | None = None) -> int | None:
    path = tmp_path / "x"
    path.write_bytes(data)
    return count_rows(str(path), format_, reading)


@pytest.mark.parametrize("kind", PACK)
def test_lines_of_every_stream_are_counted(tmp_path: Path, kind: str) -> None:
    padding = bytes(8) if kind in ("xz", "gz") else b""
    streams = [PACK[kind](b'{"text": "a"}\n' * 25) for _ in range(4)]
    assert count(tmp_path, f"jsonl.{kind}", padding.join(streams) + padding) == 100


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_rows_of_several_lines_are_one(tmp_path: Path, separator: str, quoting: int) -> None:
    texts = ["plain", 'a "word", and\nanother\n\n"line"', "a,b\tc", "", 'inch 5"', "\n"]
    sink = io.StringIO(newline="")
    csv.writer(sink, delimiter=separator, quoting=quoting).writerows(  # type: ignore[call-overload]
        [("id", "text"), *((n, texts[n % len(texts)]) for n in range(60))]
    )
    assert count(tmp_path, "csv", sink.getvalue().encode(), Reading("utf-8", separator=separator)) == 60


@pytest.mark.parametrize("closed", [None, 70])
def test_an_open_quote_joins_no_rows(tmp_path: Path, closed: int | None) -> None:
    lines = [f"{n},text {n} and more\n" for n in range(100)]
    lines[49] = '49,"text 49\n'
    if closed:
        lines[closed] = f'{closed},a "word" more\n'
    assert count(tmp_path, "csv", ("id,text\n" + "".join(lines)).encode()) == 100


def test_what_has_no_second_reader_is_not_counted(tmp_path: Path) -> None:
    assert count(tmp_path, "parquet", b"PAR1") is None and count(tmp_path, "jsonl.xz", b"no xz at all") is None
