"""Rows of a corpus that a release was not made of, and source values that are odd."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from datamask.corpus import arrow, delimited, shards, streams, web
from datamask.corpus.project import Rows
from datamask.release.verify import verify
from tests.corpus.releases import make_release, publish_all

PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


def write_archive(path: Path) -> None:
    pytest.importorskip("fastwarc")
    heads = "".join(
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{n}>\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"Content-Type: text/plain\r\nContent-Length: 40\r\n\r\n{f'text {n} and more':40}\r\n\r\n"
        for n, kind in enumerate(["warcinfo", "request", *["conversion"] * 40])
    )
    path.write_bytes(gzip.compress(heads.encode()))


def write_inputs(folder: Path) -> None:
    """Forty rows in each of many formats."""
    folder.mkdir()
    lines = b"".join(b'{"text": "line %02d"}\n' % n for n in range(40))
    for kind, pack in PACK.items():
        (folder / f"{kind}.jsonl.{kind}").write_bytes(pack(lines[:500]) + pack(lines[500:]))
    dictionary = zstandard.train_dictionary(2000, [b'{"text": "line %d"}\n' % n for n in range(2000)])
    packed = zstandard.ZstdCompressor(dict_data=dictionary).compress(lines)
    held = zstandard.compress(dictionary.as_bytes())
    frame = (0x184D2A5D).to_bytes(4, "little") + len(held).to_bytes(4, "little") + held
    (folder / "dictionary.jsonl.zst").write_bytes(frame + packed)
    with zipfile.ZipFile(folder / "zip.jsonl.zip", "w") as archive:
        archive.writestr("x.jsonl", lines)
    (folder / "rows.csv").write_text("id,text\n" + "".join(f'{n},"row\n{n}"\n' for n in range(40)))
    (folder / "alone.txt").write_text("one\ntwo\n")
    table = pa.table({"text": [f"cell {n}" for n in range(40)]})
    pq.write_table(table, folder / "groups.parquet", row_group_size=10)
    with pa.ipc.new_file(str(folder / "file.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=7)
    with pa.ipc.new_stream(str(folder / "stream.arrow"), table.schema) as stream:
        stream.write_table(table, max_chunksize=7)
    write_archive(folder / "web.warc.gz")


LOST = {
    **{f"{kind}.jsonl.{kind}": 25 for kind in PACK},
    "rows.csv": 30,
    "groups.parquet": 20,
    "file.arrow": 35,
    "stream.arrow": 35,
    "web.warc.gz": 30,
}


def cut(batches: Iterator[Rows]) -> Iterator[Rows]:
    return ((rows[:30], reasons[:30], excerpts[:30]) for rows, reasons, excerpts in batches)


def test_rows_that_a_reader_lost_are_told_by_file(tmp_path: Path) -> None:
    """The release is by a reader that loses rows of each format in its own way, its verification by a mended one."""
    write_inputs(tmp_path / "in")
    begin, tables, records = streams.Decompressed._begin, arrow.batches, web.read_records
    with pytest.MonkeyPatch.context() as lossy:
        lossy.setattr(streams.Decompressed, "_begin", lambda self: not self._streams and begin(self))
        lossy.setattr(delimited, "batches", lambda *given, rows=delimited.batches: cut(rows(*given)))
        lossy.setattr(web, "read_records", lambda *given: islice(records(*given), 32))
        lossy.setattr(shards, "_split", lambda *given, split=shards._split: split(*given)[:-1])
        lossy.setattr(arrow, "batches", lambda part: list(tables(part))[:-1])
        release, _ = publish_all(tmp_path / "lossy", str(tmp_path / "in"), shard_rows=20)
    problems = verify(release, [str(tmp_path / "in")]).problems
    words = "{} has 40 rows, and {} were read"
    assert sorted(problems) == [words.format(tmp_path / "in" / name, read) for name, read in sorted(LOST.items())]


def test_odd_dumps_and_token_counts_are_those_of_the_source(tmp_path: Path) -> None:
    """Documents without a dump and those whose dump is empty lie in one file, in the corpus's order."""
    table = pa.table(
        {
            "text": [f"document {n}" for n in range(12)],
            "dump": [None, "", "CC-A", "cc-a"] * 3,
            "token_count": [2**62, -1, 0] * 4,
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    release, _ = make_release(tmp_path, str(tmp_path / "in"))
    assert sorted(release.manifest()["dumps"].values()) == [3, 3, 6]
