from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.corpus.convert import convert_shard
from datamask.corpus.json_lines import parse_line, read_lines
from datamask.corpus.read import read_batches, shard_schema
from datamask.errors import InputError
from tests.corpus import build

REASON = ["text", "_reason", "_excerpt"]

BROKEN = {
    b"{": "broken_json",
    b'{"text": "a"': "broken_json",
    b"not json": "broken_json",
    b'{"text": "a"} {"text": "b"}': "joined_objects",
    b'{"text": "a"}{"text": "b"}': "joined_objects",
    b'{"text": "a"}{"text": "b"': "broken_json",
    b"": "blank_line",
    b"  \t": "blank_line",
    b"[1, 2]": "not_an_object",
    b'"text"': "not_an_object",
    b"null": "not_an_object",
    b'{"text": "caf\xe9"}': "undecodable_line",
    b'{"text": "\\ud800"}': "lone_surrogate",
    b'{"text": "ok", "url": "\\udfff"}': "lone_surrogate",
    b'{"id": "no text"}': "no_text",
    b'{"text": 3}': "text_not_string",
    b'{"text": ["a"]}': "text_not_string",
    b'{"text": null}': None,  # a null text: the index says so
    b"[" * 100_000: "nested_too_deep",
    b'{"text": "t", "x": ' + b"[" * 60 + b"]" * 60 + b"}": "nested_too_deep",
    b'{"text": "t", "x": ' + b"[" * 900 + b"]" * 900 + b"}": "nested_too_deep",
    b'{"text": "t", "x": ' + b"[" * 1100 + b"]" * 1100 + b"}": "nested_too_deep",
}


def test_every_broken_line_is_a_row_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "in" / "x.jsonl"
    path.parent.mkdir()
    sound = b'{"text": "sound"}'
    path.write_bytes(b"\n".join([sound, *BROKEN, sound]))
    rows = build.read(tmp_path, path, columns=REASON)
    assert [row["_reason"] for row in rows] == [None, *BROKEN.values(), None]
    assert [row["text"] for row in rows[1:-1]] == [None] * len(BROKEN)
    for row, line in zip(rows[1:-1], BROKEN, strict=True):
        if row["_reason"]:
            assert row["_excerpt"][:5].replace("\\xe9", "") in line.decode("latin-1") and len(row["_excerpt"]) <= 200


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_line_ends_and_byte_order_mark(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "in" / "x.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbf" + (b"\r\n" if end else b"\n").join([b'{"text": "a"}', b'{"text": "b"}']) + end)
    assert [row["text"] for row in build.read(tmp_path, path)] == ["a", "b"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b), max_size=8), st.integers(1, 9), st.booleans())
def test_lines_are_split_whatever_the_block(data: list[bytes], block: int, ended: bool) -> None:
    content = b"\n".join(data) + (b"\n" if ended and data else b"")
    stream = _Blocks(content, block)
    expected = content.split(b"\n")
    expected = expected[:-1] if expected[-1] == b"" else expected
    if content.startswith(b"\xef\xbb\xbf") and block >= 3:
        expected[0] = expected[0].removeprefix(b"\xef\xbb\xbf")
        expected = [] if expected == [b""] and not content.endswith(b"\n") else expected
    limit = 6
    assert list(read_lines(stream, limit)) == [  # type: ignore[arg-type]
        line.removesuffix(b"\r") if len(line) <= limit else None for line in expected
    ]


class _Blocks(io.BytesIO):
    def __init__(self, data: bytes, block: int) -> None:
        super().__init__(data)
        self._block = block

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._block)


def test_a_line_of_any_length_is_passed_over() -> None:
    assert parse_line(None) == ({}, "line_too_long")


def test_what_python_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in" / "x.jsonl"
    path.parent.mkdir()
    path.write_text('{"text": "a", "score": NaN}\n{"text": "b", "score": -Infinity}\n{"text": "c", "score": 1}\n')
    rows = build.read(tmp_path, path)
    assert math.isnan(rows[0]["score"]) and rows[1]["score"] == -math.inf and rows[2]["score"] == 1.0


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
records = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "_c", "text"]), json_values, max_size=4), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(records)
def test_any_records_convert_one_row_each(
    tmp_path_factory: pytest.TempPathFactory, found: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("x")
    try:
        rows = build.read(folder, build.write(folder / "in" / "x.jsonl", [{"text": "first"}, *found]))
    except InputError as error:
        pytest.fail(str(error))
    assert [row["text"] for row in rows[1:]] == [
        r.get("text") if isinstance(r.get("text"), str) else None for r in found
    ]
    for name in ("a", "b"):
        values = [record.get(name) for record in found]
        if all(isinstance(value, str | None) for value in values) and name in rows[0]:
            assert [row[name] for row in rows[1:]] == values


def test_values_without_a_common_type_become_json_text(tmp_path: Path) -> None:
    mixed = ["plain", {"k": [1, None]}, 3, None, [1, "x"]]
    path = build.write(tmp_path / "in" / "x.jsonl", [{"text": "t", "meta": value, "e": {}} for value in mixed])
    rows = build.read(tmp_path, path)
    assert [row["meta"] for row in rows] == ["plain", '{"k":[1,null]}', "3", None, '[1,"x"]']
    assert [row["e"] for row in rows] == ["{}"] * 5


@pytest.mark.parametrize("values", [[0.5, True], [True, 0.5], [{"x": 0.5}, {"x": False}], [[0.5], None, [True]]])
def test_truth_beside_floats_stays_truth(tmp_path: Path, values: list[Any]) -> None:
    path = build.write(tmp_path / "in" / "x.jsonl", [{"text": "t", "n": value} for value in values])
    found = [row["n"] and json.loads(row["n"]) for row in build.read(tmp_path, path)]
    assert found == values and [repr(value) for value in found] == [repr(value) for value in values]


def test_types_are_found_over_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datamask.corpus.json_lines.BATCH_LINES", 3)
    found = [{"text": "t"}] * 5 + [{"text": "t", "n": 1}] * 5 + [{"text": "t", "n": 1.5, "s": {"x": 1}}] + [
        {"text": "t", "s": {"y": None}}, {"text": "t", "s": {"y": "z"}}]  # fmt: skip
    (shard,), config, _ = build.shards(tmp_path, build.write(tmp_path / "in" / "x.jsonl", found))
    schema = shard_schema(shard, config)
    assert schema.field("n").type == pa.float64()
    assert schema.field("s").type == pa.struct([("x", pa.int64()), ("y", pa.string())])
    assert sum(batch.num_rows for batch in read_batches(shard, config)) == len(found)


def test_an_integer_that_is_no_double_keeps_its_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datamask.corpus.json_lines.BATCH_LINES", 1)
    large = 2**60 + 1
    path = build.write(tmp_path / "in" / "x.jsonl", [{"text": "t", "n": value} for value in (1, large, 1.5)])
    assert [row["n"] for row in build.read(tmp_path, path)] == ["1", str(large), "1.5"]
    build.write(tmp_path / "two" / "a.parquet", [{"text": "t", "n": large}])
    build.write(tmp_path / "two" / "b.parquet", [{"text": "t", "n": 1.5}])
    with pytest.raises(InputError, match="column 'n' is int64 here and double in other files"):
        build.read(tmp_path, tmp_path / "two")


def test_a_group_of_different_files_is_one_shard(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    build.write(folder / "a.jsonl", [{"text": "a", "n": 1}])
    build.write(folder / "b.jsonl.gz", [{"content": "b", "id": 7, "n": 2.5}])
    build.write(folder / "c.json.zst", [{"raw_content": "c", "lang": "de"}])
    (folder / "d.csv").write_text('text,url\n"d, with\nline break",http://d\ntoo,many,fields\n')
    (folder / "e.tsv").write_text("document\tscore\ne\t3\n")
    (shard,), config, _ = build.shards(tmp_path, folder)
    rows = [row for batch in read_batches(shard, config) for row in batch.to_pylist()]
    assert [row["text"] for row in rows] == ["a", "b", "c", "d, with\nline break", None, "e"]
    assert [row["chunk_id"] for row in rows] == list(range(6))
    assert rows[1]["id"] == "7" and rows[1]["n"] == 2.5 and rows[2]["language"] == "de" and rows[3]["url"] == "http://d"
    (batch,) = read_batches(shard, config, REASON)
    assert batch["_reason"].to_pylist() == [None, None, None, None, "malformed_row", None]
    assert batch["_excerpt"][4].as_py() == "too,many,fields"


def test_csv_rows_keep_their_bytes_and_their_faults(tmp_path: Path) -> None:
    path = tmp_path / "in" / "x.csv"
    path.parent.mkdir()
    rows = [
        b"content,url",
        b"good,http://a",
        b"too,many,fields",
        b"caf\xe9,na\xefve",
        b"few\xff",
        b"",
        b"last,http://z",
    ]
    path.write_bytes(b"\n".join(rows))
    found = build.read(tmp_path, path, columns=[*REASON, "url"])
    assert [(row["text"], row["url"], row["_reason"], row["_excerpt"]) for row in found] == [
        ("good", "http://a", None, None),
        (None, None, "malformed_row", "too,many,fields"),
        (None, "na\ufffdve", "undecodable_text", "caf\\xe9"),
        (None, None, "malformed_row", "few\\xff"),
        (None, None, "blank_line", ""),
        ("last", "http://z", None, None),
    ]
    path.write_bytes(b"text,a,a\n1,2,3\n")
    with pytest.raises(InputError, match="'a' for one"):
        build.read(tmp_path, path)


def test_a_file_without_text_is_named_with_its_fields(tmp_path: Path) -> None:
    path = build.write(tmp_path / "in" / "x.jsonl", [{"id": "1", "size": 2}])
    with pytest.raises(InputError, match=r"x.jsonl: no text column; columns there are: id, size"):
        build.plan(tmp_path, path)
    build.write(path, [{"id": "1", "size": 2}] * 3000)  # more than is looked at when it is planned
    planned, config, work = build.plan(tmp_path, path)
    with pytest.raises(InputError, match=r"x.jsonl: no text column; columns there are: id, size"):
        convert_shard(planned.shards[0], config, work)


def test_fields_made_of_data_are_refused(tmp_path: Path) -> None:
    path = build.write(tmp_path / "in" / "x.jsonl", [{"text": "t", f"key-{n}": 1} for n in range(1500)])
    with pytest.raises(InputError, match="more than 1000 different fields"):
        build.read(tmp_path, path)


def test_conversion_is_done_once_and_depends_on_content_alone(tmp_path: Path) -> None:
    path = build.write(tmp_path / "in" / "x.jsonl", build.rows(3000))
    planned, config, work = build.plan(tmp_path, path)
    first = convert_shard(planned.shards[0], config, work)
    file = Path(first.parts[0].path)
    before = file.stat().st_mtime_ns
    assert convert_shard(planned.shards[0], config, work) == first and file.stat().st_mtime_ns == before
    data = file.read_bytes()
    file.unlink()
    convert_shard(planned.shards[0], config, work)
    assert file.read_bytes() == data
    assert first.rows == 3000 and first.name == "x" and first.fingerprint == planned.shards[0].fingerprint


@pytest.mark.parametrize("end", ["gz", "zst"])
def test_a_large_truncated_stream_fails_by_name_and_leaves_nothing(tmp_path: Path, end: str) -> None:
    path = tmp_path / "in" / f"x.jsonl.{end}"
    path.parent.mkdir()
    data = b"".join(json.dumps(row).encode() + b"\n" for row in build.rows(3000))
    whole = gzip.compress(data) if end == "gz" else zstandard.compress(data)
    path.write_bytes(whole)
    planned, config, work = build.plan(tmp_path, path, group_bytes=0)
    path.write_bytes(whole[:-100])  # planning reads the first 4 MiB of a large file alone
    with pytest.raises(InputError, match=rf"x.jsonl.{end}: damaged or truncated"):
        convert_shard(planned.shards[0], config, work)
    assert not any((tmp_path / "work" / "corpus").glob("*"))


def test_parquet_that_changed_after_planning_is_refused(tmp_path: Path) -> None:
    path = build.write(tmp_path / "x.parquet", build.rows(10))
    planned, config, work = build.plan(tmp_path, path)
    build.write(path, build.rows(9))
    with pytest.raises(InputError, match="has 9 rows where 10 were planned"):
        convert_shard(planned.shards[0], config, work)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="no such file"):
        convert_shard(planned.shards[0], config, work)


def test_rows_lost_are_a_row_group_count_away(tmp_path: Path) -> None:
    (shard,), config, _ = build.shards(tmp_path, build.write(tmp_path / "in" / "x.jsonl", build.rows(25_000)))
    assert pq.ParquetFile(shard.parts[0].path).metadata.num_row_groups == 3
    assert [batch["chunk_id"][0].as_py() for batch in read_batches(shard, config, [], 10_000)] == [0, 10_000, 20_000]
