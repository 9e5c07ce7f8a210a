"""Refresh: what is new alone is embedded and scored; nothing new, no release."""

import fcntl
import json

import pyarrow.parquet as pq
import pytest

from tests.flows.conftest import write_shard
from tests.flows.test_curate import stage, work_done


@pytest.fixture
def refresh(call):
    def run(output, *arguments):
        status, out, err = call("refresh", "--output", output, "--json", *arguments, small=False)
        assert status == 0, err
        return json.loads(out)

    return run


def test_only_what_is_new_is_embedded_and_scored(refresh, corpus, out, found):
    nothing = refresh(out, "--input", corpus)
    assert nothing["new"] is False
    assert "nothing new" in nothing["message"]
    write_shard(corpus, 5)
    now = refresh(out, "--input", corpus)
    assert now["previous"] == found["version"]
    assert "1 new (shard-05)" in now["changes"]
    for name in ("index", "embed", "score"):
        assert (stage(now, name)["done"], stage(now, name)["cached"]) == (1, 3)
    assert now["documents"]["read"] == 240
    assert stage(now, "encoder")["cached"] == 1


def test_by_the_last_releases_prices_nothing_is_solved(refresh, corpus, out, found, monkeypatch):
    monkeypatch.setattr("flows.curate.DRIFT", 5)
    write_shard(corpus, 5)
    now = refresh(out, "--input", corpus, "--set", "run.refresh=prices")
    assert "prices" not in {line["stage"] for line in now["stages"]}
    assert now["certificate"]["objective"] <= now["certificate"]["upper_bound"]
    share = now["documents"]["selected"] / now["documents"]["read"]
    assert 0.05 < share < 0.4
    again = refresh(out, "--input", corpus, "--set", "run.refresh=prices")
    assert again["new"] is False


def test_prices_that_miss_are_solved_again(refresh, corpus, out, found, monkeypatch):
    monkeypatch.setattr("flows.curate.DRIFT", -1)
    write_shard(corpus, 5)
    now = refresh(out, "--input", corpus, "--set", "run.refresh=prices")
    assert (stage(now, "drift")["done"], stage(now, "prices")["done"]) == (1, 1)
    monkeypatch.undo()
    solved = refresh(out, "--input", corpus, "--set", "run.refresh=solve")
    assert solved["new"] is False  # run.refresh is how the work is done, and the selection is the solver's


def test_changed_and_gone_shards_and_settings_are_named(refresh, corpus, out, found):
    write_shard(corpus, 1, seed=7)
    (corpus / "shard-02.jsonl").unlink()
    now = refresh(out, "--input", corpus, "--set", "select.lamb=0.8")
    assert "1 changed (shard-01)" in now["changes"]
    assert "1 gone (shard-02)" in now["changes"]
    assert "select.lamb: 0.5 → 0.8: the selection is computed again (180 documents)" in now["changes"]
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
