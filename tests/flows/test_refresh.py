"""Refresh: what is new alone is embedded and scored; nothing new, no release."""

import fcntl
import json
import shutil
from dataclasses import replace
from functools import wraps

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.changes import Changes, check_gone, check_rows, compare
from datamask.config import Config
from datamask.corpus.plan import Part, Plan, Shard
from datamask.errors import IncompleteError
from datamask.quality.score import score_shard
from datamask.release.release_folder import find_release
from datamask.stages import recorded
from tests.flows.conftest import SMALL, write_shard
from tests.flows.test_curate import stage, work_done


@pytest.fixture
def refresh(call):
    """refresh(output, …) gives the JSON object of a refresh that must succeed; flow: by Prefect's tasks."""

    def run(output, *arguments, flow=False):
        given = ["--output", output, "--json", *arguments, *([] if flow else ["--plain"])]
        status, out, err = call("refresh", *given, small=False)
        assert status == 0, err
        return json.loads(out)

    return run


def test_only_what_is_new_is_embedded_and_scored(refresh, corpus, out, found):
    nothing = refresh(out, "--input", corpus, flow=True)
    assert nothing["new"] is False
    assert "nothing new" in nothing["message"]
    write_shard(corpus, 5)
    now = refresh(out, "--input", corpus, flow=True)
    assert now["previous"] == found["version"]
    assert "1 new (shard-05)" in now["changes"]
    for name in ("index", "embed", "score"):
        assert (stage(now, name)["done"], stage(now, name)["cached"]) == (1, 3)
    assert now["documents"]["read"] == 240
    assert stage(now, "encoder")["cached"] == 1
    assert now["drift"] == []


@pytest.mark.slow
def test_that_old_documents_are_scored_by_another_model_is_told(call, corpus, out, found):
    write_shard(corpus, 5)
    given = "refresh", "--plain", "--output", out, "--input", corpus
    shutil.rmtree(out / "work" / "quality")
    status, _, err = call(*given, small=False)
    assert status == 0 and f"every document is scored again: what release {found['version']} was scored by" in err
    assert err.count("scored again") == 1
    write_shard(corpus, 6)
    status, _, err = call(*given, small=False)
    assert status == 0 and "scored again" not in err


def test_what_settings_name_and_its_content_changed_is_new(refresh, corpus, out, found, tmp_path):
    items, rules = tmp_path / "items.jsonl", tmp_path / "rules.py"
    rules.write_text("import numpy as np\n\nclass Long:\n    def keep(self, d): return np.ones(len(d), bool)\n")
    items.write_text(json.dumps({"text": "an item that no document of this corpus holds " * 3}))
    settings = dict(part.split("=") for part in (*SMALL, f"filter.decontaminate=[{items}]"))
    given = [part for setting in settings.items() for part in ("--set", "=".join(setting))]
    (tmp_path / "own.yaml").write_text(f"filter: {{own: ['{rules}:Long']}}")

    def again():
        return refresh(out, "--input", corpus, "--config", tmp_path / "own.yaml", *given)

    assert again()["new"] and not again()["new"]
    held = next(text for text in pq.read_table(next(corpus.glob("*.parquet")))["text"].to_pylist() if text)
    items.write_text(json.dumps({"text": held}))
    now = again()
    assert now["changed_settings"] == [f"filter.decontaminate: {items} has changed"]
    assert now["documents"]["filtered"]["contaminated"]
    rules.write_text(rules.read_text().replace("return np.ones(len(d), bool)", "return np.arange(len(d)) > 9"))
    now = again()
    assert now["changed_settings"] == [f"filter.own: {rules}:Long has changed"]
    assert now["documents"]["filtered"]["Long"] and not again()["new"]


@pytest.mark.slow
def test_code_that_is_named_again_runs_and_all_else_is_the_releases(call, refresh, corpus, out, found, tmp_path):
    rules, own = tmp_path / "rules.py", tmp_path / "own.yaml"
    rules.write_text("import numpy as np\n\nclass Long:\n    def keep(self, d): return np.arange(len(d)) > 9\n")
    own.write_text(f"filter: {{own: ['{rules}:Long']}}")
    assert refresh(out, "--config", own)["new"]
    write_shard(corpus, 5)
    status, _, err = call("refresh", "--output", out, "--set", "select.lamb=0.4", small=False)
    assert status == 2 and f"({rules}:Long), which is not run" in err and "again: --config FILE" in err
    status, _, err = call("forget", out, "--ids", "shard-00-00007", small=False)
    assert status == 2 and "is recorded, and this makes the release: datamask refresh --output" in err
    now = refresh(out, "--config", own)
    assert now["new"] and now["changed_settings"] == [] and "1 new (shard-05)" in now["changes"]


@pytest.mark.slow
def test_new_documents_unlike_the_old_are_told(call, corpus, out, monkeypatch):
    heard = []
    monkeypatch.setattr("flows.artifacts.emit_event", lambda name, **event: heard.append((name, event)))
    path = write_shard(corpus, 5)
    table = pq.read_table(path)
    short = pa.array([text and " ".join(text.split()[:9]) for text in table["text"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("text"), "text", short)
    pq.write_table(table.drop_columns(["token_count"]), path)
    status, printed, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 0, err
    assert "drift: length of the 60 new documents has shifted (stability index " in printed
    assert [name for name, _ in heard] == ["datamask.drift", "datamask.release.published"]
    event = heard[0][1]
    assert event["resource"]["prefect.resource.id"] == f"datamask.output.{out}"
    assert "length of the 60 new documents" in event["payload"]["message"]


def test_by_the_last_releases_prices_old_documents_keep_their_decisions(refresh, corpus, out, found, monkeypatch):
    monkeypatch.setattr("datamask.prices.DRIFT", 5)
    before = {path: path.read_bytes() for path in (out / "work" / "masks").glob("*.parquet")}
    write_shard(corpus, 5)
    now = refresh(out, "--input", corpus, "--set", "run.refresh=prices")
    assert now["certificate"]["continues"] == found["version"]
    assert (stage(now, "mask")["done"], stage(now, "mask")["cached"]) == (1, 3)
    assert {path: path.read_bytes() for path in before} == before
    assert now["certificate"]["objective"] <= now["certificate"]["upper_bound"]
    certificate = find_release(str(out)).manifest()["provenance"]["certificate"]
    assert certificate["budget"] == pytest.approx(1, abs=0.05) and certificate["solved_gap"] > 0
    again = refresh(out, "--input", corpus, "--set", "run.refresh=prices")
    assert again["new"] is False


@pytest.mark.slow
def test_prices_that_miss_are_solved_again(refresh, corpus, out, found, monkeypatch):
    monkeypatch.setattr("datamask.prices.DRIFT", -1)
    write_shard(corpus, 5)
    now = refresh(out, "--input", corpus, "--set", "run.refresh=prices")
    assert now["certificate"]["continues"] is None and stage(now, "prices")["done"] == 1
    monkeypatch.undo()
    solved = refresh(out, "--input", corpus, "--set", "run.refresh=solve")
    assert solved["new"] is False  # run.refresh is how the work is done, and the selection is the solver's


@pytest.mark.slow
def test_changed_and_gone_shards_and_settings_are_named(refresh, corpus, out, found):
    write_shard(corpus, 1, seed=7)
    (corpus / "shard-02.jsonl").unlink()
    now = refresh(out, "--input", corpus, "--allow-loss", "--set", "select.lamb=0.8")
    assert "1 changed (shard-01)" in now["changes"]
    assert "1 gone (shard-02)" in now["changes"]
    assert "select.lamb: 0.7 → 0.8: the selection is computed again (180 documents)" in now["changes"]
    assert stage(now, "embed")["done"] == 1
    assert now["documents"]["read"] == 120


def test_without_a_release_everything_is_new(call, corpus, out, tmp_path):
    status, _, err = call("refresh", "--output", tmp_path / "new", small=False)
    assert status == 2
    assert "--input" in err
    (tmp_path / "new").mkdir()
    (out / "work").rename(tmp_path / "new" / "work")
    status, printed, err = call("refresh", "--output", tmp_path / "new", "--input", corpus, "--json")
    assert status == 0, err
    assert json.loads(printed)["documents"]["read"] == 180


def test_two_refreshes_never_interleave(call, corpus, out):
    with (out / "work" / "refresh.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 5
    assert "another refresh" in err


@pytest.mark.slow
def test_a_refresh_that_failed_half_way_is_taken_up_by_the_next(refresh, call, corpus, out):
    write_shard(corpus, 5)
    path = write_shard(corpus, 6)
    whole = path.read_bytes()
    table = pq.read_table(path)
    pq.write_table(table, path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"PAR1", b"XXXX"))
    status, _, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 7, err
    path.write_bytes(whole)
    now = refresh(out, "--input", corpus)
    assert now["documents"]["read"] == 300
    assert work_done(now) >= {"embed", "score"}


@pytest.mark.slow
def test_a_relative_input_is_found_from_another_folder(refresh, curate, tmp_path, monkeypatch):
    first, moved, elsewhere = tmp_path / "first", tmp_path / "moved", tmp_path / "elsewhere"
    write_shard(first / "corpus", 0)
    write_shard(elsewhere / "corpus", 7)  # another corpus, of the same relative name
    monkeypatch.chdir(first)
    curate("corpus", "out")
    monkeypatch.chdir(elsewhere)
    assert not refresh("../first/out")["new"]
    write_shard(first / "corpus", 1)
    first.rename(moved)
    assert refresh(moved / "out")["documents"]["read"] == 120
    assert find_release(str(moved / "out")).settings()["corpus"]["input"] == [str(moved / "corpus")]


@pytest.mark.slow
def test_relative_paths_of_settings_are_found_from_another_folder(refresh, curate, tmp_path, monkeypatch):
    first, elsewhere = tmp_path / "first", tmp_path / "elsewhere"
    texts = pq.read_table(write_shard(first / "corpus", 0))["text"].to_pylist()
    elsewhere.mkdir()
    for folder, chosen in ((first, texts[:9]), (elsewhere, texts[9:20])):
        (folder / "target.txt").write_text("\n\n".join(chosen))
        (folder / "items.txt").write_text(chosen[0])
    monkeypatch.chdir(first)
    given = ["--set", "select.target=['tar*.txt']", "--set", "filter.decontaminate=[items.txt]"]
    curate("corpus", "out", *given)
    monkeypatch.chdir(elsewhere)
    assert not refresh("../first/out")["new"]
    assert recorded("../first/out")[1].select.target == [str(first / "tar*.txt")]
    write_shard(first / "corpus", 1)
    assert refresh("../first/out")["changed_settings"] == []
    manifest = find_release("../first/out").manifest()
    assert manifest["settings"]["filter"]["decontaminate"] == [str(first / "items.txt")]
    assert f"select.target: {first}/target.txt" in manifest["named"]
    assert not refresh("../first/out")["new"]


@pytest.mark.slow
def test_an_input_that_is_gone_is_told_with_the_release_that_names_it(call, curate, tmp_path, monkeypatch):
    (first := tmp_path / "first").mkdir()
    write_shard(first / "corpus", 0)
    monkeypatch.chdir(first)
    curate("corpus", "out")
    monkeypatch.chdir(tmp_path)
    (first / "corpus").rename("away")
    status, _, err = call("refresh", "--output", "first/out", small=False)
    assert status == 3
    assert "input 'corpus' of release 0001-" in err and f"made in {first}, is not there" in err
    assert "datamask refresh --output first/out --input PATH" in err
    assert call("refresh", "--output", "first/out", "--input", "away", small=False)[0] == 0


@pytest.mark.slow
def test_shards_that_are_gone_are_named_and_nothing_is_published(call, refresh, corpus, out, found):
    away = corpus.parent / "away.parquet"
    (corpus / "shard-01.parquet").rename(away)
    status, _, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 7
    assert "1 shard of release" in err and "shard-01" in err and "--allow-loss" in err
    assert (out / "latest").resolve().name == found["version"]
    (corpus / "shard-01.parquet").symlink_to(away)  # moved and linked back: nothing is lost
    assert refresh(out, "--input", corpus)["new"] is False
    (corpus / "shard-01.parquet").unlink()
    now = refresh(out, "--input", corpus, "--allow-loss")
    assert now["documents"]["read"] == 120
    manifest = json.loads((out / "latest" / "manifest.json").read_text())
    assert manifest["settings"]["run"]["allow_loss"] is True
    (corpus / "shard-00.parquet").unlink()  # what was allowed once is not allowed for ever
    status, _, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 7 and "shard-00" in err


def parts_in(folder, files):
    return tuple(Part(f"{folder}/{n}.parquet", "parquet", f"sum{n}", 10, rows=5) for n in range(files))


def manifest_of(fingerprint, parts):
    """Of a release whose only shard is made of these files."""
    return {
        "version": "0001-k",
        "inputs": [{"shard": "group", "fingerprint": fingerprint}],
        "sources": [{"shard": "group", **vars(part)} for part in parts],
        "provenance": {"failed": []},
        "settings": Config().model_dump(mode="json"),
        "conservation": {"total": {"rows": sum(part.rows for part in parts)}},
    }


def test_a_file_that_is_gone_from_a_shard_of_several_is_told_as_gone():
    parts = parts_in("in", 3)
    manifest = manifest_of("all", parts)
    renamed = Part("in/other.parquet", "parquet", "sum1", 10, rows=5)
    changes = compare(manifest, Plan((Shard("group", (parts[0], renamed), "fewer"),)), Config())
    assert changes.files == ("in/2.parquet",)  # the other has moved
    assert "1 file gone from them (in/2.parquet)" in changes.describe()
    with pytest.raises(IncompleteError, match="gone from the input: 1 file of release 0001-k"):
        check_gone(changes, Config())


def test_rows_of_a_file_that_moved_from_a_shard_of_several_are_not_lost():
    parts = parts_in("in", 3)
    manifest = manifest_of("all", parts)
    moved = Shard("sub", (replace(parts[2], path="in/sub/2.parquet"),), "sum2")
    check_rows(manifest, Config(), (Shard("group", parts[:2], "fewer"), moved))
    with pytest.raises(IncompleteError, match="5 rows fewer"):
        check_rows(manifest, Config(), (Shard("group", parts[:1], "fewer"), moved))


def test_a_shard_of_several_files_that_moved_beside_a_new_one_is_not_lost():
    manifest = manifest_of("two", parts_in("in", 2))
    now = parts_in("moved", 3)
    changes = compare(manifest, Plan((Shard("other-group", now, "three"),)), Config())
    assert changes.gone == ("group",) and not changes.lost
    changes = compare(manifest, Plan((Shard("other-group", now[1:], "two"),)), Config())
    assert changes.lost == ("group",)  # one of its files is nowhere


@pytest.mark.parametrize(("rows", "lost"), [((100, 100, 50), False), ((100, 100), False), ((100, 40), True)])
def test_a_file_of_other_runs_of_row_groups_is_not_gone(rows, lost):
    """It grew beyond corpus.shard_rows, or that changed: the same file is read as other shards."""
    source = {"shard": "a", "path": "in/a.parquet", "fingerprint": "old", "row_groups": None, "rows": 200}
    manifest = {
        "version": "0001-k",
        "inputs": [{"shard": "a", "fingerprint": "old"}],
        "sources": [source],
        "provenance": {"failed": []},
        "settings": Config().model_dump(mode="json"),
        "conservation": {"total": {"rows": 200}, "shards": {"a": {"rows": 200}}},
    }
    runs = [Part("in/a.parquet", "parquet", "new", 10, (n, n + 1), rows=count) for n, count in enumerate(rows)]
    shards = tuple(Shard(f"a-rg{n:05d}", (part,), f"new{n}") for n, part in enumerate(runs))
    changes = compare(manifest, Plan(shards), Config())
    assert changes.gone == ("a",) and not changes.lost
    check_gone(changes, Config())
    if not lost:
        check_rows(manifest, Config(), shards)
        return
    with pytest.raises(IncompleteError, match=r"60 rows fewer than before .*in/a.parquet 200 → 140"):
        check_rows(manifest, Config(), shards)


def test_a_shard_that_failed_has_lost_no_rows(monkeypatch):
    """It may fail where run.allow_failed_shards says so; of a file that is read as several shards the rest stays."""
    from datamask.pipeline import STAGES
    from datamask.run import Previous, Run
    from datamask.stages import ShardFiles

    parts = [Part("in/a.parquet", "parquet", "old", 10, (n, n + 1), rows=100) for n in range(2)]
    shards = tuple(Shard(f"a-rg{n:05d}", (part,), f"{n}") for n, part in enumerate(parts))
    asked = []
    run = Run.__new__(Run)
    run.plan, run.files, run.stages = Plan(shards), {shards[0].name: ShardFiles(shards[0])}, {}
    run.previous = Previous(check=lambda given: asked.append(given))
    monkeypatch.setattr(Run, "check_complete", lambda self: None)
    monkeypatch.setattr("datamask.run.encoder_caution", lambda config: None)
    monkeypatch.setattr("datamask.run.check_settings", lambda shards, config: None)
    run.config = Config()
    run.look_at(STAGES["convert"])
    assert [shard.name for shard in asked[0]] == [shard.name for shard in shards]


@pytest.mark.slow
def test_rows_that_are_gone_from_a_changed_file_are_counted(call, refresh, corpus, out, found):
    write_shard(corpus, 1, count=40, seed=7)
    status, _, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 7
    assert "20 rows fewer than before (11.1% of its 180" in err and "shard-01 60 → 40" in err
    assert refresh(out, "--input", corpus, "--set", "run.loss=0.2")["documents"]["read"] == 160


@pytest.mark.slow
def test_a_shard_that_failed_in_a_stage_is_tried_again(call, refresh, curate, corpus, out, tmp_path, monkeypatch):
    @wraps(score_shard)
    def fails(files, *arguments, **keywords):
        if files.shard.name == "shard-01":
            raise ZeroDivisionError("by nothing")
        return score_shard(files, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr("datamask.quality.score.score_shard", fails)
        given = ["--allow-failed-shards", "--set", "quality.combine=standard"]
        before = curate(corpus, out, *given)
        assert [failed["path"] for failed in before["failed"]] == ["shard-01"]
        again = refresh(out, "--input", corpus)
        assert again["version"] == before["version"] and not again["new"]  # it fails as before: the same release
    now = refresh(out, "--input", corpus)
    assert "1 tried again (shard-01)" in now["changes"]
    assert now["new"] and now["failed"] == [] and now["documents"]["read"] == 180


def test_a_release_makes_nobody_run_a_models_code(call, corpus, out, found):
    from datamask.release.manifest import render_manifest

    path = out / "latest" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["settings"]["encoder"]["trust_remote_code"] = True
    manifest["provenance"]["encoder"]["trust_remote_code"] = True
    path.write_bytes(render_manifest(manifest))
    write_shard(corpus, 5)
    status, _, err = call("refresh", "--output", out, "--input", corpus, small=False)
    assert status == 2 and "encoder.trust_remote_code=true" in err


@pytest.mark.slow
def test_a_file_of_which_many_rows_are_no_documents_stops_the_run(call, corpus, out):
    path = corpus / "shard-09.jsonl"
    rows = [{"text": "words of a document"} if n % 2 else {"text": " "} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, _, err = call("curate", "--input", corpus, "--output", out)
    assert status == 3
    assert "shard-09.jsonl: 30 of 60 rows are no documents: 30 empty_text" in err and "run.quarantine=1" in err
    status, _, err = call("curate", "--input", corpus, "--output", out, "--set", "run.quarantine=1")
    assert status == 0, err


def test_how_files_are_grouped_reads_again_what_lies_in_other_shards_alone():
    settings = ("corpus.drop: [] → ['a']", "corpus.group_bytes: 9 → 1", "release.keep: 0 → 2")
    said = Changes("0001-a", (), (), (), (), (), (), 3, settings, failures=False, documents=7).describe().split("\n")
    assert said[1] == "release.keep: 0 → 2: older releases are removed"
    assert (
        said[2] == "corpus.group_bytes: 9 → 1: what lies in other shards now is read again, and the release is written "
        "again (7 documents)"
    )
    assert said[3] == "corpus.drop: [] → ['a']: every document is read, embedded and scored again (7 documents)"
