"""Folders that say which files belong to them: what else lies there is left out and told, or the folder is refused."""

import json
import os
from pathlib import Path

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.corpus.inputs import find_inputs
from datamask.errors import InputError


def lay(path: Path, text: str = "One document.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": [text]}), path)
    elif path.suffix == ".arrow":
        table = pa.table({"text": [text]})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text(json.dumps({"text": text}) + "\n")
    return path


def note(path: Path, *values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(value) for value in values))


def names(given: Path, output: Path | None = None) -> list[str]:
    return [file.relative for file in find_inputs([str(given)], str(output) if output else None).files]


def told(given: Path, output: Path | None = None) -> dict[str, str]:
    skipped = find_inputs([str(given)], str(output) if output else None).skipped
    return {os.path.relpath(failed.path, given): failed.error for failed in skipped}


# ---------------------------------------------------------------- Delta


def add(path: str, **more: object) -> dict:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, **more}}


def remove(path: str) -> dict:
    return {"remove": {"path": path, "dataChange": True}}


def log(table: Path, version: int, *actions: object) -> None:
    note(table / "_delta_log" / f"{version:020}.json", *actions)


def test_files_that_a_delta_table_has_removed_are_left_out_and_told(tmp_path):
    for name in ("old", "new", "never"):
        lay(tmp_path / "table" / f"{name}.parquet")
    log(tmp_path / "table", 0, add("old.parquet"))
    log(tmp_path / "table", 1, remove("old.parquet"), add("new.parquet"))
    assert names(tmp_path) == ["table/new.parquet"]
    assert {*told(tmp_path)} == {"table/old.parquet", "table/never.parquet"}
    assert "_delta_log" in told(tmp_path)["table/old.parquet"]
    assert names(tmp_path / "table" / "*.parquet") == ["new.parquet"]


def test_a_delta_log_may_hold_signs_that_end_lines_elsewhere(tmp_path):
    lay(tmp_path / "a.parquet")
    log(tmp_path, 0, add("a.parquet"))
    path = tmp_path / "_delta_log" / f"{0:020}.json"
    said = {"commitInfo": {"userMetadata": "one\u2028two\x85three"}}
    path.write_text(f"{path.read_text()}\n{json.dumps(said, ensure_ascii=False)}\n")
    assert names(tmp_path) == ["a.parquet"]


def test_a_delta_table_is_read_from_its_checkpoint_on(tmp_path):
    for name in ("a", "b", "c"):
        lay(tmp_path / f"{name}.parquet")
    rows = [add("a.parquet") | {"remove": None}, add("b.parquet") | {"remove": None}]
    for row in rows:
        row["add"].pop("partitionValues")
    pq.write_table(pa.Table.from_pylist(rows), lay(tmp_path / "_delta_log" / f"{4:020}.checkpoint.parquet"))
    log(tmp_path, 4, remove("b.parquet"))  # is in the checkpoint already: not read again
    log(tmp_path, 5, remove("a.parquet"), add("c.parquet"))
    assert names(tmp_path) == ["b.parquet", "c.parquet"]


def test_partition_folders_of_a_delta_table_may_begin_with_an_underscore_and_be_escaped(tmp_path):
    lay(tmp_path / "_day=a%20b" / "x.parquet")
    lay(tmp_path / "_day=a%20b" / "y.parquet")
    log(tmp_path, 0, add("_day=a%2520b/x.parquet", partitionValues={"_day": "a b"}))
    assert names(tmp_path) == ["_day=a%20b/x.parquet"]
    assert names(tmp_path / "_day=a%20b") == ["x.parquet"]  # a part of the table is still read by its log


def test_a_file_that_a_delta_table_lists_and_that_is_gone_is_a_failure(tmp_path):
    lay(tmp_path / "a.parquet")
    log(tmp_path, 0, add("a.parquet"), add("gone.parquet"))
    [failed] = find_inputs([str(tmp_path)]).failures
    assert failed.path.endswith("gone.parquet")
    assert "it is not there" in failed.error


@pytest.mark.parametrize(
    ("actions", "word"),
    [
        ([add("a.parquet", deletionVector={"storageType": "u"})], "deletion vector"),
        ([add("a.parquet", deletionVector={"storageType": "u"}), remove("a.parquet")], "deletion vector"),
        ([{"protocol": {"minReaderVersion": 3, "readerFeatures": ["catalogOwned-preview"]}}], "catalogOwned-preview"),
        ([add("s3://other/a.parquet")], "file of another folder"),
        (
            [
                {
                    "metaData": {
                        "schemaString": json.dumps(
                            {"fields": [{"name": "text", "metadata": {"delta.columnMapping.physicalName": "col-1"}}]}
                        )
                    }
                }
            ],
            "column mapping",
        ),
    ],
)
def test_a_delta_table_of_more_than_files_is_refused_with_that_word_and_a_remedy(tmp_path, actions, word):
    lay(tmp_path / "a.parquet")
    log(tmp_path, 0, *actions)
    with pytest.raises(InputError, match="Delta table") as error:
        find_inputs([str(tmp_path)])
    assert word in str(error.value)
    assert "write.parquet(NEW)" in str(error.value)


def test_a_delta_log_with_a_gap_is_refused(tmp_path):
    lay(tmp_path / "a.parquet")
    log(tmp_path, 0, add("a.parquet"))
    log(tmp_path, 2, remove("a.parquet"))
    with pytest.raises(InputError, match="lacks version 1"):
        find_inputs([str(tmp_path)])


@pytest.mark.parametrize(
    ("mark", "word"),
    [
        ("metadata/00001-abc.metadata.json", "Iceberg"),
        ("metadata/v2.metadata.json", "Iceberg"),
        ("metadata/version-hint.text", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
    ],
)
def test_tables_that_are_not_followed_are_refused_by_name(tmp_path, mark, word):
    lay(tmp_path / "table" / "data" / "part.parquet")
    note(tmp_path / "table" / mark, {})
    with pytest.raises(InputError, match=f"{word} table"):
        find_inputs([str(tmp_path)])


# ---------------------------------------------------------------- `datasets` and the hub


def test_of_a_saved_data_set_the_files_that_its_state_lists_are_read(tmp_path):
    saved = datasets.Dataset.from_dict({"text": ["One.", "Two."]})
    saved.save_to_disk(tmp_path / "set", num_shards=2)
    mapped = datasets.load_from_disk(str(tmp_path / "set")).map(lambda row: {"text": row["text"] + "!"})
    mapped.shuffle(seed=0)
    assert list((tmp_path / "set").glob("cache-*.arrow"))
    assert names(tmp_path) == ["set/data-00000-of-00002.arrow", "set/data-00001-of-00002.arrow"]


def test_of_saved_splits_those_that_the_data_set_lists_are_read(tmp_path):
    one = datasets.Dataset.from_dict({"text": ["One."]})
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path)
    datasets.DatasetDict({"train": one}).save_to_disk(tmp_path)
    lay(tmp_path / "train" / "cache-0011223344556677.arrow")
    assert names(tmp_path) == ["train/data-00000-of-00001.arrow"]
    assert names(tmp_path / "test") == ["data-00000-of-00001.arrow"]  # named: read


def test_a_saved_file_that_is_gone_is_a_failure(tmp_path):
    datasets.Dataset.from_dict({"text": ["One.", "Two."]}).save_to_disk(tmp_path, num_shards=2)
    (tmp_path / "data-00001-of-00002.arrow").unlink()
    [failed] = find_inputs([str(tmp_path)]).failures
    assert "state.json" in failed.error


def test_a_data_set_whose_rows_an_index_chooses_is_refused(tmp_path):
    lay(tmp_path / "dataset.arrow")
    note(
        tmp_path / "state.json",
        {"_data_files": [{"filename": "dataset.arrow"}], "_indices_data_files": [{"filename": "indices.arrow"}]},
    )
    with pytest.raises(InputError, match="flatten_indices"):
        find_inputs([str(tmp_path)])


def test_the_cache_of_datasets_is_read_without_maps_and_unfinished_folders(tmp_path):
    prepared = tmp_path / "json" / "default" / "0.0.0" / "abc"
    lay(prepared / "json-train.arrow")
    note(prepared / "dataset_info.json", {"splits": {}})
    lay(prepared / "cache-7d0a802b78a30b76_00000_of_00004.arrow")
    lay(prepared.with_name("def.incomplete") / "json-train.arrow")
    lay(tmp_path / "downloads" / ("a" * 64)).rename(tmp_path / "downloads" / ("a" * 64))
    note(tmp_path / "downloads" / f"{'a' * 64}.json", {"url": "u", "etag": None})
    assert names(tmp_path) == ["json/default/0.0.0/abc/json-train.arrow"]


def test_of_the_hubs_cache_the_revision_that_main_names_is_read(tmp_path):
    hub = tmp_path / "datasets--owner--name"
    for revision in ("old", "new"):
        blob = lay(hub / "blobs" / f"{revision}0")
        link = hub / "snapshots" / revision / "a.jsonl"
        link.parent.mkdir(parents=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("new")
    (hub / ".locks").mkdir()
    lay(hub / ".locks" / "a.jsonl")
    assert names(tmp_path) == ["datasets--owner--name/snapshots/new/a.jsonl"]
    assert names(hub / "snapshots" / "old") == ["a.jsonl"]
    (hub / "refs" / "main").unlink()
    with pytest.raises(InputError, match="2 revisions"):
        find_inputs([str(tmp_path)])


# ---------------------------------------------------------------- datamask's own output


def output(folder: Path) -> Path:
    release = folder / "releases" / "0001-abc"
    lay(release / "data" / "a.parquet")
    lay(release / "decisions" / "a.parquet")
    lay(release / "quarantine.parquet")
    note(release / "manifest.json", {"format": "datamask release 2"})
    lay(folder / "work" / "corpus" / "a.parquet")
    note(folder / "work" / "inputs.json", {"version": 1, "files": {}})
    (folder / "latest").symlink_to("releases/0001-abc")
    lay(folder / "forgotten" / "a.parquet")
    note(folder / "tokens" / "npy-0001" / "tokens.json", {})
    return folder


def test_the_output_folder_in_the_input_is_not_read(tmp_path):
    lay(tmp_path / "a.jsonl")
    output(tmp_path / "out")
    for given in (tmp_path, tmp_path / "*", tmp_path / "**"):
        assert [Path(name).name for name in names(given, tmp_path / "out")] == ["a.jsonl"]
        assert [Path(name).name for name in names(given, tmp_path / "other")] == ["a.jsonl"]  # of an earlier run


def test_the_input_folder_may_be_the_output_folder(tmp_path):
    lay(tmp_path / "a.jsonl")
    output(tmp_path)
    assert names(tmp_path, tmp_path) == ["a.jsonl"]
    assert {*told(tmp_path, tmp_path)} == {"work", "releases", "forgotten", "tokens"}  # latest is a link to a release


def test_the_output_folder_behind_a_link_is_not_read(tmp_path):
    lay(tmp_path / "in" / "a.jsonl")
    output(tmp_path / "out")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "newest").symlink_to(tmp_path / "out" / "latest")
    assert names(tmp_path / "in", tmp_path / "out") == ["a.jsonl"]


def test_releases_whose_work_folder_is_gone_are_not_read(tmp_path):
    lay(tmp_path / "a.jsonl")
    (output(tmp_path / "out") / "work").rename(tmp_path / "_gone")
    assert names(tmp_path) == ["a.jsonl"]


def test_of_a_release_that_is_given_the_documents_are_read(tmp_path):
    out = output(tmp_path / "out")
    assert names(out / "latest", tmp_path / "other") == ["data/a.parquet"]
    assert names(out / "releases" / "0001-abc") == ["data/a.parquet"]
    assert names(out / "latest", out) == []  # its own newest release: would change with every run


def test_a_file_of_the_output_folder_that_is_named_is_refused(tmp_path):
    out = output(tmp_path / "out")
    with pytest.raises(InputError, match="name another: -o FOLDER"):
        find_inputs([str(out / "latest" / "data" / "a.parquet")], str(out))


def test_folders_that_only_look_like_these_are_read(tmp_path):
    lay(tmp_path / "metadata" / "sample.metadata.json")  # no Iceberg table
    lay(tmp_path / "state.json")  # of something else
    lay(tmp_path / "snapshots" / "2024" / "a.jsonl")
    lay(tmp_path / "cache-0123.arrow")
    lay(tmp_path / "set" / "cache-train.arrow")
    note(tmp_path / "set" / "dataset_info.json", {})
    note(tmp_path / "manifest.json", {"format": "another"})
    assert {*names(tmp_path)} == {
        "metadata/sample.metadata.json",
        "snapshots/2024/a.jsonl",
        "cache-0123.arrow",
        "set/cache-train.arrow",
        "manifest.json",
    }


def test_a_remote_delta_table_is_read_by_its_log(tmp_path):
    fs = fsspec.filesystem("memory")
    for name in ("old", "new"):
        lay(tmp_path / f"{name}.parquet")
    log(tmp_path, 0, add("old.parquet"))
    log(tmp_path, 1, remove("old.parquet"), add("new.parquet"))
    fs.put(str(tmp_path), "/table", recursive=True)
    try:
        found = find_inputs(["memory://table"])
        assert [file.path.split("/")[-1] for file in found.files] == ["new.parquet"]
        assert not found.failures
    finally:
        fs.rm("/table", recursive=True)


def test_a_users_folder_called_work_is_read(tmp_path):
    lay(tmp_path / "work" / "a.jsonl")
    lay(tmp_path / "releases" / "b.jsonl")
    lay(tmp_path / "tokens" / "c.jsonl")
    assert names(tmp_path, tmp_path / "out") == ["releases/b.jsonl", "tokens/c.jsonl", "work/a.jsonl"]
