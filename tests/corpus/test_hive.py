"""Columns that folders name, compared with what DuckDB and pyarrow read of the same folders."""

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from datamask.corpus.inputs import find_inputs
from tests.corpus import build
from tests.corpus.test_folders import add, log

CASES = {
    "plain": ["dump=CC-MAIN-2024-10/language=en", "dump=CC-MAIN-2024-18/language=de"],
    "escaped": ["topic=a%2Fb c%3Dd", "topic=%C3%A9t%C3%A9"],
    "null": ["topic=x", "topic=__HIVE_DEFAULT_PARTITION__"],
    "integers": ["year=2023", "year=-4", "year=0"],
    "zeros": ["month=01", "month=12"],
    "words and numbers": ["k=1", "k=one"],
    "equals within": ["k=a", "k=b=c"],
}


def lay(root: Path, folders: list[str], form: str = "parquet", **more: str) -> None:
    for number, folder in enumerate(folders):
        rows = [{"text": f"Document {number} {n}.", "n": n, **more} for n in range(2)]
        build.write(root / folder / f"part-{number}.{form}", rows)


def rows_of(tmp_path: Path, given: Path, columns: list[str]) -> list[tuple]:
    found = build.read(tmp_path, given)
    return sorted((tuple(row.get(name) for name in columns) for row in found), key=repr)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_folders_give_what_duckdb_reads_from_them(tmp_path, case, form):
    lay(tmp_path / "in", CASES[case], form)
    names = sorted({part.split("=")[0] for folder in CASES[case] for part in folder.split("/")})
    reader = "read_parquet" if form == "parquet" else "read_json_auto"
    glob = str(tmp_path / "in" / "**" / f"*.{form}")
    if case == "equals within":  # DuckDB does not read these as a column, pyarrow does
        table = pa.table(
            {"text": [f"Document {k} {n}." for k in range(2) for n in range(2)], "k": list("aa") + ["b=c"] * 2}
        )
    else:
        table = duckdb.sql(f"from {reader}('{glob}', hive_partitioning = true)").to_arrow_table()
    wanted = sorted((tuple(row[name] for name in ["text", *names]) for row in table.to_pylist()), key=repr)
    assert rows_of(tmp_path, tmp_path / "in", ["text", *names]) == wanted


@pytest.mark.parametrize("case", ["plain", "escaped", "null", "integers", "equals within"])
def test_folders_give_what_pyarrow_reads_from_them(tmp_path, case):
    lay(tmp_path / "in", CASES[case])
    table = ds.dataset(tmp_path / "in", partitioning="hive").to_table()
    names = sorted({*table.column_names} - {"n", "text"})
    wanted = sorted((tuple(row[name] for name in ["text", *names]) for row in table.to_pylist()), key=repr)
    assert rows_of(tmp_path, tmp_path / "in", ["text", *names]) == wanted


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv", "arrow", "txt"])
def test_the_folders_value_holds_in_every_format_where_the_file_has_another(tmp_path, form):
    place = tmp_path / "in" / "language=de" / "year=2024" / f"a.{form}"
    place.parent.mkdir(parents=True)
    table = pa.table({"text": ["Ein Text."], "language": ["en"]})
    if form == "arrow":
        with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif form == "parquet":
        pq.write_table(table, place)
    elif form == "jsonl":
        place.write_text(json.dumps(table.to_pylist()[0]) + "\n")
    else:
        place.write_text("text,language\nEin Text.,en\n" if form == "csv" else "Ein Text.")
    [row] = build.read(tmp_path, tmp_path / "in")
    assert (row["text"], row["language"], row["year"]) == ("Ein Text.", "de", 2024)


def test_files_at_different_depths_have_null_where_no_folder_names_the_column(tmp_path):
    lay(tmp_path / "in", ["", "dump=A", "dump=A/language=en"])
    found = rows_of(tmp_path, tmp_path / "in", ["text", "dump", "language"])
    assert found == sorted(
        (f"Document {k} {n}.", [None, "A", "A"][k], [None, None, "en"][k]) for k in range(3) for n in range(2)
    )


def test_a_file_that_is_named_has_the_same_columns(tmp_path):
    lay(tmp_path / "in", ["dump=A/language=en"])
    for given in ("dump=A/language=en/part-0.parquet", "dump=A", "dump=*/*/*.parquet"):
        assert {row[1:] for row in rows_of(tmp_path, tmp_path / "in" / given, ["text", "dump", "language"])} == {
            ("A", "en")
        }


def test_the_text_is_never_taken_from_a_folder_and_names_without_value_are_no_columns(tmp_path):
    lay(tmp_path / "in", ["text=no", "=x", "y=", "abc=="])
    assert {file.folders for file in find_inputs([str(tmp_path / "in")]).files} == {()}
    assert all(row["text"].startswith("Document") for row in build.read(tmp_path, tmp_path / "in"))


def test_a_file_of_the_same_bytes_in_another_folder_is_another_shard(tmp_path):
    for folder in ("dump=A", "dump=B"):
        build.write(tmp_path / "in" / folder / "a.parquet", build.rows(3))
    planned, _, _ = build.plan(tmp_path, tmp_path / "in")
    first, second = planned.shards
    assert first.parts[0].fingerprint == second.parts[0].fingerprint
    assert first.fingerprint != second.fingerprint


def test_runs_of_row_groups_keep_the_columns(tmp_path):
    build.write(tmp_path / "in" / "topic=A" / "a.parquet", build.rows(40), row_group=10)
    planned, _, _ = build.plan(tmp_path, tmp_path / "in", shard_rows=10)
    assert len(planned.shards) == 4
    assert {row["topic"] for row in build.read(tmp_path, tmp_path / "in", shard_rows=10)} == {"A"}


def test_columns_of_a_delta_table_are_what_its_log_says(tmp_path):
    lay(tmp_path / "in", ["x1", "x2"])  # folders with names by chance (delta.randomizeFilePrefixes)
    fields = [{"name": "year", "type": "integer"}, {"name": "code", "type": "string"}]
    log(
        tmp_path / "in",
        0,
        {"metaData": {"schemaString": json.dumps({"fields": fields}), "partitionColumns": ["year", "code"]}},
        add("x1/part-0.parquet", partitionValues={"year": "2024", "code": "17"}),
        add("x2/part-1.parquet", partitionValues={"year": None, "code": ""}),
    )
    found = rows_of(tmp_path, tmp_path / "in", ["text", "year", "code"])
    assert {row[1:] for row in found} == {(2024, "17"), (None, None)}
