"""Mutated inputs: each must be read, or refused with one of our messages; none may crash, hang or write elsewhere.

    python benchmarks/fuzz_inputs.py --examples 10000              # 10,000 of every kind
    python benchmarks/fuzz_inputs.py --kind parquet --examples 200 --seed 7
    python benchmarks/fuzz_inputs.py --examples 2000 --seed 0 --results inputs.jsonl --seconds 240   # again goes on

Kinds: parquet (bytes of files with many layouts), lines (JSON lines, CSV, TSV, Arrow, text, plain and compressed, in
several encodings), dialects (CSV as several programs write it, with an open quote or none, in compressed streams that
are padded, cut or damaged; rows are counted by what was written), types (columns of every type in parquet and Arrow,
in one shard null; rows are counted by pyarrow), names (files and folders of any bytes; rows are counted by what was
written), folder (files, links, loops of links, pipes, sparse files, files that grow while they are read), config
(YAML), filter (SQL conditions). Hypothesis draws sound inputs'
mutations; examples run in a child process, so that a crash of a library below Python is seen and named, with a limit
on the time of each.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import json
import lzma
import multiprocessing
import os
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import HealthCheck, Phase, given, seed, settings
from pieces import Pieces

from datamask.config import Config, Corpus, load_config, to_yaml
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.inputs import find_inputs
from datamask.corpus.inspect import check_unchanged
from datamask.corpus.read import corpus_schema, read_batches, read_documents, sample_texts
from datamask.corpus.shards import plan_shards
from datamask.duck import connect
from datamask.errors import DatamaskError, InputError
from datamask.filter.where import check_expression
from datamask.stages import ShardFiles

KINDS = ["parquet", "lines", "dialects", "types", "names", "folder", "config", "filter"]
BATCH = 250  # examples of a process
LIMIT_SECONDS = 30.0  # of an example
TEXTS = ["one document", "ünïcode 日本語 \U0001f600", "", None, "x" * 3000, "nul \0", "line\nbreak", " \t"]


# ---------------------------------------------------------------- mutations


@st.composite
def mutated(draw: st.DrawFn, sound: list[bytes], tail: int = 0) -> bytes:
    """One of `sound` with none to four changes; `tail`: so many bytes of its end are changed half of the time."""
    data = bytearray(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(0, 4))):
        low = max(0, len(data) - tail) if tail and draw(st.booleans()) else 0
        place = draw(st.integers(low, max(low, len(data) - 1)))
        span = draw(st.integers(1, 40))
        match draw(st.sampled_from(["flip", "set", "insert", "delete", "repeat", "cut", "move", "number"])):
            case "flip" if place < len(data):
                data[place] ^= 1 << draw(st.integers(0, 7))
            case "set" if place < len(data):
                data[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x5C]))
            case "insert":
                data[place:place] = draw(st.binary(min_size=1, max_size=8))
            case "delete":
                del data[place : place + span]
            case "repeat":
                data[place:place] = data[place : place + span] * draw(st.integers(1, 50))
            case "cut":
                del data[place:]
            case "move":
                other = draw(st.integers(0, max(0, len(data) - 1)))
                data[place : place + span] = data[other : other + span]
            case "number":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                value = draw(st.sampled_from([0, -1, 1, 2**31 - 1, -(2**31), 2**63 - 1]))
                data[place : place + width] = value.to_bytes(8, "little", signed=True)[:width]
    return bytes(data)


def parquets() -> list[bytes]:
    """Small files that differ in codec, encoding, page version, row groups and types."""
    count = len(TEXTS)
    plain = pa.table({"text": TEXTS, "id": [f"id-{n}" for n in range(count)], "token_count": [*range(count)]})
    nested = plain.append_column("meta", pa.array([{"a": [1, None], "b": {"c": "x"}}] * count)).append_column(
        "vector", pa.array([[1.0, 2.0]] * count, pa.list_(pa.float16(), 2))
    )
    wide = plain.set_column(0, "text", pa.array(TEXTS).dictionary_encode()).append_column(
        "date", pa.array([0] * count, pa.timestamp("ms"))
    )
    found = []
    for table in (plain, nested, wide):
        for options in (
            {"compression": "none"},
            {"compression": "zstd", "write_page_checksum": True},
            {"compression": "snappy", "row_group_size": 3, "data_page_version": "2.0"},
            {"compression": "gzip", "use_dictionary": False, "store_schema": False},
        ):
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, **options)
            found.append(sink.getvalue().to_pybytes())
    return found


def line_files() -> list[bytes]:
    """JSON lines and CSV, each led by a byte that says how it is stored."""
    records = [
        {"text": text, "id": n, "meta": {"a": [n, 1.5, None]}, "url": "http://a"} for n, text in enumerate(TEXTS)
    ]
    lines = "".join(json.dumps(record, ensure_ascii=n % 2 == 0) + "\n" for n, record in enumerate(records)).encode()
    rows = b'text,id\n"a, quoted\nline",1\nplain,2\n"say ""x""",3\n'
    stored = [b"j" + lines, b"g" + gzip.compress(lines, mtime=0), b"z" + zstandard.compress(lines), b"c" + rows]
    stored += [b"j\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n"), b"t" + rows.replace(b",", b"\t")]
    stored += [b"c" + rows.replace(b",", b";"), b"c" + rows.decode().encode("utf-16"), b"p" + TEXTS[1].encode("utf-16")]
    stored += [b"j" + lines.decode().encode("utf-16-le"), b"c\xef\xbb\xbf" + b'"text","id"\n"a","1"\n']
    stored += [b"b" + bz2.compress(rows), b"x" + lzma.compress(lines)]
    table = pa.table({"text": TEXTS, "id": [str(n) for n in range(len(TEXTS))]})
    for end, make in ((b"a", pa.ipc.new_file), (b"s", pa.ipc.new_stream)):
        sink = pa.BufferOutputStream()
        with make(sink, table.schema) as writer:
            writer.write_table(table)
        stored.append(end + sink.getvalue().to_pybytes())
    return stored


ENDS = {"j": "jsonl", "g": "jsonl.gz", "z": "jsonl.zst", "c": "csv", "t": "tsv", "b": "csv.bz2", "x": "jsonl.xz"}
ENDS |= {"a": "arrow", "s": "feather", "p": "txt"}


@st.composite
def folders(draw: st.DrawFn) -> bytes:
    """What a folder holds, as JSON: (kind, name, what it leads to or its size) of each entry."""
    names = st.sampled_from(["a", "b", "c", "d", "d/e", "d/f", "_g", ".h", "d/i", "x y", "é", "k\n"])
    kinds = ["rows", "more", "torn", "link", "link", "up", "itself", "pipe", "sparse", "empty", "grows", "folder"]
    ends = st.sampled_from([".jsonl", ".parquet", ".csv", ".txt", ".arrow", "", ".md"])
    entry = st.tuples(st.sampled_from(kinds), names, ends, names, ends)
    return json.dumps(draw(st.lists(entry, min_size=1, max_size=8))).encode()


def build_folder(entries: list[list[str]], folder: Path, outside: Path) -> list[Path]:
    """Makes the folder; the files that are to grow."""
    growing = []
    for number, (kind, name, end, other, other_end) in enumerate(entries):
        path = folder / (name + end)
        if not os.path.lexists(path.parent):
            path.parent.mkdir()
        if os.path.lexists(path) or not path.parent.is_dir():
            continue
        rows = [{"text": f"document {number} {n}", "id": f"{number}-{n}"} for n in range(6)]
        if kind in ("rows", "more", "torn", "grows"):
            if end == ".parquet":
                pq.write_table(pa.Table.from_pylist(rows), path)
            elif end == ".csv":
                path.write_text("text,id\n" + "".join(f"{row['text']},{row['id']}\n" for row in rows))
            else:
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            if kind == "torn":
                path.write_bytes(path.read_bytes()[:-9])
            if kind == "grows":
                growing.append(path)
        elif kind == "link":
            path.symlink_to(outside / other if number % 2 else folder / (other + other_end))
        elif kind == "up":
            path.symlink_to(path.parent if number % 2 else folder.parent)
        elif kind == "itself":
            path.symlink_to(path)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "sparse":
            with path.open("wb") as file:
                file.truncate(number * 3 << 20)
        elif kind == "empty":
            path.touch()
        elif kind == "folder":
            path.mkdir()
        elif kind == "hard":
            source = folder / (other + other_end)
            if source.is_file() and not source.is_symlink():
                path.hardlink_to(source)
    return growing


def read_folder(data: bytes, box: Path) -> str:
    """Reads a folder; every file of a kind that is read is in a shard, or named with what is wrong."""
    outside = box / "in" / "outside"
    outside.mkdir(parents=True)
    (outside / "b").write_text("no ending")
    (outside / "a.jsonl").write_text('{"text": "a document elsewhere"}\n')
    folder = box / "in" / "folder"
    folder.mkdir()
    growing = build_folder(json.loads(data), folder, outside)
    found = find_inputs([str(folder)])
    named = {item.path for group in found for item in group}
    for path in folder.rglob("*"):  # rglob follows no links: what lies behind them is told in `named` alone
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.suffix in (".jsonl", ".parquet", ".csv", ".txt", ".arrow") and not path.is_dir() and not hidden:
            assert str(path) in named or path.resolve() in {Path(file.path).resolve() for file in found.files}, path
    assert len({os.path.realpath(file.path) for file in found.files}) == len(found.files), "a file twice"
    config, work = Config(corpus=Corpus(input=[str(folder)], encoding="utf-8")), str(box / "work")
    plan = plan_shards(config.corpus, work)
    for path in growing:
        with path.open("ab") as file:
            file.write(b'{"text": "one more"}\n')
    words: Any = SimpleNamespace(kind="column", fingerprint="words")
    refused = 0
    for shard in plan.shards:
        grown = {str(path.resolve()) for path in growing} & {os.path.realpath(part.path) for part in shard.parts}
        try:
            converted = convert_shard(shard, config, work)
            check_unchanged([converted], work)
            output = index_shard(converted, words, config, work)
        except DatamaskError as error:
            assert isinstance(error, InputError), error
            refused += 1
            continue
        assert not grown, f"{grown} grew, and nobody said so"
        assert output.rows == output.facts["documents"] + sum(output.facts["reasons"].values()), "rows were lost"
    return "refused in part" if refused or plan.failures else "read"


CONDITIONS = [
    b"token_count > 50 and url not like '%spam%'",
    b"language in ('en', 'de') or quality_score between 0.2 and 0.9",
    b"case when length(text) > 10 then lower(dump) = 'd' else id is not null end",
    b"regexp_matches(url, '^https?://[a-z]+') and not (token_count % 2 = 0)",
    b"list_contains(string_split(text, ' '), 'the') and date::date > date '2020-01-01'",
    b"(select 1) = 1 or read_csv('/etc/passwd') is null or getenv('HOME') = ''",
]


# ---------------------------------------------------------------- dialects and streams


@st.composite
def tables_of_text(draw: st.DrawFn) -> bytes:
    """A text file as somebody wrote it, as JSON: its ending, the rows written, its bytes in hex."""
    words = st.sampled_from(["said", "so", "an inch", "x = 1", "yes", "\u00e9t\u00e9", "left"])
    style = draw(st.sampled_from(["double", "all", "backslash", "none", "none|", "lines"]))
    signs = [" ", ", ", '"', ' "', '." ', "\\", "; "] + ([] if style.startswith("none") else ["\n", "\n\n", ",\n"])
    pieces = st.lists(st.tuples(words, st.sampled_from(signs)), min_size=1, max_size=12)
    texts = draw(st.lists(pieces.map(lambda found: "".join(a + b for a, b in found) + "end"), min_size=1, max_size=25))
    rows = [[f"row-{n}", text] for n, text in enumerate(texts)]
    separator = {"none": "\t", "none|": "|"}.get(style, draw(st.sampled_from([",", "\t", ";"])))
    if style == "lines":
        lines = [json.dumps(dict(zip(("id", "text"), row, strict=True))) for row in rows]
    else:
        lines = [separator.join(field if style.startswith("none") else _quoted(field, style) for field in row)
                 for row in [["id", "text"], *rows]]  # fmt: skip
    broken = style != "lines" and draw(st.booleans()) and draw(st.integers(1, len(rows)))
    if broken:
        lines[broken] = f'row-{broken - 1}{separator}"' + lines[broken].partition(separator)[2].lstrip('"').rstrip('"')
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    data = (end.join(lines) + end).encode()
    packed = draw(st.sampled_from(["", "", "gz", "bz2", "xz", "zst"]))
    harm = draw(st.sampled_from(["", "", "", "zeros", "garbage", "cut", "flip"])) if packed else ""
    if packed:
        cut = draw(st.integers(0, len(data)))
        data = b"".join(PACKERS[packed](part) for part in (data[:cut], data[cut:]))
        place = draw(st.integers(0, len(data) - 1))
        if harm in ("zeros", "garbage"):
            data += bytes(64) if harm == "zeros" else b"garbage"
        elif harm == "cut":
            data = data[:place]
        elif harm == "flip":
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    name = "jsonl" if style == "lines" else "tsv" if separator in "\t|" else "csv"
    return json.dumps(
        {"end": f"{name}.{packed}".rstrip("."), "rows": rows, "broken": broken, "data": data.hex()}
    ).encode()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0), "bz2": bz2.compress, "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}  # fmt: skip


def _quoted(field: str, style: str) -> str:
    if style == "backslash":
        field = field.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{field}"'
    plain = not any(sign in field for sign in ',;\t"\n\r')
    return field if plain and style == "double" else '"' + field.replace('"', '""') + '"'


def read_table_of_text(data: bytes, box: Path) -> str:
    """Reads a table; every row that was written is a document or in quarantine, whatever was done to the file."""
    made = json.loads(data)
    (box / "in").mkdir()
    (box / "in" / f"x.{made['end']}").write_bytes(bytes.fromhex(made["data"]))
    config, work = Config(corpus=Corpus(input=[str(box / "in")])), str(box / "work")
    shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
    rows = [row for shard in shards for batch in read_batches(shard, config, ["id", "text", "_reason"])
            for row in batch.to_pylist()]  # fmt: skip
    assert len(rows) >= len(made["rows"]), f"{len(made['rows'])} rows were written and {len(rows)} read"
    known = {row["id"]: row["text"] for row in rows if not row["_reason"]}
    lost = [id_ for id_, _ in made["rows"] if id_ not in known]
    assert len(lost) <= sum(bool(row["_reason"]) for row in rows), f"{lost} are neither documents nor in quarantine"
    return "read"


# ---------------------------------------------------------------- types and names

TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(5, 2),
    pa.decimal256(60, 3), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(16),
    pa.large_binary(), pa.uuid(),
    pa.date32(), pa.time64("ns"), pa.timestamp("us", "UTC"), pa.duration("s"), pa.month_day_nano_interval(),
    pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.float32(), 3), pa.list_view(pa.int8()),
    pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), pa.struct([]),
    pa.dictionary(pa.int8(), pa.string()), pa.bool8(), pa.fixed_shape_tensor(pa.int8(), [2, 2]),
]  # fmt: skip


@st.composite
def typed_tables(draw: st.DrawFn) -> bytes:
    """One or two files' columns, as JSON: format, rows, the number of a type in TYPES for each, and what is null."""
    types = st.lists(st.integers(0, len(TYPES) - 1), min_size=1, max_size=5)
    shards = draw(st.lists(st.sampled_from(["null", "some", "null and some"]), min_size=1, max_size=2))
    made = {"types": draw(types), "shards": shards, "format": draw(st.sampled_from(["parquet", "arrow"]))}
    return json.dumps({**made, "rows": draw(st.integers(1, 12))}).encode()


def read_typed_table(data: bytes, box: Path) -> str:
    """Reads tables; as many rows are documents or in quarantine as pyarrow counts in the files."""
    made = json.loads(data)
    (box / "in").mkdir()
    expected = 0
    for number, held in enumerate(made["shards"]):
        columns = {"text": pa.array([f"document {number} {row}" for row in range(made["rows"])])}
        for place, kind in enumerate(made["types"]):
            columns[f"c{place}"] = _values(TYPES[kind], made["rows"], held)
        table, path = pa.table(columns), box / "in" / f"x{number}.{made['format']}"
        try:
            if made["format"] == "parquet":
                pq.write_table(table, path)
                expected += pq.read_metadata(path).num_rows
            else:
                with pa.ipc.new_file(path, table.schema) as writer:
                    writer.write_table(table)
                with pa.ipc.open_file(path) as reader:
                    expected += reader.read_all().num_rows
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            path.unlink(missing_ok=True)  # the format has no such type
    return _read_as_many(box, expected) if expected else "refused by pyarrow"


def _values(type_: pa.DataType, rows: int, held: str) -> pa.Array:
    array = pa.nulls(rows, type_)
    if held != "null":
        for value in (
            1,
            True,
            "a",
            b"0123456789abcdef",
            [1, 2, 3],
            ["a"],
            [1, 2, 3, 4],
            {"a": 1, "b": []},
            {},
            [("k", 1)],
        ):
            with contextlib.suppress(pa.ArrowException, TypeError, ValueError, AttributeError):
                values = [None if held == "null and some" and row % 2 else value for row in range(rows)]
                return pa.array(values, type_)
    return array


@st.composite
def odd_names(draw: st.DrawFn) -> bytes:
    """Files under names of any bytes, as JSON: (name in hex, rows) of each."""
    signs = [
        b"::", b"?", b"*", b"[", b"]", b"\\", b"\\xe9", b"~", b"#", b"%2F", b"\n", b"\r", b"'", b'"', b"{0}", b" ",
        b".", b":", b"-", b"\xe9", b"\xff", "\u65e5".encode(), "\U0001f600".encode(), b"a", b"b", b"/", b"$HOME",
        b"zip", b"http",
    ]  # fmt: skip
    name = st.one_of(
        st.lists(st.sampled_from(signs), min_size=1, max_size=6).map(b"".join), st.binary(min_size=1, max_size=8)
    )
    ends = st.sampled_from([b".jsonl", b".txt", b".parquet", b".csv"])
    files = st.lists(st.tuples(name, ends, st.integers(1, 3)), min_size=1, max_size=4)
    return json.dumps([[(a + end).hex(), rows] for a, end, rows in draw(files)]).encode()


def read_odd_names(data: bytes, box: Path) -> str:
    """Reads a folder; the rows of all files whose names are not hidden, counted as they were written, are there."""
    (box / "in").mkdir()
    expected: dict[str, int] = {}
    for name, rows in json.loads(data):
        parts = [
            part for part in bytes.fromhex(name).replace(b"\0", b"0").split(b"/") if part not in (b"", b".", b"..")
        ]
        if any(part.startswith((b".", b"_")) for part in parts):
            continue
        path = Path(box, "in", *map(os.fsdecode, parts))
        with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            texts = [f"document {path.name!a} {row}" for row in range(rows)]
            if path.suffix == ".parquet":
                with path.open("wb") as file:
                    pq.write_table(pa.table({"text": texts}), file)
            else:
                lines = {".jsonl": [json.dumps({"text": text}) for text in texts], ".csv": ["text", *texts]}
                path.write_text("\n".join(lines.get(path.suffix, texts[:1])) + "\n")
            expected[str(path)] = 1 if path.suffix == ".txt" else rows
    return _read_as_many(box, sum(expected.values())) if expected else "nothing to read"


def _read_as_many(box: Path, expected: int) -> str:
    config, work = Config(corpus=Corpus(input=[str(box / "in")])), str(box / "work")
    plan = plan_shards(config.corpus, work)
    if plan.failures:
        return "refused in part"
    shards = [convert_shard(shard, config, work) for shard in plan.shards]
    rows = sum(batch.num_rows for shard in shards for batch in read_batches(shard, config, ["text", "_reason"]))
    assert rows == expected, f"{expected} rows were written and {rows} read"
    return "read"


# ---------------------------------------------------------------- what is done with an example


def read_file(data: bytes, end: str, box: Path) -> str:
    """Plans, converts, indexes and reads the bytes as a corpus; the outcome in a word or two."""
    (box / "in").mkdir()
    (box / "in" / f"x.{end}").write_bytes(data)
    config = Config(corpus=Corpus(input=[str(box / "in")]))
    work = str(box / "work")
    plan = plan_shards(config.corpus, work)
    shards = [convert_shard(shard, config, work) for shard in plan.shards]
    words: Any = SimpleNamespace(kind="column", fingerprint="words")
    schema = corpus_schema(shards, config)
    for shard in shards:
        output = index_shard(shard, words, config, work)
        facts = output.facts
        assert output.rows == facts["documents"] + sum(facts["reasons"].values()), "rows were lost"
        batches = list(read_documents(ShardFiles(shard, output), config, schema=schema))
        assert sum(batch.num_rows for batch in batches) == facts["documents"], "documents were lost"
        for batch in batches:
            batch.validate(full=True)
    sample_texts(shards, config, 5, 0)
    return "read"


def read_config(data: bytes, box: Path) -> str:
    """Loads the bytes as a configuration."""
    path = box / "x.yaml"
    path.write_bytes(data)
    to_yaml(load_config(path))
    path.unlink()
    return "read"


def bind_filter(data: bytes, box: Path) -> str:
    """Binds the bytes as a condition and evaluates it over rows."""
    count = len(TEXTS)
    table = pa.table(
        {
            "text": TEXTS,
            **{name: ["a"] * count for name in ("id", "dump", "url", "date", "language")},
            "token_count": range(count),
            "quality_score": [0.5] * count,
        }
    )
    condition = check_expression(data.decode("utf-8", "replace"), table.schema)
    with connect("256MB") as connection:
        kept = condition.keeps(connection, table)
    assert len(kept) == count
    return "read"


def examples(kind: str) -> tuple[st.SearchStrategy[bytes], Callable[[bytes, Path], str]]:
    """The inputs of a kind and what reads them."""
    if kind == "parquet":
        return mutated(parquets(), tail=1500), lambda data, box: read_file(data, "parquet", box)
    if kind == "lines":
        sound = st.sampled_from(line_files()).flatmap(
            lambda data: mutated([data[1:]]).map(lambda changed: data[:1] + changed)
        )
        return sound, lambda data, box: read_file(data[1:], ENDS[chr(data[0])], box)
    if kind == "dialects":
        return tables_of_text(), read_table_of_text
    if kind in ("types", "names"):
        return (typed_tables(), read_typed_table) if kind == "types" else (odd_names(), read_odd_names)
    if kind == "folder":
        return folders(), read_folder
    if kind == "config":
        few = b"select:\n  lamb: 0.7\n  quotas: [{column: domain, minimum: {web: 0.1}}]\ncorpus: {input: [a, b]}\n"
        return mutated([to_yaml().encode(), few, few]), read_config
    return mutated(CONDITIONS), bind_filter


# ---------------------------------------------------------------- running


def child(kind: str, count: int, number: int, folder: Path, report: Any) -> None:
    """Runs `count` examples; before each, what it is lies in folder/current, so that a crash can be traced."""
    root = folder / "home"
    root.mkdir(exist_ok=True)
    os.chdir(root)
    strategy, run = examples(kind)
    outcomes: Counter[str] = Counter()
    slowest = 0.0

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(strategy)
    def one(data: bytes) -> None:
        nonlocal slowest
        (folder / "current").write_bytes(data)
        os.utime(folder / "current")
        box = folder / "box"
        shutil.rmtree(box, ignore_errors=True)
        box.mkdir()
        started = time.monotonic()
        try:
            outcomes[run(data, box)] += 1
        except DatamaskError as error:
            assert str(error), "an error without a message"
            outcomes[type(error).__name__] += 1
        slowest = max(slowest, time.monotonic() - started)
        stray = {path.name for path in box.iterdir()} - {"in", "work", "x.yaml"}
        assert not stray and not list(root.iterdir()), f"files appeared: {stray or list(root.iterdir())}"

    try:
        one()
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        report.put(("defect", f"{type(error).__name__}: {str(error)[:300]} ({Path(last.filename).name}:{last.lineno})"))
    report.put(("outcomes", dict(outcomes)))
    report.put(("slowest", slowest))


def fuzz(kind: str, count: int, number: int) -> dict[str, Any]:
    """Runs `count` examples in a fresh process: outcomes, defects, the slowest example's seconds."""
    outcomes: Counter[str] = Counter()
    defects: list[str] = []
    slowest, started = 0.0, time.monotonic()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="datamask-fuzz-") as folder:
        report = context.SimpleQueue()
        process = context.Process(target=child, args=(kind, count, number, Path(folder), report))
        process.start()
        current = Path(folder) / "current"
        while process.is_alive():
            process.join(0.5)
            if current.exists() and time.time() - current.stat().st_mtime > LIMIT_SECONDS:
                defects.append(f"hang: {keep(current, kind, number)}")
                process.kill()
                process.join()
        if (process.exitcode and process.exitcode > 0) or process.exitcode == -11:
            defects.append(f"crash, signal {-process.exitcode}: {keep(current, kind, number)}")
        while not report.empty():
            name, value = report.get()
            if name == "outcomes":
                outcomes.update(value)
            elif name == "slowest":
                slowest = max(slowest, value)
            else:
                defects.append(f"{value}: {keep(current, kind, number)}")
    seconds = time.monotonic() - started
    return {"outcomes": dict(outcomes), "defects": defects, "slowest": slowest, "seconds": seconds}


def keep(current: Path, kind: str, number: int) -> str:
    """Copies the offending input out of the folder that will be removed."""
    target = Path(tempfile.gettempdir()) / f"datamask-fuzz-{kind}-{number}"
    shutil.copy(current, target)
    return str(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--results", type=Path, help="where what is done is kept; give --seed with it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    options = parser.parse_args()
    kinds = options.kind or KINDS
    pieces = Pieces(options.results)
    starts = range(0, options.examples, BATCH)
    names = ([kind, options.seed + place, min(BATCH, options.examples - start)]
             for place, start in enumerate(starts) for kind in kinds)  # fmt: skip
    pieces.run(names, lambda name: fuzz(name[0], name[2], name[1]), options.seconds)
    print("| kind | examples | read | refused with a message | slowest, s | seconds | defects |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    defects = []
    for kind in kinds:
        done = [piece for piece in pieces.done if piece["name"][0] == kind]
        outcomes = sum((Counter(piece["outcomes"]) for piece in done), Counter())
        refused = outcomes.total() - outcomes["read"]
        slowest, seconds = max((p["slowest"] for p in done), default=0), sum(piece["seconds"] for piece in done)
        found = [defect for piece in done for defect in piece["defects"]]
        print(
            f"| {kind} | {outcomes.total()} | {outcomes['read']} | {refused} | {slowest:.2f} | {seconds:.0f} "
            f"| {len(found)} |",
            flush=True,
        )
        defects += found
    for defect in defects:
        print(f"  {defect}", flush=True)
    raise SystemExit(bool(defects))


if __name__ == "__main__":
    main()
