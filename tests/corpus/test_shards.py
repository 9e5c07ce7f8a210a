from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.corpus import plan
from datamask.corpus.convert import convert_shard
from datamask.corpus.inputs import InputFile
from datamask.corpus.plan import Plan
from datamask.corpus.read import read_batches
from datamask.corpus.shards import safe_name, unique_names
from datamask.errors import InputError
from tests.corpus import build


def names(planned: Plan) -> list[str]:
    return [shard.name for shard in planned.shards]


def test_every_kind_of_input_names_the_same_shards(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    for number in range(3):
        build.write(folder / f"part-{number}.parquet", build.rows(5, 10 * number))
    build.write(folder / "more.jsonl.zst", build.rows(5, 100))
    expected = ["more", "part-0", "part-1", "part-2"]
    for inputs in (
        [folder],
        [folder / "*"],
        [folder / "*.parquet", folder / "more.jsonl.zst"],
        sorted(folder.iterdir(), reverse=True),
        [folder, folder / "part-1.parquet"],
        [f"file://{folder}"],
    ):
        planned, _, _ = build.plan(tmp_path, *inputs, group_bytes=0)
        assert names(planned) == expected, inputs


def test_names_and_fingerprints_do_not_depend_on_where_the_tree_lies(tmp_path: Path) -> None:
    for place in ("one", "two/deep"):
        build.write(tmp_path / place / "x" / "data.parquet", build.rows(5))
        build.write(tmp_path / place / "y" / "data.jsonl", build.rows(5, 10))
        build.write(tmp_path / place / "y" / "other.jsonl", build.rows(5, 20))
    plans = [build.plan(tmp_path, tmp_path / place)[0] for place in ("one", "two/deep")]
    facts = [[(shard.name, shard.fingerprint) for shard in planned.shards] for planned in plans]
    assert facts[0] == facts[1]


def test_same_content_at_two_paths_is_two_shards_of_one_fingerprint(tmp_path: Path) -> None:
    for place in ("a", "b"):
        build.write(tmp_path / place / "data.parquet", build.rows(5))
    planned, _, _ = build.plan(tmp_path, tmp_path / "a" / "data.parquet", tmp_path / "b" / "data.parquet")
    assert len(planned.shards) == 2
    assert planned.shards[0].fingerprint == planned.shards[1].fingerprint
    assert all(name.startswith(("a.data", "b.data")) for name in names(planned))


def test_large_parquet_is_split_by_row_groups_and_never_copied(tmp_path: Path) -> None:
    path = build.write(tmp_path / "in" / "big.parquet", build.rows(95), row_group=10)
    planned, config, work = build.plan(tmp_path, path, shard_rows=30)
    assert [shard.parts[0].row_groups for shard in planned.shards] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert [shard.rows for shard in planned.shards] == [30, 30, 30, 5]
    assert len({shard.fingerprint for shard in planned.shards}) == 4
    texts = []
    for shard in planned.shards:
        assert convert_shard(shard, config, work) is shard
        for batch in read_batches(shard, config, ["text"]):
            texts += batch["text"].to_pylist()
    assert texts == [row["text"] for row in build.rows(95)]
    assert not (tmp_path / "work" / "corpus").exists()


def test_small_files_of_a_folder_are_one_shard(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        for number in range(4):
            build.write(tmp_path / folder / f"{number}.jsonl", build.rows(3, 10 * number))
    planned, _, _ = build.plan(tmp_path, tmp_path)
    assert [len(shard.parts) for shard in planned.shards] == [4, 4]
    assert {Path(part.path).parent for part in planned.shards[0].parts} == {tmp_path / "a"}


def test_new_files_leave_old_shards_alone(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    build.write(folder / "b.jsonl", build.rows(3))
    build.write(folder / "d.jsonl", build.rows(3, 10))
    build.write(folder / "alone" / "x.jsonl", build.rows(3, 10))
    before, _, _ = build.plan(tmp_path, folder)
    for name in ("a", "c", "e", "alone/w"):
        build.write(folder / f"{name}.jsonl", build.rows(3, 100))
    after, _, _ = build.plan(tmp_path, folder, previous=plan.from_json(plan.to_json(before)))
    assert set(before.shards) <= set(after.shards)
    new = [part.path for shard in after.shards if shard not in before.shards for part in shard.parts]
    assert sorted(Path(path).name for path in new) == ["a.jsonl", "c.jsonl", "e.jsonl", "w.jsonl"]


def test_a_changed_or_removed_file_changes_its_shard_alone(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name in "abcd":
        build.write(folder / name[0] / f"{name}.jsonl", build.rows(3, ord(name)))
    before, _, _ = build.plan(tmp_path, folder)
    build.write(folder / "b" / "b.jsonl", build.rows(4))
    (folder / "c" / "c.jsonl").unlink()
    after, _, _ = build.plan(tmp_path, folder, previous=before)
    changed = {shard.name for shard in before.shards if shard not in after.shards}
    assert changed == {"b.b", "c.c"} and names(after) == ["a.a", "b.b", "d.d"]


def test_a_second_plan_hashes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build.write(tmp_path / "in" / "a.parquet", build.rows(5))
    first, _, _ = build.plan(tmp_path, path)
    monkeypatch.setattr("datamask.corpus.inspect.fingerprint", lambda path: pytest.fail("hashed again"))
    assert build.plan(tmp_path, path)[0] == first
    monkeypatch.undo()
    build.write(path, build.rows(6))
    assert build.plan(tmp_path, path)[0] != first


@pytest.mark.parametrize("damage", ["[]", "{", '{"version": 1, "files": {"x": 3}}', '{"version": 1}', "\xff"])
def test_a_damaged_cache_is_made_again(tmp_path: Path, damage: str) -> None:
    path = build.write(tmp_path / "in" / "a.parquet", build.rows(5))
    first, _, work = build.plan(tmp_path, path)
    (Path(work) / "inputs.json").write_text(damage, encoding="latin-1")
    assert build.plan(tmp_path, path)[0] == first


def test_hidden_files_are_ignored_and_others_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    build.write(folder / "a.parquet", build.rows(5))
    for name in (".git/config.jsonl", "_SUCCESS", "_tmp/x.jsonl", ".hidden.jsonl"):
        build.write(folder / "x.jsonl", build.rows(1))
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / "x.jsonl").replace(folder / name)
    (folder / "README.md").write_text("# about")
    build.write(folder / "none.parquet", [])
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), folder / "none.parquet")
    planned, _, _ = build.plan(tmp_path, folder)
    assert names(planned) == ["a"]
    assert [(Path(f.path).name, "not a format" in f.error or f.error) for f in planned.skipped] == [
        (".hidden.jsonl", "its name begins with a dot or an underscore"),
        ("README.md", True),
        ("none.parquet", "no rows"),
    ]


def test_what_cannot_be_read_fails_by_name_beside_what_can(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = build.write(folder / "good.parquet", build.rows(50))
    (folder / "cut.parquet").write_bytes(good.read_bytes()[:-100])
    (folder / "zero.parquet").touch()
    cut = build.write(folder / "cut.jsonl.zst", build.rows(500))
    cut.write_bytes(cut.read_bytes()[:-10])
    build.write(folder / "small.jsonl.zst", build.rows(500))
    build.write(folder / "notext.parquet", [{"id": "1", "size": 3}])
    (folder / "array.json").write_text('[{"text": "a"}]')
    shutil.copy(good, folder / "misnamed.jsonl")
    (folder / "title.jsonl").write_text('{"title": "a"}\n')
    (folder / "wrapped.json").write_text(json.dumps({"version": 1, "data": {"x y": [{"text": "a" * 2_000_000}]}}))
    (folder / "lists.jsonl").write_text('[1, "a"]\n[2, "b"]\n')
    (folder / "away.parquet.dvc").write_text("outs:\n- path: away.parquet\n")
    (folder / "good.parquet.dvc").write_text("outs:\n- path: good.parquet\n")
    (folder / "page.jsonl.gz").write_text("<html>not found</html>")
    planned, _, _ = build.plan(tmp_path, folder)
    assert names(planned) == ["good", "small"]
    errors = {Path(failed.path).name: failed.error for failed in planned.failures}
    assert not any(failed.path in failed.error for failed in planned.failures)  # whoever shows it shows the path
    assert "columns there are: id, size" in errors.pop("notext.parquet")
    assert "0 bytes" in errors.pop("zero.parquet")
    assert "damaged or truncated" in errors.pop("cut.parquet")
    assert "damaged or truncated" in errors.pop("cut.jsonl.zst")
    assert "jq -c" in errors.pop("array.json")
    assert "rename it to .parquet" in errors.pop("misnamed.jsonl")
    assert "columns there are: title" in errors.pop("title.jsonl")
    assert """jq -c '.["data"]["x y"][]'""" in errors.pop("wrapped.json")
    assert "jq -c '{text: .[0]}'" in errors.pop("lists.jsonl")
    assert "dvc pull" in errors.pop("away.parquet.dvc")
    assert "a page of HTML" in errors.pop("page.jsonl.gz")
    assert not errors


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing-*.parquet", "matches no file"),
        ("absent.parquet", "matches no file"),
        ("notes.doc", "not a format datamask reads"),
        ("a.jsonl.lz4", "lz4 -d"),
        ("a.jsonl.br", "brotli -d"),
        ("a.tar.zst", "tar -xf"),
        ("a.TGZ", "tar -xf"),
        ("a.7z", "7z x"),
        ("a.rar", "unrar x"),
        ("a.zip", "unzip"),
        ("a.parquet.gz", "its name says not what"),
        ("notext.parquet", "columns there are: name"),
        ("gone://bucket/x", "valid: a local path, s3://"),
    ],
)
def test_one_clear_message(tmp_path: Path, name: str, message: str) -> None:
    if not name.startswith(("absent", "nothing", "gone")):
        (tmp_path / name).write_text("text")
    build.write(tmp_path / "notext.parquet", [{"name": "a"}])
    with pytest.raises(Exception, match=message.replace("(", r"\(")) as caught:
        build.plan(tmp_path, name if "://" in name else tmp_path / name)
    assert name.split("*")[0] in str(caught.value) and "\n" not in str(caught.value)


def test_no_input_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--input"):
        build.plan(tmp_path)


def test_a_name_with_glob_signs_is_taken_as_it_is(tmp_path: Path) -> None:
    path = build.write(tmp_path / "in" / "data[1].parquet", build.rows(5))
    assert len(build.plan(tmp_path, path)[0].shards) == 1


paths = st.lists(
    st.sampled_from(["a", "A", "b", "a b", "a_b", "ü", "x" * 150, "data", "a.b", "-x"]), min_size=1, max_size=3
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(paths, st.sampled_from([".parquet", ".jsonl", ".jsonl.gz"])), min_size=1, max_size=12),
    st.randoms(),
)
def test_names_are_unique_safe_and_independent_of_order(found: list, shuffle: random.Random) -> None:
    files = {
        "/".join(parts) + end: InputFile(f"/root/{'/'.join(parts)}{end}", "", "", 0, "", None) for parts, end in found
    }
    split = [InputFile(f.path, f.path.removeprefix("/root/"), f.format, 0, "", None) for f in files.values()]
    first = unique_names(split, set())
    shuffle.shuffle(split)
    assert unique_names(split, set()) == first
    moved = [InputFile("/else/where" + f.path.removeprefix("/root"), f.relative, "", 0, "", None) for f in split]
    assert {path.removeprefix("/else/where"): name for path, name in unique_names(moved, set()).items()} == {
        path.removeprefix("/root"): name for path, name in first.items()
    }
    assert len({name.casefold() for name in first.values()}) == len(split)
    for name in first.values():
        assert name == safe_name(name) and len(name) < 130
