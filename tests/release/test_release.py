"""From masks to a published release: nothing lost, nothing changed, the same bytes again."""

import random
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import storage
from datamask.corpus.plan import FailedFile, Part, Shard
from datamask.errors import InputError
from datamask.release import release_folder as layout
from datamask.release.publication import publish
from datamask.release.release_folder import Provenance
from datamask.release.staging import export
from tests.release.made import PROVENANCE, digests, documents, make_corpus, make_shard, released, settings, staged


def data_files(folder):
    return sorted(Path(folder).glob("data/*/*.parquet"))


content = partial(digests, skip=("manifest.json",))


def expected_rows(files):
    """What must come out, computed row by row in Python."""
    rows = {}
    for f in files:
        table = pq.read_table(f.shard.parts[0].path).to_pylist()
        index = storage.read_table(f.index.path).to_pylist()
        masks = {m["chunk_id"]: m for m in storage.read_table(f.masks.path).to_pylist()}
        scores = {s["chunk_id"]: s for s in storage.read_table(f.scores.path).to_pylist()}
        for row, document in enumerate(table):
            if masks.get(row, {}).get("selected"):
                document |= {name: index[row][name] for name in ("id", "token_count")}
                document |= {"shard": f.shard.name, "chunk_id": row}
                document |= {"quality_score": scores[row]["quality_score"], "probability": masks[row]["probability"]}
                rows[f.shard.name, row] = document
    return rows


def test_release_holds_exactly_the_selected_rows_unchanged(tmp_path):
    files, release = released(tmp_path)
    found = {}
    for path in data_files(release.path):
        for row in pq.read_table(path).to_pylist():
            assert (row["shard"], row["chunk_id"]) not in found
            found[row["shard"], row["chunk_id"]] = row
            assert path.parent.name == (row["dump"] or "unspecified")
    assert found == expected_rows(files)
    assert len(found) > 100


def test_every_file_has_the_same_schema_and_fineweb_order(tmp_path):
    files = [
        make_shard(tmp_path, "a", documents(80)),
        make_shard(
            tmp_path,
            "b",
            pa.table({"text": [f"plain {n}" for n in range(50)], "extra": pa.array(range(50), pa.int32())}),
        ),
    ]
    _, release = released(tmp_path, files=files)
    schemas = {pq.read_schema(path).to_string() for path in data_files(release.path)}
    assert len(schemas) == 1 and len(data_files(release.path)) == 3
    names = pq.read_schema(data_files(release.path)[0]).names
    assert names == ["text", "id", "dump", "url", "language", "token_count", "meta", "extra",
                     "quality_score", "probability", "shard", "chunk_id"]  # fmt: skip


def test_input_columns_named_like_ours_are_kept(tmp_path):
    table = documents(60).append_column("quality_score", pa.array([float(n) for n in range(60)]))
    table = table.append_column("shard", pa.array(["theirs"] * 60)).append_column("chunk_id", pa.array(range(60)))
    _, release = released(tmp_path, files=[make_shard(tmp_path, "a", table)])
    row = pq.read_table(data_files(release.path)[0]).to_pylist()[0]
    assert row["shard"] == "a" and row["shard_original"] == "theirs"
    assert row["quality_score_original"] == row["chunk_id"] == row["chunk_id_original"]
    assert row["quality_score"] <= 1


def test_decisions_and_quarantine_account_for_every_row(tmp_path):
    files, release = released(tmp_path, settings(filter={"min_tokens": 5, "languages": ["en", "fr"]}))
    summary = release.manifest()["conservation"]
    read = 0
    for f in files:
        rows = pq.read_table(f"{release.path}/decisions/{f.shard.name}.parquet").to_pylist()
        assert [row["chunk_id"] for row in rows] == list(range(f.index.rows))
        counts = summary["shards"][f.shard.name]
        for outcome in ("selected", "not_selected"):
            assert counts[outcome] == sum(row["outcome"] == outcome for row in rows)
        for outcome in ("filtered", "quarantined"):
            reasons = [row["reason"] for row in rows if row["outcome"] == outcome]
            assert counts[outcome] == {name: reasons.count(name) for name in set(reasons)}
        assert all((row["reason"] is None) == (row["outcome"] in ("selected", "not_selected")) for row in rows)
        read += len(rows)
    assert summary["total"]["rows"] == read
    assert {"exact_duplicate", "language", "min_tokens"} == set(summary["total"]["filtered"])
    assert summary["total"]["quarantined"] == {"null_text": 3, "empty_text": 6}
    quarantine = pq.read_table(f"{release.path}/quarantine.parquet").to_pylist()
    assert len(quarantine) == 9
    for row in quarantine:
        assert row["row"] == row["chunk_id"] and row["file"].endswith(f"input/{row['shard']}.parquet")
    assert summary["total"]["tokens_selected"] == sum(
        sum(pq.read_table(path)["token_count"].to_pylist()) for path in data_files(release.path)
    )


def test_quarantine_names_the_row_in_the_file_for_shards_of_row_groups(tmp_path):
    from dataclasses import replace

    [whole] = [make_shard(tmp_path, "a", documents(150), row_groups=10)]
    part = replace(whole.shard.parts[0], row_groups=(2, 15))
    shard = replace(whole.shard, parts=(part,), name="a")
    # the shard begins at row 20 of the file: make its stage files from those rows
    later = make_shard(tmp_path / "later", "a", documents(150).slice(20), row_groups=10)
    files, release = released(tmp_path, files=[replace(later, shard=shard)])
    [row] = pq.read_table(f"{release.path}/quarantine.parquet").to_pylist()
    assert (row["chunk_id"], row["row"]) == (3, 23)
    texts = {r["text"] for path in data_files(release.path) for r in pq.read_table(path).to_pylist()}
    assert texts <= set(documents(150)["text"].to_pylist()[20:])


@pytest.mark.parametrize("order", [0, 1])
def test_the_same_key_returns_the_same_release_and_writes_nothing(tmp_path, order):
    files, release = released(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in Path(release.path).rglob("*")}
    random.Random(order).shuffle(files)
    again = publish(export(files, settings(run={"retries": 7}), str(tmp_path / "out"), PROVENANCE))
    assert (again.version, again.path, again.new) == (release.version, release.path, False)
    assert before == {path: path.stat().st_mtime_ns for path in Path(release.path).rglob("*")}
    assert not list((tmp_path / "out/work/staging").iterdir())
    assert Path(tmp_path, "out/latest").resolve() == Path(release.path).resolve()


@pytest.mark.parametrize("threads", ["1", "4"])
def test_bytes_do_not_depend_on_threads_or_on_an_interruption(tmp_path, threads, monkeypatch):
    small = settings(release={"rows_per_file": 20, "row_group_rows": 7})
    _, first = released(tmp_path / "one", small)
    monkeypatch.setattr("datamask.release.staging.THREADS", int(threads))
    files, stage = staged(tmp_path / "two", small)
    for path in data_files(stage.folder)[::2]:  # lost: written again; the others are taken as they are
        path.unlink()
    Path(stage.folder, "data", "CC-MAIN-2020-05", ".half.tmp").write_bytes(b"PAR1")
    second = publish(export(files, small, str(tmp_path / "two/out"), PROVENANCE))
    names = set(content(first.path)) - {"quarantine.parquet", "README.md"}  # these name the folder of the input
    assert {n: content(first.path)[n] for n in names} == {n: content(second.path)[n] for n in names}
    assert set(content(second.path)) == set(content(first.path))


@pytest.mark.slow
def test_files_are_bounded_by_rows_and_by_bytes(tmp_path):
    files = make_corpus(tmp_path)
    _, by_rows = released(tmp_path, settings(release={"rows_per_file": 25}), files)
    sizes = [pq.read_metadata(path).num_rows for path in data_files(by_rows.path)]
    assert max(sizes) <= 25 and sum(sizes) == by_rows.manifest()["conservation"]["total"]["selected"]
    _, by_bytes = released(tmp_path, settings(release={"bytes_per_file": 3000}), files)
    for path in data_files(by_bytes.path):
        texts = pq.read_table(path)["text"].to_pylist()
        assert len(texts) == 1 or sum(len(text.encode()) for text in texts) <= 3000
    assert [layout.version_number(v) for v in layout.list_versions(str(tmp_path / "out"))] == [1, 2]
    assert by_bytes.manifest()["previous"]["version"] == by_rows.version


def test_row_groups_are_small_and_smaller_where_texts_are_long(tmp_path, monkeypatch):
    monkeypatch.setattr("datamask.release.data_files.ROW_GROUP_BYTES", 5000)
    _, release = released(tmp_path, settings(release={"row_group_rows": 30}))
    for path in data_files(release.path):
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        assert max(groups) <= 30 and metadata.row_group(0).column(0).compression == "ZSTD"
        assert len(groups) >= metadata.num_rows / 30


def test_old_releases_go_but_neither_latest_nor_the_one_before(tmp_path):
    files = make_corpus(tmp_path)
    out = str(tmp_path / "out")
    versions = []
    for rows in (100, 200, 300, 400):
        _, release = released(tmp_path, settings(release={"rows_per_file": rows, "keep": 1}), files)
        versions.append(release.version)
        assert layout.list_versions(out) == versions[-2:]
    # an old key again: its release was pruned, so it is made anew and becomes the latest
    _, release = released(tmp_path, settings(release={"rows_per_file": 100, "keep": 1}), files)
    assert release.new and layout.version_key(release.version) == layout.version_key(versions[0])
    assert layout.latest_version(out) == release.version
    # an older one that is still there: latest moves back to it, and it is kept however few are
    _, back = released(tmp_path, settings(release={"rows_per_file": 400, "keep": 1}), files)
    assert back.version == versions[-1] and not back.new
    assert layout.latest_version(out) == back.version and back.version in layout.list_versions(out)
    assert not list(Path(out, "releases").glob(".*"))


def test_what_this_run_keeps_holds_where_its_release_is_there_already(tmp_path):
    files = make_corpus(tmp_path)
    for rows in (100, 200, 300):
        _, release = released(tmp_path, settings(release={"rows_per_file": rows}), files)
    _, again = released(tmp_path, settings(release={"rows_per_file": 300, "keep": 1}), files)
    assert not again.new and layout.list_versions(str(tmp_path / "out")) == [release.version]
    assert [version[:4] for version in again.removed] == ["0001", "0002"]


def test_odd_dumps_stay_in_the_data_folder(tmp_path):
    odd = (
        "../../escape",
        "/etc",
        "a/b",
        "..",
        ".",
        "",
        "北京",
        "CC-x",
        "cc-X",
        "unspecified",
        "a\x00b",
        "x" * 300,
        "*?[a]",
        ".hid",
        "a=b",
        None,
    )
    files = [make_shard(tmp_path, "a", documents(400, dumps=odd))]
    _, release = released(tmp_path, files=files, share=1.0)
    paths = data_files(release.path)
    assert len(paths) == len(odd) - 1  # "" and null are both: no dump
    assert {path.resolve().parent.parent for path in paths} == {Path(release.path, "data").resolve()}
    assert len({path.parent.name.casefold() for path in paths}) == len(paths)
    for path in paths:
        assert len({row["dump"] or None for row in pq.read_table(path).to_pylist()}) == 1
    outside = [p for p in tmp_path.rglob("*") if "escape" in p.name and not p.is_relative_to(release.path)]
    assert not outside


def test_nothing_selected_is_an_error_that_says_why(tmp_path):
    with pytest.raises(InputError, match=r"nothing was selected of 440 rows \(filtered: 431 by where"):
        staged(tmp_path, settings(filter={"where": "token_count < 0"}))
    assert not Path(tmp_path, "out/releases").exists()


def test_a_release_names_the_shards_that_failed(tmp_path):
    failed = Provenance({}, {}, {}, (FailedFile("input/torn.parquet", "not a parquet file"),))
    files, stage = staged(tmp_path, settings(run={"allow_failed_shards": True}), provenance=failed)
    release = publish(stage)
    assert release.manifest()["provenance"]["failed"] == [{"path": "input/torn.parquet", "error": "not a parquet file"}]
    assert "input/torn.parquet: not a parquet file" in Path(release.path, "README.md").read_text()


def test_manifest_satisfies_its_schema(tmp_path):
    import jsonschema

    from datamask.release.manifest import manifest_schema, render_manifest

    _, release = released(tmp_path)
    manifest = release.manifest()
    jsonschema.Draft202012Validator.check_schema(manifest_schema())
    jsonschema.validate(manifest, manifest_schema())
    assert render_manifest(manifest) == Path(release.path, "manifest.json").read_bytes()
    listed = {item["path"]: item["sha256"] for item in manifest["files"]}
    assert listed == content(release.path)
    assert set(manifest["dumps"]) == {path.parent.name for path in data_files(release.path)}
    assert sum(manifest["dumps"].values()) == manifest["conservation"]["total"]["selected"]


def test_quarantine_names_the_line_of_the_users_own_file(tmp_path):
    """Two JSON lines files in one converted shard."""
    from dataclasses import replace

    from datamask.corpus.convert import convert_shard

    folder = tmp_path / "input"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": ""}\n{"text": "three"}\n')
    (folder / "b.jsonl").write_text('{"text": "four"}\n{"text": "five"}\n{"text": null}\n')
    paths = [str(folder / name) for name in ("a.jsonl", "b.jsonl")]
    parts = tuple(Part(path, "jsonl", storage.fingerprint(path), 1) for path in paths)
    shard = convert_shard(Shard("s", parts, "f" * 16), settings(), str(tmp_path / "out/work"))
    table = pq.read_table(shard.parts[0].path).select(["text"])
    files = replace(make_shard(tmp_path, "s", table), shard=shard)
    _, release = released(tmp_path, files=[files], share=1.0)
    rows = pq.read_table(f"{release.path}/quarantine.parquet").to_pylist()
    assert [(row["file"], row["row"], row["reason"]) for row in rows] == [
        (str(folder / "a.jsonl"), 1, "empty_text"),
        (str(folder / "b.jsonl"), 2, "null_text"),
    ]
    assert [source["path"] for source in release.manifest()["sources"]] == [part.path for part in parts]


def test_two_publishers_never_interleave(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from datamask.release.verify import verify

    files = make_corpus(tmp_path)
    stages = [staged(tmp_path, settings(release={"rows_per_file": rows}), files)[1] for rows in (20, 50)]
    with ThreadPoolExecutor(4) as pool:
        releases = list(pool.map(publish, [stages[0], stages[1], stages[0], stages[1]]))
    assert sorted(release.new for release in releases) == [False, False, True, True]
    assert {release.key for release in releases} == {stage.key for stage in stages}
    versions = layout.list_versions(str(tmp_path / "out"))
    assert [layout.version_number(version) for version in versions] == [1, 2]
    for release in releases:
        assert verify(release).problems == []
