"""Links, loops of links, pipes and files that change: every file is read once, or named with what is wrong."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.config import validate
from datamask.corpus.convert import convert_shard
from datamask.corpus.inputs import find_inputs
from datamask.corpus.inspect import check_unchanged
from datamask.errors import ConfigError, InputError, StorageError
from tests.corpus import build


def paths(inputs):
    return [Path(file.path).name for file in inputs.files]


@pytest.fixture
def tree(tmp_path):
    """A file, a linked file and a linked folder: 400 rows each."""
    away = tmp_path / "away"
    folder = tmp_path / "in"
    build.write(folder / "a.parquet", build.rows(400))
    build.write(away / "b.parquet", build.rows(400, 400))
    build.write(away / "more" / "c.parquet", build.rows(400, 800))
    build.write(away / "more" / "d.jsonl", build.rows(400, 1200))
    (folder / "b.parquet").symlink_to(away / "b.parquet")
    (folder / "more").symlink_to(away / "more")
    return folder


@pytest.mark.parametrize("given", ["in", "in/*", "in/**", "in/**/*.*"])
def test_links_to_files_and_folders_are_followed(tree, tmp_path, given):
    rows = build.read(tmp_path, tmp_path / given, columns=["id"])
    assert sorted(row["id"] for row in rows) == sorted(f"doc-{n}" for n in range(1600))


def test_a_hub_cache_snapshot_is_read(tmp_path):
    blobs = tmp_path / "models--x" / "blobs"
    snapshot = tmp_path / "models--x" / "snapshots" / "abc" / "data"
    build.write(blobs / "x.parquet", build.rows(5))
    (blobs / "x.parquet").rename(blobs / ("0" * 8))
    snapshot.mkdir(parents=True)
    (snapshot / "train.parquet").symlink_to(Path("../../../blobs") / ("0" * 8))
    for given in (tmp_path / "models--x", snapshot, snapshot / "train.parquet", f"{snapshot}/*.parquet"):
        found = find_inputs([str(given)])
        assert paths(found) == ["train.parquet"] and not found.failures


def test_a_file_reached_in_several_ways_is_read_once(tree):
    (tree / "again.parquet").symlink_to(tree / "a.parquet")
    (tree / "round").symlink_to(tree)
    (tree / "more" / "up").symlink_to(tree.parent)
    found = find_inputs([str(tree), str(tree / "more"), f"{tree}/**/*.parquet"])
    assert sorted(paths(found)) == ["a.parquet", "b.parquet", "c.parquet", "d.jsonl"]
    assert str(tree / "a.parquet") in [file.path for file in found.files]  # its own place, not the link
    reasons = {failed.path.removeprefix(f"{tree}/"): failed.error for failed in found.skipped}
    assert reasons["again.parquet"] == f"the same file as {tree / 'a.parquet'}"
    assert reasons["round"] == "a link to a folder that it lies in"
    assert not found.failures


def test_links_that_lead_nowhere_are_named_and_not_passed_over(tmp_path):
    folder = tmp_path / "in"
    build.write(folder / "a.parquet", build.rows(3))
    (folder / "gone.parquet").symlink_to(tmp_path / "nothing.parquet")
    (folder / "self.jsonl").symlink_to(folder / "self.jsonl")
    (folder / "notes.doc").symlink_to(tmp_path / "nothing")
    (folder / "x").symlink_to(folder / "y")
    (folder / "y").symlink_to(folder / "x")
    os.mkfifo(folder / "pipe.parquet")
    found = find_inputs([str(folder)])
    failures = {Path(failed.path).name: failed.error for failed in found.failures}
    assert failures.keys() == {"gone.parquet", "self.jsonl", "pipe.parquet"}
    assert "nothing.parquet, which is not there" in failures["gone.parquet"]
    assert {Path(failed.path).name for failed in found.skipped} == {"notes.doc", "x", "y"}
    planned, _, _ = build.plan(tmp_path, folder)
    assert {Path(failed.path).name for failed in planned.failures} == failures.keys()
    for name, says in (("gone.parquet", "which is not there"), ("pipe.parquet", "a pipe"), ("self.jsonl", "itself")):
        with pytest.raises(InputError, match=says):
            find_inputs([str(folder / name)])


def test_a_folder_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    build.write(folder / "a.parquet", build.rows(3))
    build.write(folder / "closed" / "b.parquet", build.rows(3))
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StorageError, match="closed: no permission"):
        find_inputs([str(folder)])


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.csv"])
def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, name, monkeypatch):
    path = tmp_path / "in" / name
    text = "text,id\n" + "".join(f"some words {n},{n}\n" for n in range(50))
    build.write(path, build.rows(50)) if "jsonl" in name else (path.parent.mkdir(), path.write_text(text))
    planned, config, work = build.plan(tmp_path, path)
    import datamask.corpus.convert as convert

    union, more = convert.union_schema, path.read_bytes()

    def grown(schemas):  # between the two passes
        with path.open("ab") as file:
            file.write(more)
        return union(schemas)

    monkeypatch.setattr(convert, "union_schema", grown)
    with pytest.raises(InputError, match=r"x\.\S+: was changed while it was read"):
        convert_shard(planned.shards[0], config, work)
    assert not list((tmp_path / "work").rglob("*.parquet"))


def test_parquet_that_is_replaced_while_a_run_is_at_it_is_refused(tmp_path):
    path = build.write(tmp_path / "in" / "x.parquet", build.rows(50))
    planned, _, work = build.plan(tmp_path, path)
    check_unchanged(planned.shards, work)
    build.write(path, [{**row, "text": row["text"].replace("speaks", "talked")} for row in build.rows(50)])
    with pytest.raises(InputError, match="was changed or removed while it was read"):
        check_unchanged(planned.shards, work)
    path.unlink()
    with pytest.raises(InputError, match="was changed or removed"):
        check_unchanged(planned.shards, work)


def test_a_sparse_file_is_damaged_not_read_for_ever(tmp_path):
    for name in ("x.parquet", "x.jsonl.gz"):
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(200 << 20)
        planned = None
        with pytest.raises(InputError, match=name):
            planned = build.plan(tmp_path, path)
        assert planned is None


def test_an_input_cannot_say_of_itself_that_its_rows_are_no_documents(tmp_path):
    table = pa.table({"text": ["a b"], "_reason": ["none of your business"], "_excerpt": ["x"]})
    path = tmp_path / "x.parquet"
    pq.write_table(table.replace_schema_metadata({b"datamask": b'{"key": "0", "facts": {}}'}), path)
    with pytest.raises(InputError, match="datamask's own work folder"):
        build.plan(tmp_path, path)


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl"])
def test_columns_named_like_those_of_a_quarantine_are_carried(tmp_path, name):
    found = [{"text": "a b", "_reason": "mine", "_excerpt": "x", "chunk_id": 7}, {"text": "c"}]
    path = build.write(tmp_path / "in" / name, found)
    first, second = build.read(tmp_path, path)
    original = {"_reason_original": "mine", "_excerpt_original": "x", "chunk_id_original": 7}
    assert first == {"chunk_id": 0, "text": "a b"} | original
    assert second == {"chunk_id": 1, "text": "c"} | dict.fromkeys(original)
    told = build.read(tmp_path, path, columns=["_reason", "_excerpt"])
    assert [(row["_reason"], row["_excerpt"]) for row in told] == [(None, None)] * 2
    for ours in ("chunk_id", "_reason", "_excerpt"):
        with pytest.raises(ConfigError, match=f"{ours} is a column that datamask makes"):
            validate({"corpus": {"columns": {ours: "text"}}})


def test_integers_of_any_size_keep_their_digits(tmp_path):
    ids = [2**64 + 1, 2**64 + 2, 2**63, -(2**63) - 1, 10**40, 7]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": f"t {id_}", "id": id_, "deep": {"n": [id_]}}) + "\n" for id_ in ids))
    rows = build.read(tmp_path, path)
    assert [row["id"] for row in rows] == [str(id_) for id_ in ids]
    assert [json.loads(row["deep"])["n"] for row in rows] == [[id_] for id_ in ids]
