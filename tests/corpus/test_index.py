from __future__ import annotations

import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.corpus.index import SCHEMA, index_shard
from datamask.corpus.quarantine import REASONS
from datamask.errors import InputError
from datamask.storage import read_table
from datamask.text.text_hashes import normalise, text_hash
from tests.corpus import build

WORDS = SimpleNamespace(kind="column", fingerprint="words")


def index(tmp_path: Path, path: Path, **settings: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    (shard,), config, work = build.shards(tmp_path, path, **settings)
    output = index_shard(shard, WORDS, config, work)
    table = read_table(output.path)
    assert table.schema.remove_metadata().equals(SCHEMA)
    rows = table.to_pylist()
    facts = dict(output.facts)
    assert facts["rows"] == len(rows) == facts["documents"] + facts["quarantined"]
    assert facts["quarantined"] == sum(facts["reasons"].values()) == sum(row["reason"] is not None for row in rows)
    assert set(facts["reasons"]) <= set(REASONS)
    return rows, facts


def test_every_row_has_its_place(tmp_path: Path) -> None:
    texts = ["one two", None, "", " \u00a0\n", "a nul \0 in it", "ok"]
    table = pa.table({"text": texts, "id": ["a", None, "c", "a", "a", None], "token_count": [9, 1, 1, 1, None, -1]})
    pq.write_table(table, tmp_path / "x.parquet")
    rows, facts = index(tmp_path, tmp_path / "x.parquet")
    assert [row["reason"] for row in rows] == [None, "null_text", "empty_text", "empty_text", None, None]
    assert [row["id"] for row in rows] == ["a", "x/000001", "c", "a", "a", "x/000005"]
    assert [row["token_count"] for row in rows] == [9, None, None, None, 5, 1]
    assert [row["characters"] for row in rows] == [7, None, None, None, 13, 2]
    assert rows[0]["text_hash"] == text_hash("one two") and rows[1]["text_hash"] is None
    assert rows[3]["excerpt"] == " \u00a0\n" and rows[0]["excerpt"] is None
    assert facts == {
        "rows": 6, "documents": 3, "quarantined": 3, "tokens": 15, "tokens_counted": 2, "characters": 22, "ids_made": 2,
        "reasons": {"empty_text": 2, "null_text": 1}, "duplicate_ids": 2,
    }  # fmt: skip


def test_a_count_that_no_text_has_is_counted_anew(tmp_path: Path) -> None:
    table = pa.table({"text": ["one two"] * 5, "token_count": [2**63 - 1, 2**62, 2**40 + 1, 2**40, 0]})
    pq.write_table(table, tmp_path / "x.parquet")
    rows, facts = index(tmp_path, tmp_path / "x.parquet")
    assert [row["token_count"] for row in rows] == [2, 2, 2, 2**40, 0]
    assert facts["tokens"] == 2**40 + 6 and facts["tokens_counted"] == 3


def test_text_that_is_not_utf8_is_kept_out(tmp_path: Path) -> None:
    raw = [
        b"good",
        "naïve".encode("cp1252"),
        "日本".encode(),
        "日本".encode("shift_jis"),
        b"\xed\xa0\x80",
        None,
        b"\xff" * 999,
    ]
    array = pa.array(raw, pa.binary())
    strings = pa.Array.from_buffers(pa.string(), len(raw), array.buffers())
    for kind, column in (("bytes", array), ("unchecked", strings)):
        path = tmp_path / f"{kind}.parquet"
        pq.write_table(pa.table({"text": column, "url": strings}), path)
        rows, facts = index(tmp_path, path)
        bad = "undecodable_text"
        assert [row["reason"] for row in rows] == [None, bad, None, bad, bad, "null_text", bad]
        assert rows[1]["excerpt"] == "na\\xefve" and len(rows[6]["excerpt"]) == 200
        found = build.read(tmp_path, path)
        assert [row["text"] for row in found] == ["good", None, "日本", None, None, None, None]
        assert [row["url"] for row in found][1:3] == ["na\ufffdve", "日本"]


def test_utf_16_read_as_utf_8_is_kept_out(tmp_path: Path) -> None:
    texts = ["plain English".encode(code).decode() for code in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")]
    pq.write_table(pa.table({"text": texts}), tmp_path / "x.parquet")
    assert index(tmp_path, tmp_path / "x.parquet")[1]["reasons"] == {"nul_text": 3}


def test_a_column_of_nulls_is_all_quarantine(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.nulls(3)}), tmp_path / "x.parquet")
    rows, facts = index(tmp_path, tmp_path / "x.parquet")
    assert facts["reasons"] == {"null_text": 3} and facts["tokens"] == 0


def test_the_index_is_made_once_and_its_bytes_depend_on_the_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = build.rows(2500)
    records[1234]["text"] = None
    (shard,), config, work = build.shards(tmp_path, build.write(tmp_path / "x.parquet", records, row_group=700))
    done: list[int] = []
    first = index_shard(shard, WORDS, config, work, done.append)
    assert sum(done) == 2500 and not first.cached
    again = index_shard(shard, WORDS, config, work, lambda rows: pytest.fail("read again"))
    assert again.cached and (again.path, again.facts) == (first.path, dict(first.facts))
    data = Path(first.path).read_bytes()
    Path(first.path).unlink()
    monkeypatch.setattr("datamask.corpus.read.BATCH_BYTES", 10_000)
    assert Path(index_shard(shard, WORDS, config, work).path).read_bytes() == data


def test_a_damaged_file_leaves_no_index(tmp_path: Path) -> None:
    path = build.write(tmp_path / "x.parquet", build.rows(5000), row_group=2500)
    (shard,), config, work = build.shards(tmp_path, path)
    data = bytearray(path.read_bytes())
    offset = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[offset : offset + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(InputError, match="x.parquet: damaged or truncated"):
        index_shard(shard, WORDS, config, work)
    assert not list((tmp_path / "work" / "index").glob("*"))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_the_hash_sees_through_case_form_and_white_space(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert normalise(normalise(text)) == normalise(text)
    for same in (text.upper().lower(), unicodedata.normalize("NFD", text), f"  {text}\n", text.replace(" ", " \t ")):
        if same != text.upper().lower() or text.isascii():
            assert text_hash(same) == text_hash(text)


def test_the_hash_tells_other_texts_apart() -> None:
    assert len({text_hash(text) for text in ("a b", "ab", "a-b", "b a", "a b.", "ä b")}) == 6
    assert text_hash("Straße") == text_hash("STRASSE") and text_hash("Å") == text_hash("A\u030a")
