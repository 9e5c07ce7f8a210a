from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.config import Config, Corpus
from datamask.corpus.columns import FINEWEB, canonical
from datamask.corpus.index import index_shard
from datamask.corpus.plan import Part, Shard
from datamask.corpus.read import corpus_schema, read_batches, read_documents, sample_rows, sample_texts, shard_schema
from datamask.errors import InputError
from datamask.stages import ShardFiles
from tests.corpus import build

WORDS = SimpleNamespace(kind="column", fingerprint="words")  # an encoder without tokenizer


# as each corpus's makers publish it: (a record, what must be recognised)
PUBLISHED = {
    "fineweb": (
        {
            "text": "t",
            "id": "<urn:uuid:1>",
            "dump": "CC-MAIN-2013-20",
            "url": "http://a",
            "date": "2013-05-18T07:12:55Z",
            "file_path": "s3://c",
            "language": "en",
            "language_score": 0.9,
            "token_count": 7,
        },
        {"text": "t", "id": "<urn:uuid:1>", "dump": "CC-MAIN-2013-20", "token_count": 7, "language_score": 0.9},
    ),
    "fineweb-edu": (
        {
            "text": "t",
            "id": "1",
            "dump": "D",
            "url": "u",
            "file_path": "f",
            "language": "en",
            "language_score": 0.9,
            "token_count": 7,
            "score": 3.1,
            "int_score": 3,
        },
        {"text": "t", "score": 3.1, "int_score": 3},
    ),
    "fineweb-2": (
        {
            "text": "t",
            "id": "1",
            "dump": "D",
            "url": "u",
            "date": "d",
            "file_path": "f",
            "language": "deu",
            "language_score": 0.9,
            "language_script": "Latn",
            "minhash_cluster_size": 2,
            "top_langs": "{}",
        },
        {"text": "t", "language": "deu", "language_script": "Latn"},
    ),
    "dclm": (
        {
            "bff_contained_ngram_count_before_dedupe": 0,
            "language_id_whole_page_fasttext": {"en": 0.97},
            "metadata": {"Content-Length": "1", "WARC-Date": "2022-01-01T00:00:00Z", "WARC-Record-ID": "<urn:uuid:2>"},
            "previous_word_count": 3,
            "text": "t",
            "url": "http://b",
            "warcinfo": "w",
            "fasttext_openhermes_reddit_eli5_vs_rw_v2_bigram_200_train_prob": 0.5,
        },
        {
            "text": "t",
            "url": "http://b",
            "id": "<urn:uuid:2>",
            "date": "2022-01-01T00:00:00Z",
            "previous_word_count": 3,
            "language_id_whole_page_fasttext": {"en": 0.97},
        },
    ),
    "dolma": (
        {
            "id": "d1",
            "text": "t",
            "source": "cc",
            "added": "2023-01-01",
            "created": "2022-12-31",
            "metadata": {"url": "http://c"},
        },
        {
            "text": "t",
            "id": "d1",
            "source": "cc",
            "date": "2022-12-31",
            "url": "http://c",
            "metadata": {"url": "http://c"},
        },
    ),
    "c4": (
        {"text": "t", "timestamp": "2019-04-25T12:57:54Z", "url": "http://d"},
        {"text": "t", "date": "2019-04-25T12:57:54Z", "url": "http://d"},
    ),
    "redpajama-1": (
        {"text": "t", "meta": {"url": "http://e", "timestamp": "2023-01-01", "language": "en"}},
        {"text": "t", "url": "http://e", "date": "2023-01-01", "language": "en"},
    ),
    "redpajama-2": (
        {
            "url": "http://f",
            "date_download": "2023-01-01T00:00:00Z",
            "digest": "sha1:X",
            "length": 1,
            "nlines": 1,
            "source_domain": "f",
            "title": "T",
            "raw_content": "t",
            "cc_segment": "crawl-data/x",
            "original_nlines": 1,
            "original_length": 1,
            "line_ids": [0],
            "language": "en",
            "language_score": 0.9,
            "perplexity": 100.0,
            "bucket": "head",
        },
        {"text": "t", "date": "2023-01-01T00:00:00Z", "file_path": "crawl-data/x", "bucket": "head", "line_ids": [0]},
    ),
    "hplt": (
        {
            "document_lang": "fi",
            "scores": [0.1],
            "langs": ["fi"],
            "text": "t",
            "url": "u",
            "id": 5,
            "collection": "wide",
        },
        {"text": "t", "language": "fi", "id": "5", "scores": [0.1]},
    ),
    "generic": ({"content": "t", "doc_id": 3, "n_tokens": 4.0}, {"text": "t", "id": "3", "token_count": 4}),
}


@pytest.mark.parametrize("end", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layouts_are_recognised(tmp_path: Path, name: str, end: str) -> None:
    record, expected = PUBLISHED[name]
    (row,) = build.read(tmp_path, build.write(tmp_path / f"x.{end}", [record]))
    assert {column: row[column] for column in expected} == expected
    carried = sum(isinstance(value, dict) for value in record.values())
    assert len(row) - 1 >= len(record) and len(row) - 1 <= len(record) + 5 * carried  # nothing lost, chunk_id added


@pytest.mark.parametrize("end", ["parquet", "jsonl"])
def test_columns_are_mapped_by_configuration(tmp_path: Path, end: str) -> None:
    record = {"text": "not this", "body": "this", "meta": {"who": "me"}, "chunk_id": 77, "junk": 1}
    path = build.write(tmp_path / f"x.{end}", [record])
    columns = {"text": "body", "id": "meta.who", "source": "junk"}
    (row,) = _read_with(tmp_path, path, columns)
    assert row == {
        "chunk_id": 0, "text": "this", "id": "me", "source": 1, "text_original": "not this", "meta": {"who": "me"},
        "chunk_id_original": 77,
    }  # fmt: skip
    (row,) = _read_with(tmp_path, path, columns, drop=["meta", "text_original"])
    assert row == {"chunk_id": 0, "text": "this", "id": "me", "source": 1, "chunk_id_original": 77}


def _read_with(tmp_path: Path, path: Path, columns: dict[str, str], drop: list[str] | None = None) -> list[dict]:
    found, config, _ = build.shards(tmp_path, path, columns=columns, drop=drop or [])
    return [row for shard in found for batch in read_batches(shard, config) for row in batch.to_pylist()]


def test_a_text_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = build.write(tmp_path / "x.parquet", [{"content": "a"}])
    with pytest.raises(InputError, match="'contnt'.*did you mean \"content\""):
        _read_with(tmp_path, path, {"text": "contnt"})
    path = build.write(tmp_path / "y.parquet", [{"text": 3}])
    with pytest.raises(InputError, match="type int64, not text"):
        build.read(tmp_path, path)


TABLES: dict[str, Callable[[list[str]], pa.Array]] = {
    "string": lambda texts: pa.array(texts),
    "large_string": lambda texts: pa.array(texts, pa.large_string()),
    "dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "binary": lambda texts: pa.array([text.encode() for text in texts], pa.binary()),
    "large_binary": lambda texts: pa.array([text.encode() for text in texts], pa.large_binary()),
    "string_view": lambda texts: pa.array(texts, pa.string_view()),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_physical_kind_of_text_is_read(tmp_path: Path, kind: str) -> None:
    texts = ["plain", "ünïcode 日本", "", "nul \0 inside", "x" * 5000]
    array = TABLES[kind](texts)
    pq.write_table(pa.table({"text": array, "url": array}), tmp_path / "x.parquet")
    rows = build.read(tmp_path, tmp_path / "x.parquet")
    assert [row["text"] for row in rows] == texts and [row["url"] for row in rows] == texts


def test_nested_and_unknown_columns_pass_unchanged(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", "b"],
            "list": pa.array([[1.5, 2.5], None], pa.list_(pa.float32())),
            "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float16(), 2)),
            "struct": pa.array([{"x": 1, "y": ["a"]}, {"x": None, "y": []}]),
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int8())),
            "time": pa.array([1, 2], pa.timestamp("us", "UTC")),
            "decimal": pa.array([1, 2], pa.decimal128(5, 0)),
            "bytes": pa.array([b"\xff", None]),
            "flag": [True, None],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    (shard,), config, _ = build.shards(tmp_path, tmp_path / "x.parquet")
    (batch,) = read_batches(shard, config)
    found = pa.Table.from_batches([batch]).drop_columns("chunk_id")
    pair = pa.struct([("key", pa.string()), ("value", pa.int8())])
    pairs = pa.array([[{"key": "k", "value": 1}], []], pa.list_(pair))  # `datasets` knows no map
    table = table.set_column(table.column_names.index("map"), "map", pairs)
    assert found.schema.equals(table.schema) and found.equals(table)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.null(), pa.timestamp("s")]
    ),
    st.lists(st.one_of(st.none(), st.integers(0, 100), st.just(-1)), max_size=5),
)
def test_our_columns_have_one_type_whatever_the_files_have(type_: pa.DataType, values: list) -> None:
    if pa.types.is_unsigned_integer(type_):
        values = [abs(value) if value is not None else None for value in values]
    if pa.types.is_null(type_):
        values = [None] * len(values)
    if pa.types.is_boolean(type_):
        values = [None if value is None else value > 3 for value in values]
    array = pa.array([None if v is None else str(v) for v in values] if pa.types.is_string(type_) else values, type_)
    for field in FINEWEB:
        found = canonical(array, field.type)
        assert found.type == field.type and len(found) == len(array)
        if field.type == pa.int64() and (pa.types.is_integer(type_) or pa.types.is_string(type_)):
            assert found.to_pylist() == values


def test_numbers_from_odd_strings_and_floats() -> None:
    texts = pa.array(["12", " 7 ", "1e3", "3.9", "x", "", "+5", "-2", ".5", "1_000", "nan", "9" * 30])
    assert canonical(texts, pa.int64()).to_pylist() == [12, 7, 1000, 3, None, None, 5, -2, 0, None, None, None]
    assert canonical(pa.array([1.5, float("nan"), float("inf"), 1e300]), pa.int64()).to_pylist() == [
        1,
        None,
        None,
        None,
    ]


def test_a_corpus_has_one_schema(tmp_path: Path) -> None:
    build.write(tmp_path / "in" / "a.parquet", [{"text": "a", "n": 1, "s": {"x": 1}, "none": None}])
    build.write(tmp_path / "in" / "b.jsonl", [{"content": "b", "n": 1.5, "s": {"y": "z"}, "token_count": 3}])
    build.write(tmp_path / "in" / "c.parquet", [{"text": "c", "id": "i"}])
    found, config, _ = build.shards(tmp_path, tmp_path / "in", group_bytes=0)
    schema = corpus_schema(found, config)
    assert schema.names == ["text", "id", "token_count", "n", "s", "none"]
    assert schema.field("n").type == pa.float64() and schema.field("none").type == pa.string()
    tables = [pa.Table.from_batches(list(read_batches(shard, config, schema=schema))) for shard in found]
    assert pa.concat_tables(tables).drop_columns("chunk_id").to_pylist() == [
        {"text": "a", "id": None, "token_count": None, "n": 1.0, "s": {"x": 1, "y": None}, "none": None},
        {"text": "b", "id": None, "token_count": 3, "n": 1.5, "s": {"x": None, "y": "z"}, "none": None},
        {"text": "c", "id": "i", "token_count": None, "n": None, "s": None, "none": None},
    ]
    assert corpus_schema(list(reversed(found)), config) == schema


def test_lists_of_nulls_are_read(tmp_path: Path) -> None:
    values = [None, [None, None, None], []]
    for type_ in (pa.list_(pa.null()), pa.large_list(pa.null())):
        table = pa.table({"text": ["a", "b", "c"], "x": pa.array(values, type_), "s": [{"k": None}, None, {"k": None}]})
        pq.write_table(table, tmp_path / "x.parquet")
        rows = build.read(tmp_path, tmp_path / "x.parquet")
        assert [row["x"] for row in rows] == values and [row["s"] for row in rows] == table["s"].to_pylist()


def test_types_that_exclude_each_other_are_named(tmp_path: Path) -> None:
    build.write(tmp_path / "in" / "a.parquet", [{"text": "a", "meta": "x"}])
    build.write(tmp_path / "in" / "b.parquet", [{"text": "b", "meta": {"k": 1}}])
    found, config, _ = build.shards(tmp_path, tmp_path / "in", group_bytes=0)
    with pytest.raises(InputError, match=r"'meta' is string in .*a.parquet but struct.* in .*b.parquet.*corpus.drop"):
        corpus_schema(found, config)
    found, config, _ = build.shards(tmp_path, tmp_path / "in", group_bytes=0, drop=["meta"])
    assert corpus_schema(found, config).names == ["text"]


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_chunk_ids_count_through_a_shard_whatever_the_batch(tmp_path: Path, batch_rows: int) -> None:
    for name in ("a", "b"):
        build.write(tmp_path / "in" / f"{name}.parquet", build.rows(25), row_group=10)
    (shard,), config, _ = build.shards(tmp_path, tmp_path / "in")
    batches = list(read_batches(shard, config, ["id"], batch_rows))
    assert all(batch.num_rows <= batch_rows for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["chunk_id"] for row in rows] == list(range(50))
    assert [row["id"] for row in rows] == [row["id"] for row in build.rows(25)] * 2


def test_a_column_nobody_has_is_named_and_one_of_fineweb_is_null(tmp_path: Path) -> None:
    (shard,), config, _ = build.shards(tmp_path, build.write(tmp_path / "x.parquet", [{"text": "a", "score": 1}]))
    assert next(read_batches(shard, config, ["url"])).to_pylist() == [{"chunk_id": 0, "url": None}]
    assert next(read_batches(shard, config, [])).to_pylist() == [{"chunk_id": 0}]
    with pytest.raises(InputError, match="'scor'; did you mean \"score\""):
        next(read_batches(shard, config, ["scor"]))


def test_documents_are_the_rows_not_in_quarantine(tmp_path: Path) -> None:
    records = build.rows(10)
    records[3]["text"], records[5]["text"], records[7]["id"] = None, " \n\t", None
    (shard,), config, work = build.shards(tmp_path, build.write(tmp_path / "x.parquet", records, row_group=4))
    index = index_shard(shard, WORDS, config, work)
    files = ShardFiles(shard, index)
    rows = [row for batch in read_documents(files, config, batch_rows=3) for row in batch.to_pylist()]
    assert [row["chunk_id"] for row in rows] == [0, 1, 2, 4, 6, 7, 8, 9]
    assert rows[5]["id"] == "x/000007" and rows[5]["text"] == records[7]["text"]
    for columns in (["id", "characters"], ["characters", "text", "id"]):
        documents = pa.Table.from_batches(list(read_documents(files, config, columns)))
        assert documents.column_names == ["chunk_id", *columns] and documents.num_rows == 8
        assert documents["characters"].to_pylist() == [len(row["text"]) for row in rows]


@pytest.mark.parametrize("rows", [9, 11])
def test_a_file_that_is_replaced_during_a_run_is_named(tmp_path: Path, rows: int) -> None:
    (shard,), config, work = build.shards(tmp_path, build.write(tmp_path / "x.parquet", build.rows(10)))
    files = ShardFiles(shard, index_shard(shard, WORDS, config, work))
    build.write(tmp_path / "x.parquet", build.rows(rows))
    with pytest.raises(
        InputError, match=r"10 rows of it were indexed.*changed meanwhile \(\S+/x\.parquet\); run again"
    ):
        list(read_documents(files, config))


def test_the_sample_depends_on_texts_and_seed_alone(tmp_path: Path) -> None:
    records = [*build.rows(200), {"text": None}, {"text": "  "}]
    whole, config, _ = build.shards(tmp_path, build.write(tmp_path / "one" / "a.parquet", records))
    chosen = sample_texts(whole, config, 50, seed=1)
    assert len(chosen) == len(set(chosen)) == 50
    for count in (3, 10):
        for part in range(count):
            build.write(tmp_path / str(count) / f"{part}.jsonl", records[part::count])
        split, other, _ = build.shards(tmp_path, tmp_path / str(count), group_bytes=0)
        assert sample_texts(list(reversed(split)), other, 50, seed=1) == chosen
    assert sample_texts(whole, config, 50, seed=2) != chosen
    assert len(sample_texts(whole, config, 1000, seed=1)) == 200


def test_sampled_rows_are_from_every_file_of_a_corpus_in_order(tmp_path: Path) -> None:
    for number in range(4):  # as languages follow one another in FineWeb-2
        build.write(tmp_path / "in" / f"{number}.parquet", build.rows(200, 200 * number), row_group=10)
    shards, config, _ = build.shards(tmp_path, tmp_path / "in")
    batches = list(sample_rows(shards, config, ["id", "text"], 200))
    assert sum(batch.num_rows for batch in batches) == 200
    of_file = Counter(int(one.split("-")[-1]) // 200 for batch in batches for one in batch["id"].to_pylist())
    assert len(of_file) == 4 and min(of_file.values()) >= 10
    assert sum(batch.num_rows for batch in sample_rows(shards, config, ["id"], 1000)) == 800


def test_long_rows_make_short_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datamask.corpus.read.BATCH_BYTES", 100_000)
    records = [{"text": f"{n}" * 10_000} for n in range(10, 50)]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist(records), path, compression="none", use_dictionary=False)
    (shard,), config, _ = build.shards(tmp_path, path)
    assert max(batch.num_rows for batch in read_batches(shard, config)) <= 5


def test_a_damaged_page_fails_by_name(tmp_path: Path) -> None:
    path = build.write(tmp_path / "x.parquet", build.rows(2000))
    (shard,), config, _ = build.shards(tmp_path, path)
    data = bytearray(path.read_bytes())
    data[4:3000] = bytes(2996)
    path.write_bytes(data)
    with pytest.raises(InputError, match="x.parquet: damaged or truncated"):
        list(read_batches(shard, config))


def test_a_shard_schema_needs_no_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "x.parquet")
    shard = Shard("x", (Part(str(tmp_path / "x.parquet"), "parquet", "f", 1, rows=0),), "f")
    config = Config(corpus=Corpus())
    assert shard_schema(shard, config).names == ["text"] and list(read_batches(shard, config)) == []
    assert replace(shard, name="y").rows == 0


def test_nested_columns_as_deep_as_they_go_and_names_that_are_not_there(tmp_path):
    from datamask.corpus.read import check_columns

    rows = [{"body": {"main.text": f"text {n}"}, "meta": {"web": {"url": f"u{n}"}, "key": str(n)}} for n in range(5)]
    path = build.write(tmp_path / "x.jsonl", rows)
    columns = {"text": "body.main.text", "url": "meta.web.url", "id": "meta.key"}
    shards, config, _ = build.shards(tmp_path, path, columns=columns)
    found = [row for batch in read_batches(shards[0], config, ["text", "url", "id"]) for row in batch.to_pylist()]
    assert [(row["text"], row["url"], row["id"]) for row in found] == [(f"text {n}", f"u{n}", str(n)) for n in range(5)]
    check_columns(shards, config)
    shards, config, _ = build.shards(tmp_path, path, columns={**columns, "id": "meta.kye"})
    with pytest.raises(InputError, match=r"corpus.columns.id: no file has a column 'meta.kye'; did you mean.*meta.key"):
        check_columns(shards, config)
    with pytest.raises(InputError, match=r"no column 'body.text'.*columns there are: body, body.main.text, meta"):
        build.shards(tmp_path, path, columns={"text": "body.text"})
