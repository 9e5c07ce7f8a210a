"""What can go and what stays, rolling back, trends, and a run that the disk cannot hold."""

import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from datamask import cli, storage
from datamask.config import Config
from datamask.corpus.plan import Part, Plan, Shard
from datamask.errors import ConfigError, DamagedFileError, InputError, StorageError
from datamask.filter.forgotten import Entry, record_entries
from datamask.release import housekeeping
from datamask.release.housekeeping import check_room, forecast, remove, roll_back, survey, unneeded
from datamask.release.publication import one_exporter, running
from datamask.release.release_folder import latest_version, list_versions, point_latest
from datamask.release.trends import gather, write_page
from datamask.release.verify import verify
from tests.release.made import documents, make_shard, released, settings


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two releases of one corpus with other filters; files of nobody, and one that is none of ours."""
    tmp_path = tmp_path_factory.mktemp("two") / "live"
    _, first = released(tmp_path, settings(filter={"min_tokens": 2}))
    _, second = released(tmp_path, settings(filter={"min_tokens": 9}))
    work = tmp_path / "out" / "work"
    (work / "embeddings" / f"old-{'a' * 16}.parquet").write_bytes(b"x" * 1000)
    (work / "encoder" / ("b" * 16)).mkdir(parents=True)
    (work / "encoder" / ("b" * 16) / "model.bin").write_bytes(b"x" * 500)
    (work / "embeddings" / "notes.txt").write_text("mine")
    (work / "tmp" / "scratch-lost").mkdir(parents=True)
    (work / "tmp" / "scratch-lost" / "rows.bin").write_bytes(b"x" * 300)
    (work / "sweep").mkdir()
    (work / "sweep" / f"{'c' * 16}.json").write_text("{}")
    shutil.copytree(tmp_path, tmp_path.with_name("kept"), symlinks=True)
    return tmp_path, first, second


@pytest.fixture
def two(made):
    """The folder as it was, at the same path."""
    folder, *releases = made
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("kept"), folder, symlinks=True)
    return str(folder / "out"), *releases


def names(found):
    return {path.rsplit("/", 1)[-1] for path in found.paths}


def test_what_the_newest_releases_need_stays(two):
    out, first, second = two
    both, one = unneeded(out, 2), unneeded(out, 1)
    assert names(both) >= {f"old-{'a' * 16}.parquet", "model.bin"} and not {"notes.txt", f"{'c' * 16}.json"} & names(
        both
    )
    keys = {shard["shard"]: shard["keys"] for shard in first.manifest()["inputs"]}
    masks = {f"{shard}-{key['masks']}.parquet" for shard, key in keys.items()}
    assert not masks & names(both) and masks <= names(one)  # the first's own go with it
    embedded = {f"{shard}-{key['embeddings']}.parquet" for shard, key in keys.items()}
    assert not embedded & names(one)  # the second has them too
    assert "rows.bin" in names(both)
    assert both.bytes >= 1800 and both.kept_for == tuple(list_versions(out))
    assert remove(out, 1) == one
    assert unneeded(out, 1).paths == () and Path(out, "work/embeddings/notes.txt").exists()
    assert not list(Path(out, "work/encoder").glob("*"))
    again = released(Path(out).parent, settings(filter={"min_tokens": 9}))[1]
    assert again.version == second.version and not again.new
    assert verify(first).problems == [] and verify(second).problems == []


def test_keys_are_those_of_files_and_of_nothing_around_them(tmp_path):
    """Not of folders above the output folder, nor of shards that are called like one; whatever files hold."""
    folder = tmp_path / ("0123456789abcdef" * 2)
    _, release = released(folder, files=[make_shard(folder, "e" * 40, documents(20))])
    out, work = str(folder / "out"), folder / "out" / "work"
    fitted = work / "quality" / f"{'d' * 16}.json"  # its own key is in no manifest, what it names is
    fitted.parent.mkdir()
    fitted.write_text(json.dumps({"pool": release.key}))
    begun, old = work / "staging" / ("c" * 16) / "data.parquet", work / "tokenizer" / ("b" * 16) / "tokenizer.json"
    for path in (begun, old, stale := work / "embeddings" / f"{'e' * 40}-{'a' * 16}.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert survey(out).unfinished == ("c" * 16,)
    gone = unneeded(out).paths
    assert {str(begun), str(old), str(stale)} <= {*gone} and str(fitted) not in gone
    assert not [path for path in gone if "/work/parts/" in path]


def test_the_release_before_the_ten_thousandth_has_a_name_that_sorts_behind_it(tmp_path):
    before, now = (f"{number}-{'a' * 16}" for number in (9999, 10000))
    (tmp_path / "releases" / before).mkdir(parents=True)
    (tmp_path / "releases" / before / "manifest.json").write_text("{}")
    point_latest(str(tmp_path), now)
    assert roll_back(str(tmp_path)) == (now, before)


def test_what_maps_keep_for_the_next_run_goes_with_the_run_that_kept_it(two):
    out, first, second = two
    parts = Path(out, "work/parts/filter")
    (parts / "codes-0123456789abcdef.npz").write_bytes(b"x" * 700)
    records = {path for path in parts.iterdir() if path.suffix == ".json"}
    assert len(records) == 2  # the releases have other filters
    both, one = unneeded(out, 2), unneeded(out, 1)
    assert {path for path in both.paths if "/parts/" in path} == {str(parts / "codes-0123456789abcdef.npz")}
    gone = {Path(path) for path in one.paths if "/parts/" in path}
    [record] = gone & records
    [kept] = records - gone
    names = {name for name in json.loads(kept.read_text()) if (parts / name).exists()}
    assert names and set(parts.iterdir()) - gone == {kept, *(parts / name for name in names)}
    remove(out, 1)
    assert set(parts.iterdir()) == {kept, *(parts / name for name in names)}
    for path in parts.glob("*.json"):
        path.unlink()  # made before runs said what they keep
    assert not [path for path in unneeded(out, 1).paths if "/parts/" in path]


def test_nothing_is_removed_beside_a_run_that_may_need_it(two, capsys):
    out, first, second = two
    there = unneeded(out)
    with running(out), running(out):  # two at once
        with pytest.raises(SystemExit) as end:
            cli.main(["clean", out, "--yes"])
        assert end.value.code == 5
        assert f"a run is writing into {out}" in capsys.readouterr().err
        assert unneeded(out) == there
    assert remove(out) == there and unneeded(out).paths == ()


def test_one_run_at_a_time_from_staging_to_latest(tmp_path):
    """The second says once that it waits, and comes in when the first is out."""
    (tmp_path / "work").mkdir()
    order, first_is_in, second_waits = [], threading.Event(), threading.Event()

    def first():
        with one_exporter(str(tmp_path), waiting=lambda: None):
            first_is_in.set()
            assert second_waits.wait(60)
            order.append("first")

    run = threading.Thread(target=first)
    run.start()
    assert first_is_in.wait(60)
    told = []
    with one_exporter(str(tmp_path), waiting=lambda: (told.append(1), second_waits.set())):
        order.append("second")
    run.join()
    assert order == ["first", "second"] and told == [1]


def test_latest_is_kept_wherever_it_points(two):
    out, first, second = two
    assert roll_back(out) == (second.version, first.version) and latest_version(out) == first.version
    assert unneeded(out, 1).kept_for == (first.version, second.version)
    assert roll_back(out, "2") == (first.version, second.version)
    with pytest.raises(ConfigError, match=r"no release 7 in .* \(there are: 0001-"):
        roll_back(out, "7")
    roll_back(out)
    with pytest.raises(InputError, match="is the first release"):
        roll_back(out)


def test_survey_and_its_commands(two, tmp_path, monkeypatch, capsys):
    out, first, second = two
    found = survey(out)
    assert (found.latest, found.releases, found.documents) == (second.version, 2, 440)
    assert found.frees == unneeded(out).bytes and found.free > 0
    assert {stage.name for stage in found.work} >= {"embeddings", "index", "sweep"}

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main([*arguments, out, "--json"])
        assert not end.value.code
        return json.loads(capsys.readouterr().out)

    assert run("status")["latest"] == second.version
    assert run("clean")["removed"] is False and run("clean")["bytes"] == found.frees
    assert run("rollback") == {"from": second.version, "to": first.version}
    monkeypatch.chdir(tmp_path)
    assert run("trends")["page"] is None and not list(tmp_path.glob("*.html"))
    page = str(tmp_path / "page.html")
    assert run("trends", "--to", page)["page"] == page and storage.exists(page)
    with pytest.raises(InputError, match="neither releases/ nor work/"):
        survey(f"{out}/none")


def test_a_folder_in_place_of_latest_is_named_with_what_to_do(two):
    out, first, second = two
    latest = Path(out, "latest")
    latest.unlink()
    shutil.copytree(first.path, latest)
    with pytest.raises(StorageError, match=f"^{latest}: a folder, where a link .*; remove it and run again"):
        point_latest(out, second.version)
    shutil.rmtree(latest)
    point_latest(out, second.version)
    assert latest_version(out) == second.version and not list(Path(out).glob(".latest*"))


def test_survey_and_clean_tell_what_is_gone_or_damaged(two):
    out, _, second = two
    record_entries(out, [Entry("domains", "a.org", "l", 1)])
    shutil.rmtree(second.path)
    assert survey(out).warnings == (f"latest points at {second.version}, which is not there",)
    storage.write_content(f"{out}/work/shards.json", "")
    for look in (survey, unneeded):
        with pytest.raises(DamagedFileError, match=f"^{out}/work/shards.json: not valid JSON .*curate` again to renew"):
            look(out)


def test_nothing_goes_before_there_is_a_release(two):
    out, *_ = two
    shutil.rmtree(f"{out}/releases")
    with pytest.raises(InputError, match="has no release yet"):
        unneeded(out)


def test_trends(two, tmp_path):
    out, first, second = two
    rows = gather(out)
    assert [row["version"] for row in rows] == [first.version, second.version]
    total = second.manifest()["conservation"]["total"]
    assert (rows[1]["selected"], rows[1]["filtered"]) == (total["selected"], sum(total["filtered"].values()))
    assert 0 < rows[0]["quality"] < 1 and rows[0]["seconds"] is None
    write_page(rows, str(tmp_path / "trends.html"))
    page = (tmp_path / "trends.html").read_text()
    assert page.count("<svg") == 7 and "seconds of work: not told" in page and first.version in page
    assert "cost of these seconds: not told" in page and rows[0]["cost"] is None
    storage.write_json(f"{second.path}/report.json", {"stages": [{"seconds": 1800.0}, {"seconds": 5400.0}]})
    assert [row["cost"] for row in gather(out, 1.5)] == [None, 3.0]
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_run_that_does_not_fit_is_not_begun(tmp_path, monkeypatch):
    part = Part("x.parquet", "parquet", "f", 10**9, None, 10**6)
    plan = Plan((Shard("x", (part,), "f"),))
    need = forecast(plan, Config())
    assert need > 10**6 * 1536 + 10**9
    few = Plan((Shard("x", (Part("x.parquet", "parquet", "f", 10**5, None, 100),), "f"),))
    assert forecast(few, Config()) > 30_000 * 768 * 4  # the encoder's words
    assert forecast(few, Config.model_validate({"encoder": {"model": "some/model"}})) < 4 * 10**7
    packed = Plan((Shard("x", (Part("x.jsonl.gz", "jsonl.gz", "f", 10**9),), "f"),))
    assert forecast(packed, Config()) > 2 * 10**9
    usage = SimpleNamespace(total=10**13, free=need // 2)
    monkeypatch.setattr(housekeeping.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        StorageError, match=r"will write about [\d.]+ .?B, and [\d.]+ GB are free there.*datamask clean.*run.room=off"
    ):
        check_room(plan, Config(), str(tmp_path / "not" / "yet"))
    check_room(plan, Config.model_validate({"run": {"room": "off"}}), str(tmp_path))
    usage.free = 3 * need
    check_room(plan, Config(), str(tmp_path))
    usage.free = need // 2
    (tmp_path / "work" / "embeddings").mkdir(parents=True)
    with (tmp_path / "work" / "embeddings" / "x.parquet").open("wb") as file:
        file.truncate(need)  # it is there already: a second run writes nothing
    check_room(plan, Config(), str(tmp_path))
