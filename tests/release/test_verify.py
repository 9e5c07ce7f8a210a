"""verify finds everything that can be done to a release, and --against proves every value."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from datamask.release import release_folder as layout
from datamask.release.manifest import render_manifest
from datamask.release.release_folder import ReleaseFolder
from datamask.release.verify import verify
from tests.release.made import documents, make_shard, released, settings


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    config = settings(release={"rows_per_file": 40, "row_group_rows": 9}, filter={"min_tokens": 3})
    return folder, released(folder, config)[1]


@pytest.fixture
def release(original, tmp_path):
    _, release = original
    path = tmp_path / "releases" / release.version
    shutil.copytree(release.path, path)
    return ReleaseFolder(str(path), release.version, release.key)


def a_file(release, pattern="data/*/*.parquet"):
    return sorted(Path(release.path).glob(pattern))[0]


def rewrite_manifest(release, change, digest=True):
    path = Path(release.path, "manifest.json")
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_bytes(render_manifest(manifest) if digest else json.dumps(manifest, indent=1).encode())


def redescribe(release, path):
    """What someone who knows the format would do after changing a file."""
    import hashlib

    def change(manifest):
        for item in manifest["files"]:
            if item["path"] == path.relative_to(release.path).as_posix():
                item["bytes"] = path.stat().st_size
                item["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
                item["rows"] = pq.read_metadata(path).num_rows

    rewrite_manifest(release, change)


def test_an_untouched_release_has_no_problems(original, release):
    found = verify(release)
    assert found.problems == []
    assert found.rows == release.manifest()["conservation"]["total"]["selected"]
    assert found.files == len(release.manifest()["files"])
    folder, _ = original
    proven = verify(release, [str(folder / "input")])
    assert proven.problems == [] and proven.compared == found.rows


@pytest.mark.parametrize("pattern", ["data/*/*.parquet", "decisions/*.parquet", "quarantine.parquet", "README.md"])
@pytest.mark.parametrize("place", [0.0, 0.31, 0.99])
def test_a_flipped_byte_is_found(release, pattern, place):
    path = a_file(release, pattern)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)
    [problem] = [p for p in verify(release).problems if "sha256" in p]
    assert problem.startswith(path.relative_to(release.path).as_posix())


@pytest.mark.parametrize("pattern", ["data/*/*.parquet", "decisions/*.parquet", "quarantine.parquet", "README.md"])
def test_a_removed_file_is_found(release, pattern):
    path = a_file(release, pattern)
    path.unlink()
    assert f"{path.relative_to(release.path).as_posix()} is missing" in verify(release).problems


@pytest.mark.parametrize("name", ["data/CC-MAIN-2020-05/999_00000.parquet", "notes.txt", ".hidden", "data/x/.tmp"])
def test_an_added_file_is_found(release, name):
    path = Path(release.path, name)
    path.parent.mkdir(exist_ok=True)
    shutil.copy(a_file(release), path)
    assert verify(release).problems == [f"{name} was added"]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["conservation"]["total"].update(selected=1),
        lambda m: m["conservation"]["shards"]["s0"].update(not_selected=0),
        lambda m: m["settings"]["select"].update(lamb=0.9),
        lambda m: m.update(created="1999-01-01T00:00:00+00:00"),
        lambda m: m["provenance"]["certificate"].update(gap=0.0),
        lambda m: m["inputs"].pop(),
        lambda m: m["files"].pop(),
        lambda m: m["files"][0].update(rows=1),
        lambda m: m.update(key="0" * 16),
        lambda m: m.update(version="0009-" + m["key"]),
        lambda m: m["columns"].reverse(),
        lambda m: m.update(extra=1),
        lambda m: m.pop("previous"),
        lambda m: m["files"][0].update(path="../../etc/passwd"),
    ],
)
@pytest.mark.parametrize("digest", [False, True])
def test_an_edited_manifest_is_found(release, change, digest):
    rewrite_manifest(release, change, digest)
    problems = verify(release).problems
    if not digest:
        assert problems
    else:  # with a digest made anew, what can be computed from the rest is still found
        manifest = json.loads(Path(release.path, "manifest.json").read_text())
        free = manifest["created"].startswith("1999")
        assert bool(problems) != free, problems


def test_white_space_in_the_manifest_is_found(release):
    path = Path(release.path, "manifest.json")
    path.write_bytes(path.read_bytes() + b" ")
    assert verify(release).problems == ["manifest.json was edited: its digest is of other content"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"format": 1}'])
def test_a_broken_manifest_is_one_message(release, content):
    Path(release.path, "manifest.json").write_bytes(content)
    problems = verify(release).problems
    assert problems and all(p.startswith("manifest.json") for p in problems)


def test_a_row_taken_out_doubled_or_invented_is_found(release):
    """Even where file, rows and digest are described anew."""
    path = a_file(release)
    table = pq.read_table(path)
    for changed, says in (
        (table.slice(1), "1 rows are missing in the data files"),
        (pa.concat_tables([table, table.slice(0, 1)]), "1 rows are twice"),
        (
            table.set_column(table.column_names.index("chunk_id"), "chunk_id", pc.add(table["chunk_id"], 100_000)),
            "rows should not be",
        ),
    ):
        pq.write_table(changed, path)
        redescribe(release, path)
        assert any(says in problem for problem in verify(release).problems), says


def test_a_decision_changed_is_found(release):
    path = a_file(release, "decisions/*.parquet")
    table = pq.read_table(path)
    outcome = pc.replace_with_mask(
        table["outcome"].combine_chunks(), pc.equal(table["outcome"], "not_selected").combine_chunks(), "selected"
    )
    pq.write_table(table.set_column(table.column_names.index("outcome"), "outcome", outcome), path)
    redescribe(release, path)
    assert any(problem.startswith("conservation of shard s0: selected is") for problem in verify(release).problems)


def test_a_changed_schema_is_found(release):
    path = a_file(release)
    table = pq.read_table(path)
    pq.write_table(table.rename_columns([*table.column_names[:-1], "row"]), path)
    redescribe(release, path)
    problems = verify(release).problems
    assert any("columns chunk_id, row differ from the manifest's" in problem for problem in problems)


@pytest.mark.parametrize("column", ["text", "url", "meta"])
def test_a_changed_value_is_found_against_the_corpus(original, release, column):
    folder, _ = original
    path = a_file(release)
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[2] = "something else" if column != "meta" else {"tags": ["z"], "n": 0}
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(values, table.schema.field(column).type)), path)
    redescribe(release, path)
    assert verify(release).problems == []
    row = table.slice(2, 1).to_pylist()[0]
    assert verify(release, [str(folder / "input")]).problems == [
        f"column {column} of 1 rows is not the source's: {row['shard']}/{row['chunk_id']}"
    ]


def test_a_corpus_that_is_not_the_one_is_named(original, release, tmp_path):
    folder, _ = original
    other = tmp_path / "other"
    shutil.copytree(folder / "input", other)
    assert verify(release, [str(other)]).problems == []  # recognised by content, wherever it lies
    (other / "s1.parquet").unlink()
    [problem] = verify(release, [str(other)]).problems
    assert problem.endswith("s1.parquet is not in the corpus given, or has changed since")


def test_verify_finds_the_release_of_an_output_folder(original):
    folder, release = original
    assert verify(layout.find_release(str(folder / "out"))).problems == []
    assert layout.find_release(str(folder / "out" / "latest")).version == release.version


@pytest.mark.slow
def test_rows_of_a_shard_that_the_manifest_has_not_are_found_among_many(tmp_path):
    _, release = released(tmp_path, files=[make_shard(tmp_path, f"s{n:02}", documents(8, n)) for n in range(40)])
    path = a_file(release)
    table = pq.read_table(path)
    stranger = table.slice(0, 1).set_column(table.column_names.index("shard"), "shard", [["zz"]])
    pq.write_table(pa.concat_tables([table, stranger]), path)
    redescribe(release, path)
    assert "data files hold rows of shard zz, which the manifest has not" in verify(release).problems
