"""Faults injected into each stage: what is tried again, what is not, what the user reads; nothing lost."""

import errno
import itertools
import json
import threading
import time
from collections import Counter
from functools import wraps
from importlib import import_module

import pyarrow.parquet as pq
import pytest

from datamask.encoders.embed import embed_shard
from datamask.pipeline import STAGES
from tests.release.made import digests

FAULTY = (
    "plan", "convert", "encoder", "quality", "index", "embed", "score", "filter", "signatures", "duplicates", "prices",
    "mask", "export", "report", "publish",
)  # fmt: skip
PER_SHARD = ("convert", "index", "embed", "score", "signatures", "mask")


@pytest.fixture
def inject(monkeypatch):
    """inject(stage, fault, shard): fault(number) runs before the stage's calls, or those for the shard; the stages that
    are made in one reading are tried again together. `calls` counts all."""
    calls = Counter()
    lock = threading.Lock()

    def wrap(stage, fault, shard=None):
        run = STAGES[stage].run if stage != "prices" else "datamask.prices:learn_prices"
        module, _, name = run.partition(":")
        real = getattr(import_module(module), name)
        numbers = itertools.count(1)

        @wraps(real)
        def faulty(*arguments, **keywords):
            with lock:
                calls[stage] += 1
            if shard is None or shard == (keywords.get("shard") or keywords["files"].shard).name:
                fault(next(numbers))
            return real(*arguments, **keywords)

        monkeypatch.setattr(f"{module}.{name}", faulty)

    wrap.calls = calls
    return wrap


def once(error):
    def fault(number):
        if number == 1:
            raise error

    return fault


def always(error):
    def fault(number):
        raise error

    return fault


@pytest.mark.slow
def test_a_fault_that_passes_is_tried_again_in_every_stage(inject, call, corpus, out, found):
    for stage in FAULTY:
        fault = once(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        inject(stage, fault, "shard-01" if stage in PER_SHARD else None)
    status, printed, err = call("curate", "--input", corpus, "--output", out, "--json", "--set", "select.lamb=0.7")
    assert status == 0, err
    assert json.loads(printed)["documents"]["read"] == 180
    for stage in FAULTY:
        assert inject.calls[stage] == (4 if stage in PER_SHARD else 2), stage


@pytest.mark.parametrize("stage", ["index", "score", "mask"])
def test_a_fault_in_a_shard_names_it_and_leaves_no_release(inject, call, corpus, out, stage):
    inject(stage, always(ZeroDivisionError("by nothing")))
    releases = sorted((out / "releases").iterdir())
    status, _, err = call("curate", "--input", corpus, "--output", out, "--set", "select.lamb=0.7")
    assert status == 7
    assert f"shard-01: {stage}: ZeroDivisionError: by nothing" in err
    assert inject.calls[stage] == 3  # a defect is not tried again
    assert sorted((out / "releases").iterdir()) == releases


@pytest.mark.slow
def test_a_shard_that_fails_beside_the_duplicates_is_left_out_of_the_selection(monkeypatch, call, corpus, out):
    """What was decided with it is decided again without."""

    @wraps(embed_shard)
    def broken(files, **given):
        if files.shard.name == "shard-01":
            raise ZeroDivisionError("by nothing")
        return embed_shard(files, **given)

    given = ["curate", "--input", corpus, "--output", out, "--set", "encoder.max_length=64"]
    with monkeypatch.context() as patched:
        patched.setattr("datamask.encoders.embed.embed_shard", broken)
        status, _, err = call(*given)
        assert status == 7
        assert "shard-01: embed: ZeroDivisionError: by nothing" in err
        status, printed, err = call(*given, "--json", "--allow-failed-shards")
    assert status == 0, err
    assert json.loads(printed)["documents"]["read"] == 120
    manifest = json.loads((out / "latest" / "manifest.json").read_text())
    assert sorted(manifest["conservation"]["shards"]) == ["shard-00", "shard-02"]
    prices = pq.read_table(
        out / "work" / "prices" / f"prices-{manifest['provenance']['certificate']['prices']}.parquet"
    )
    assert prices["shard"].to_pylist() == ["shard-00", "shard-02"]


FULL = [pytest.param(stage, marks=pytest.mark.slow) for stage in ("convert", "embed", "mask", "prices")]


@pytest.mark.parametrize("stage", [*FULL, "export"])
def test_a_full_disk_ends_the_run_in_one_line_and_the_next_goes_on(
    inject, monkeypatch, call, curate, corpus, out, stage
):
    with monkeypatch.context():
        inject(stage, always(OSError(errno.ENOSPC, "No space left on device", str(out))))
        status, _, err = call("curate", "--input", corpus, "--output", out, "--set", "select.lamb=0.6")
        assert status == 5
        told = f"No space left on device: {out}; free some space or choose another place"
        assert err.splitlines()[-1] == f"datamask: {told}"
        assert inject.calls[stage] <= (3 if stage in PER_SHARD else 1)
        monkeypatch.undo()
    after = curate(corpus, out, "--set", "select.lamb=0.6")
    assert after["new"]
    assert all(not line["done"] for line in after["stages"] if line["stage"] in ("index", "embed", "score"))


@pytest.mark.parametrize(("stage", "status", "calls"), [("mask", 7, 3), ("duplicates", 5, 1)])
def test_out_of_memory_is_told_with_what_to_set_and_not_tried_again(inject, call, corpus, out, stage, status, calls):
    inject(stage, always(MemoryError("Unable to allocate 8.00 GiB")))
    releases = sorted((out / "releases").iterdir())
    given = ["--set", "select.lamb=0.6", "--set", "select.semantic_duplicates=0.9"]
    ended, _, err = call("curate", "--input", corpus, "--output", out, *given)
    assert ended == status
    assert "out of memory: set run.workers, corpus.shard_rows or encoder.batch_tokens lower" in err
    assert inject.calls[stage] == calls
    assert sorted((out / "releases").iterdir()) == releases


@pytest.mark.slow
def test_a_hang_is_stopped_by_the_time_limit_and_tried_again(inject, call, corpus, out):
    stopped = []

    def hang(number):
        if number == 1:
            try:
                for _ in range(1200):
                    time.sleep(0.05)
            except BaseException as error:
                stopped.append(error)
                raise

    inject("mask", hang)
    limits = ["--set", "run.timeout=4", "--set", "select.lamb=0.7"]
    status, _, err = call("curate", "--input", corpus, "--output", out, *limits)
    assert status == 0, err
    assert len(stopped) == 1
    assert inject.calls["mask"] == 4


@pytest.mark.slow
def test_what_was_published_is_left_alone_by_a_run_that_fails(inject, call, corpus, out, found):
    before = digests(out / "releases" / found["version"])
    inject("publish", always(OSError(errno.EROFS, "Read-only file system", str(out))))
    status, _, _ = call("curate", "--input", corpus, "--output", out, "--set", "select.lamb=0.7")
    assert status == 5
    assert digests(out / "releases" / found["version"]) == before
    assert (out / "latest").resolve().name == found["version"]
