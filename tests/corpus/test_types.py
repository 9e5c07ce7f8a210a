"""Columns of all types that Arrow, DuckDB, Polars, Spark write: the same values in releases that `datasets` opens."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from datamask.corpus.read import corpus_schema, read_batches
from datamask.corpus.types import as_released, released_type
from datamask.errors import InputError
from tests.corpus import build
from tests.corpus.releases import load, make_release

IDS = [uuid.UUID(int=n * 7**40) for n in range(3)]
DIGESTS = [hashlib.md5(str(n).encode()).digest() for n in range(3)]
D = decimal.Decimal
VIEW, LIST_VIEW = pa.string_view(), pa.list_view(pa.int64())


def dictionary(values: pa.Array, *places: int | None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.uint32()), values)


def extension(type_: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(type_, storage)


UUIDS = pa.array([id_.bytes for id_ in IDS], pa.uuid())
SECOND = datetime.timedelta(seconds=1)
DAY, MOMENT, FLOATS = datetime.date(1970, 1, 2), datetime.datetime(1970, 1, 1, 0, 0, 1), pa.list_(pa.float32(), 2)
# what an Arrow file holds: what a release holds
PAIRS = {
    "uuid": (UUIDS, [str(id_) for id_ in IDS]),
    "uuids in a list": (pa.ListArray.from_arrays([0, 1, 1, 3], UUIDS), [[str(IDS[0])], [], [str(IDS[1]), str(IDS[2])]]),
    "fixed binary": (pa.array(DIGESTS, pa.binary(16)), DIGESTS),
    "binary view": (pa.array([b"\xff", None, b""], pa.binary_view()), [b"\xff", None, b""]),
    "small decimal": (pa.array([D("1.25"), None, D("-3")], pa.decimal32(5, 2)), [D("1.25"), None, D("-3.00")]),
    "decimal64": (pa.array([D(10**15), None, D(0)], pa.decimal64(18, 0)), [D(10**15), None, D(0)]),
    "decimal256": (pa.array([D(10**50), None, D(-1)], pa.decimal256(60, 0)), [D(10**50), None, D(-1)]),
    "negative scale": (pa.array([D(100), None, D(-2500)], pa.decimal128(10, -2)), [D(100), None, D(-2500)]),
    "large unsigned": (pa.array([2**64 - 1, None, 0], pa.uint64()), [2**64 - 1, None, 0]),
    "half": (pa.array([1.5, None, -2.0], pa.float16()), [1.5, None, -2.0]),
    "views in a list": (pa.array([["x", None], None, []], pa.large_list(VIEW)), [["x", None], None, []]),
    "views in a struct": (pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", VIEW)])),) * 2,
    "views in a dictionary": (dictionary(pa.array(["a", "b"], VIEW), 1, None, 0), ["b", None, "a"]),
    "large strings in a dictionary": (dictionary(pa.array(["a"], pa.large_string()), 0, None, 0), ["a", None, "a"]),
    "numbers in a dictionary": (dictionary(pa.array([7, 8]), 1, None, 0), [8, None, 7]),
    "views in runs": (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"], VIEW)), ["a", "a", "b"]),
    "list views": (pa.array([[1, 2], None, [3]], LIST_VIEW), [[1, 2], None, [3]]),
    "list views of views": (pa.array([["x"], [], None], pa.large_list_view(VIEW)), [["x"], [], None]),
    "bool8": (extension(pa.bool8(), pa.array([1, 0, None], pa.int8())), [True, False, None]),
    "json": (pa.array(['{"a":1}', None, "[]"], pa.json_(pa.large_string())), ['{"a":1}', None, "[]"]),
    "tensor": (
        extension(pa.fixed_shape_tensor(pa.float32(), [2, 1]), pa.array([[1, 2], None, [3, 4]], FLOATS)),
        [[1.0, 2.0], None, [3.0, 4.0]],
    ),
    "opaque": (extension(pa.opaque(pa.string(), "geometry", "x"), pa.array(["p", None, ""])), ["p", None, ""]),
    "interval": (
        pa.array([(1, 2, 3), None, (0, 0, -1_500_000_000)], pa.month_day_nano_interval()),
        ["P1M2DT0.000000003S", None, "P0M0DT-1.500000000S"],
    ),
    "union": (
        pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([7, None]), pa.array(["a"])]
        ),
        ["7", "a", None],
    ),
    "map": (
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        [[{"key": "k", "value": 1}], None, []],
    ),
    "map in a struct": (
        pa.array([{"m": [("k", ["v"])]}, None, {"m": None}], pa.struct([("m", pa.map_(VIEW, pa.list_(VIEW)))])),
        [{"m": [{"key": "k", "value": ["v"]}]}, None, {"m": None}],
    ),
    "empty structs": (pa.array([{}, None, {}], pa.struct([])), ["{}", None, "{}"]),
    "empty structs in a list": (pa.array([[{}], None, []], pa.list_(pa.struct([]))), [["{}"], None, []]),
    "nulls": (pa.nulls(3), [None] * 3),
    "nulls in a list": (pa.array([[None, None, None], [], None], pa.list_(pa.null())), [[None] * 3, [], None]),
    "seconds": (pa.array([1, None, 86399], pa.time32("s")), [datetime.time(0, 0, 1), None, datetime.time(23, 59, 59)]),
    "time of day": (pa.array([1000, None, 0], pa.time64("us")), [datetime.time(0, 0, 0, 1000), None, datetime.time(0)]),
    "day": (pa.array([86400000, None, 86400000], pa.date64()), [DAY, None, DAY]),
    "moment": (pa.array([1, None, 1], pa.timestamp("s")), [MOMENT, None, MOMENT]),
    "duration": (pa.array([1, None, 1], pa.duration("s")), [SECOND, None, SECOND]),
}  # fmt: skip


def arrow_file(path: Path, **columns: Any) -> Path:
    table = pa.table(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return path


def test_every_type_has_the_same_values_in_a_release_that_datasets_opens(tmp_path: Path) -> None:
    columns = {f"a {name}": array for name, (array, _) in PAIRS.items()}
    arrow_file(tmp_path / "in" / "a.arrow", text=["one", "three", "two"], language=UUIDS, **columns)
    release, _ = make_release(tmp_path, str(tmp_path / "in"))
    table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in Path(release.path).glob("data/*/*"))
    table = table.sort_by("text")
    loaded = load(release, tmp_path / "cache")
    told = {column["name"] for column in release.manifest()["columns"] if "from" in column}
    for name, (array, expected) in PAIRS.items():
        expected = expected.to_pylist() if isinstance(expected, pa.Array) else expected
        column = f"a {name}"
        assert table[column].to_pylist() == expected, name
        assert [row[column] for row in loaded] == expected, name
    restated = ["uuid", "small decimal", "negative scale", "list views", "bool8", "map", "interval", "tensor"]
    assert {f"a {name}" for name in [*restated, "map in a struct", "uuids in a list", "opaque"]} <= told
    assert not told & {f"a {name}" for name in ("views in a list", "decimal256", "nulls", "duration", "half")}


@pytest.mark.parametrize("name", PAIRS)
def test_slices_have_their_own_values(name: str) -> None:
    """Batches are slices of what a file holds: offsets of lists, structs and runs are those of the slice."""
    array = PAIRS[name][0]
    whole = as_released(array)
    whole.validate(full=True)
    for start in range(3):
        part = as_released(array.slice(start, 2))
        part.validate(full=True)
        assert part.equals(whole.slice(start, 2)) and part.type == whole.type == released_type(array.type)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (PAIRS["uuid"][0], [str(id_) for id_ in IDS]),
        (pa.array(DIGESTS, pa.binary(16)), [digest.hex() for digest in DIGESTS]),
        (pa.array(DIGESTS, pa.binary()), [digest.hex() for digest in DIGESTS]),
        (pa.array([b"a-1", b"a-2", b"a-3"], pa.binary_view()), ["a-1", "a-2", "a-3"]),
        (pa.array([2**64 - 1, 2**63, 0], pa.uint64()), ["18446744073709551615", "9223372036854775808", "0"]),
        (pa.array([D(10**37), D(-1), D(0)], pa.decimal128(38, 0)), [str(10**37), "-1", "0"]),
        (dictionary(pa.array(["a", "b", "c"], VIEW), 2, 0, 1), ["c", "a", "b"]),
    ],
)
@pytest.mark.parametrize("name", ["id", "doc_id"])
def test_ids_of_any_type_are_text_each_its_own(tmp_path: Path, ids: pa.Array, expected: list[str], name: str) -> None:
    arrow_file(tmp_path / "x.arrow", **{"text": ["a", "b", "c"], name: ids})
    assert [row["id"] for row in build.read(tmp_path, tmp_path / "x.arrow")] == expected
    if not pa.types.is_dictionary(ids.type):
        pq.write_table(pa.table({"text": ["a", "b", "c"], name: ids}), tmp_path / "y.parquet")
        assert [row["id"] for row in build.read(tmp_path, tmp_path / "y.parquet")] == expected


def test_what_duckdb_writes(tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "in").mkdir()
    duckdb.sql(
        "copy (select 'document ' || i as text, uuid() as id, map {'k': i} as m, i::decimal(4,1) as score, "
        "[{'a': null}] as l, i::hugeint as h, interval 1 month as v, '1'::bit as b, date '2024-01-02' as date "
        f"from range(5) t(i)) to '{tmp_path}/in/a.parquet'"
    )
    release, _ = make_release(tmp_path, str(tmp_path / "in"))
    found = load(release, tmp_path / "cache")
    assert [row["m"] for row in found] == [[{"key": "k", "value": n}] for n in range(5)]
    assert {len(row["id"]) for row in found} == {36} and len({row["id"] for row in found}) == 5


# ---------------------------------------------------------------- columns without values in one shard

WITHOUT = [None, [], {}, [{}], [None], {"a": None}, {"a": {}}, [[]], {"a": [], "b": None}]
WITH = [
    [3, "x", [1.5], {"likes": 3}],
    [[1, 2], ["x"], [{"k": "v"}], [[1]]],
    [{"likes": 3}, {"a": 1}, {"a": {"b": "c"}}],
    [[{"k": 1}], [{"k": {"deep": [1]}}]],
    [[1], ["x"], [{"k": 1}]],
    [{"a": 3}, {"a": [1]}, {"a": {"b": 1}, "c": "new"}],
    [{"a": {"b": 1}}, {"a": {"b": [None, 2]}}],
    [[[1]], [["x", None]], [[{"k": 1}]]],
    [{"a": [{"b": 1}], "b": "x"}, {"a": ["x"], "b": {}}],
]


@pytest.mark.parametrize("place", range(len(WITHOUT)))
@pytest.mark.parametrize("kind", ["jsonl", "arrow"])
def test_a_column_without_values_in_one_shard_takes_the_type_of_the_others(
    tmp_path: Path, place: int, kind: str
) -> None:
    for number, value in enumerate(WITH[place]):
        folder = tmp_path / str(number)
        for name, x in (("jan", WITHOUT[place]), ("feb", value), ("mar", None)):
            if kind == "jsonl":
                (folder / name).mkdir(parents=True)
                (folder / name / "x.jsonl").write_text(json.dumps({"text": name, "x": x}) + "\n")
            else:
                arrow_file(folder / name / "x.arrow", text=[name], x=pa.array([x]))
        shards, config, _ = build.shards(folder, folder)
        schema = corpus_schema(shards, config)
        found = {row["text"]: row["x"] for one in shards for batch in read_batches(one, config, schema=schema)
                 for row in batch.to_pylist()}  # fmt: skip
        assert stripped(found["jan"]) == stripped(WITHOUT[place]) and stripped(found["feb"]) == stripped(value)
        assert found["mar"] is None and (found["jan"] is None) == (WITHOUT[place] is None)


def stripped(value: Any) -> Any:
    """A value without the nulls that a struct has for fields of other rows."""
    if isinstance(value, dict):
        return {name: stripped(inner) for name, inner in value.items() if inner is not None and stripped(inner) != {}}
    return [stripped(inner) for inner in value] if isinstance(value, list) else {} if value == "{}" else value


def test_types_that_exclude_each_other_are_told_of_the_users_files(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", "text")):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / f"{name}.jsonl").write_text(json.dumps({"text": "t", "stars": value}) + "\n")
    shards, config, work = build.shards(tmp_path, tmp_path / "in")
    with pytest.raises(
        InputError, match=r"'stars' is int64 in \S+/in/a/a.jsonl but string in \S+/in/b/b.jsonl"
    ) as told:
        corpus_schema(shards, config)
    assert work not in str(told.value)


def test_a_value_that_no_release_can_hold_is_told_by_its_column(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrow_file(tmp_path / "in" / "x.arrow", text=["a"], seen=pa.array([2**62], pa.timestamp("s")))
    with pytest.raises(InputError, match=r"'seen' has a value that .*corpus.drop=\[seen\]"):
        build.shards(tmp_path, tmp_path / "in")


def test_a_score_column_is_read_as_numbers_however_it_is_stored(tmp_path: Path) -> None:
    from datamask.corpus.columns import numbers

    stored = [
        pa.array([D("0.5"), None, D("-1")], pa.decimal128(5, 1)),
        pa.array(["0.5", "no number", " -1 "]),
        pa.array([0.5, None, -1], pa.float16()),
        dictionary(pa.array([0.5, -1.0]), 0, None, 1),
    ]
    for array in stored:
        assert numbers(as_released(array)).to_pylist() == [0.5, None, -1.0], array.type
    assert pc.all(pc.equal(numbers(pa.array([2**64 - 1, 1], pa.uint64())), pa.array([2.0**64, 1.0]))).as_py()


@pytest.mark.parametrize("floats", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("nested", [False, True])
def test_decimals_become_floats_where_no_digit_is_lost(tmp_path: Path, floats: pa.DataType, nested: bool) -> None:
    def written(values: list[Any], type_: pa.DataType, name: str) -> None:
        column = pa.array([{"x": v} for v in values], pa.struct([("x", type_)])) if nested else pa.array(values, type_)
        pq.write_table(pa.table({"text": ["t"] * len(values), "x": column}), tmp_path / "in" / name)

    (tmp_path / "in").mkdir()
    written([2.5, None], floats, "a.parquet")
    written([D("0.50"), None], pa.decimal128(20, 2), "b.parquet")
    found = [row["x"] for row in build.read(tmp_path, tmp_path / "in")]
    assert found == ([{"x": 2.5}, {"x": None}, {"x": 0.5}, {"x": None}] if nested else [2.5, None, 0.5, None])
    written([D("12345678901234567.12")], pa.decimal128(20, 2), "b.parquet")
    with pytest.raises(InputError, match=r"column 'x' is .*decimal128\(20, 2\).* in other files.*corpus.drop=\[x\]"):
        build.read(tmp_path, tmp_path / "in")
