"""The driver and its engines, on threads and on real Prefect tasks: chaining, failures, retries, the same results."""

import os
from contextvars import copy_context
from threading import Timer

import httpx
import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL

from datamask.config import Config, RunSettings
from datamask.corpus.plan import Part, Shard
from datamask.driver import Driver
from datamask.engine import Threads
from datamask.errors import InputError
from datamask.pipeline import STAGES, Stage
from datamask.progress import EndedError
from datamask.stages import ShardFiles
from datamask.work import batch_label
from flows.stage_runs import Stages
from tests import stage_functions
from tests.stage_functions import Gate

pytestmark = pytest.mark.usefixtures("prefect_server")


def stage(name, by="shard", reads=(), run="", makes="", **more):
    return Stage(name, by, None, reads, run=f"tests.stage_functions:{run or name}", makes=makes, **more)


EMBED = stage("embed", makes="embeddings")
SCORE = stage("score", reads=("embed",), makes="scores")
ATOMS = stage("atoms", makes="atoms")
SLOW = stage("atoms", run="slow", makes="atoms")
ONE = stage("quality", "one", run="one")
COUNTED = stage("export", "rounds", run="counted")


def config(**run):
    return Config(run=RunSettings(**{"retry_delay": 0.01, "workers": 2, **run}))


def shards(count):
    return [ShardFiles(Shard(f"s{i}", (Part(f"{i}", "parquet", "f", 1, rows=5),), "f")) for i in range(count)]


@pytest.fixture(params=["threads", "prefect"])
def on(request):
    """Calls `run(engine)` with an engine of these settings: threads, or Prefect's tasks in a flow."""

    def call(run, **settings):
        if request.param == "threads":
            with Threads(config(**settings)) as engine:
                return run(engine)

        @flow
        def driven():
            with Stages(config(**settings)) as engine:
                return [run(engine)]

        return copy_context().run(driven)[0]

    return call


class Small(Driver):
    """These stages on these shards, which are given `values`."""

    def __init__(self, engine, stages, count, first=(), **values):
        super().__init__(engine, stages, {one.name: set(one.reads) for one in stages}, shards(count), first)
        self.values = values

    def given(self, stage):
        return self.values


def driven(engine, stages, count, first=(), **values):
    small = Small(engine, stages, count, first, **values)
    small.drive()
    return small


# ---------------------------------------------------------------- rounds


@pytest.mark.parametrize("count", [1, 5, 100])
def test_rounds_are_tasks_whose_results_come_in_order(on, tmp_path, count):
    def run(items):
        def with_engine(engine):
            found = engine.rounds(COUNTED, lambda found: False, 1000, folder=str(tmp_path), items=items)
            return found, engine.board.stages["export"]

        return on(with_engine)

    found, line = run(list(range(count)))
    assert found == [item + sum(range(count)) for item in range(count)]
    assert (line.rows, line.done, line.ended) == (1000, 1, True)
    with pytest.raises(InputError, match="-1 is negative"):
        run([1, -1])
    assert (tmp_path / "item--1.tries").read_text() == "1"  # bad input is never tried again


def test_a_round_of_brief_items_is_a_task_for_each_worker_once_that_is_known(on, tmp_path, monkeypatch):
    labels, items = [], list(range(10, 19))
    for kind in (Threads, Stages):
        submit = kind.submit
        monkeypatch.setattr(
            kind, "submit", lambda self, work, submit=submit: labels.append(work.label) or submit(self, work)
        )
    found = on(lambda engine: engine.rounds(COUNTED, lambda found: False, 1000, folder=str(tmp_path), items=items))
    assert found == [item + sum(items) for item in items]
    assert labels[:9] == [f"export: tried, {number} of 9" for number in range(1, 10)]
    assert labels[9:] == ["export: tried, 1 to 5 of 9", "export: tried, 6 to 9 of 9"]


def test_a_long_item_moves_its_stage_and_the_rest_is_the_rest(on):
    slowly = stage("prices", "rounds", run="slowly", rounds=48)
    found = on(lambda engine: engine.rounds(slowly, lambda found: False, 4800), workers=1)
    assert found == [25, 75, 100 + (4800 - 100) / 2]  # a round is 100 rows; the last is all that is left


@pytest.mark.parametrize(("path", "tries"), [("/api/artifacts/", 1), ("", 3)])
def test_a_server_that_is_gone_is_not_asked_again_by_rounds(path, tries):
    """Its client has tried for as long as it may; an address elsewhere is tried again."""
    url = PREFECT_API_URL.value().removesuffix("/api") + path if path else "http://store/bucket"
    refused, calls = stage("export", "rounds", run="refused"), []
    error = httpx.ConnectError("refused", request=httpx.Request("POST", url))

    @flow
    def run():
        with Stages(config(retries=2)) as stages:
            stages.rounds(refused, lambda found: False, 10, calls=calls, error=error)

    with pytest.raises(httpx.ConnectError):
        copy_context().run(run)
    assert len(calls) == tries


# ---------------------------------------------------------------- shards


@pytest.mark.parametrize("size", [1, 3])
def test_a_failed_shard_falls_out_alone_and_flaky_ones_are_tried_again(on, tmp_path, size):
    def run(engine):
        small = driven(engine, [EMBED, SCORE, ONE], 4, folder=str(tmp_path), value=1)
        return small, engine.failures, engine.board.stages

    small, failures, lines = on(run, shards_per_task=size)
    assert [files.scores.path for files in small.files.values()] == ["s0!", "s2!", "s3!"]
    assert [(failure.shard, failure.stage, failure.error) for failure in failures] == [("s1", "embed", "s1 is broken")]
    tries = {path.stem: int(path.read_text()) for path in tmp_path.iterdir()}
    assert tries["s2"] == 3
    if size == 1:
        assert tries == {"s0": 1, "s1": 1, "s2": 3, "s3": 1}  # bad input is never tried again
    assert (lines["embed"].done, lines["embed"].failed) == (3, 1)
    assert (lines["score"].cached, lines["score"].rows) == (3, 15)
    assert small.results["quality"] == 2


@pytest.mark.parametrize("size", [1, 3])
def test_stages_beside_each_other_join_what_they_made_and_a_failure_in_one_is_the_shards(on, tmp_path, size):
    def run(engine):
        return driven(engine, [EMBED, ATOMS, SCORE], 5, folder=str(tmp_path)), engine.failures

    small, failures = on(run, shards_per_task=size)
    assert [(f.embeddings.path, f.atoms.path, f.scores.path) for f in small.files.values()] == [
        (name, f"{name}?", f"{name}!") for name in ("s0", "s2", "s4")
    ]
    assert sorted((failure.shard, failure.stage) for failure in failures) == [("s1", "embed"), ("s3", "atoms")]


def test_retries_end(on, tmp_path):
    def run(engine):
        driven(engine, [EMBED], 4, folder=str(tmp_path))
        return engine.failures

    assert sorted(failure.shard for failure in on(run, retries=1)) == ["s1", "s2"]


def test_what_is_decided_over_the_corpus_is_decided_again_when_a_shard_fails_beside_it(on):
    """A decision over five shards does not stand for the four that came through."""
    filters = stage("filter", "rounds", run="decide", makes="filters")
    last = stage("duplicates", "rounds", reads=("filter", "atoms"), run="decide", makes="duplicates")
    small = on(lambda engine: driven(engine, [filters, ATOMS, last], 5, first=["filter"]))
    assert list(small.files) == ["s0", "s1", "s2", "s4"]
    assert {files.filters.path[3:] for files in small.files.values()} == {"of 4"}
    assert {files.duplicates.path[3:] for files in small.files.values()} == {"of 4"}


def test_stages_that_others_do_not_wait_for_begin_after_those_that_they_do(on, monkeypatch):
    gate = Gate()
    gate.end.set()
    monkeypatch.setattr(stage_functions, "GATE", [gate])
    begun = []

    class Watched(Small):
        def look_before(self, stage):
            begun.append((stage.name, gate.begun))

        def _take_rounds(self, stage, saw, names, found):
            begun.append((stage.name, gate.begun))
            super()._take_rounds(stage, saw, names, found)

    filters = stage("filter", "rounds", run="decide", makes="filters")

    def run(engine):
        small = Watched(engine, [SLOW, filters], 5, ["filter"])
        small.drive()
        return small

    small = on(run, workers=4, shards_per_task=1)
    assert begun == [("filter", 0), ("filter", 0), ("atoms", 0)] and gate.begun == 5
    assert [files.atoms.path for files in small.files.values()] == [f"s{i}" for i in range(5)]


def test_a_run_that_ends_begins_nothing_more(on, monkeypatch):
    gate = Gate()
    monkeypatch.setattr(stage_functions, "GATE", [gate])
    held = []

    def run(engine):
        held.append(engine)
        engine.begin_batch([SLOW], shards(2), [{}])
        assert gate.reached[1].wait(30)
        Timer(0.3, gate.end.set).start()
        raise InputError("another stage failed")

    with pytest.raises(InputError, match="another stage"):
        on(run)
    with pytest.raises(EndedError):
        held[0].begin_batch([SLOW], shards(1), [{}])
    assert gate.begun == 1


def test_a_solve_stops_at_its_next_step_when_its_run_ends(on, monkeypatch):
    gate = Gate()
    monkeypatch.setattr(stage_functions, "GATE", [gate])
    solves, fails = stage("prices", "rounds", run="endless"), stage("quality", "one", run="refuses")
    with pytest.raises(InputError, match="another stage"):
        on(lambda engine: driven(engine, [solves, fails], 1))
    assert gate.reached[1].is_set() and not gate.end.is_set()


def test_a_stage_that_cannot_begin_is_an_error_and_no_silence(on):
    with pytest.raises(RuntimeError, match="no stage can begin"):
        on(lambda engine: driven(engine, [stage("score", reads=("score",), makes="scores")], 1))


def test_the_error_of_a_stage_of_one_worker_is_the_runs(on):
    with pytest.raises(InputError, match="negative"):
        on(lambda engine: driven(engine, [ONE], 1, value=-1))


# ---------------------------------------------------------------- names and sizes


def test_names_say_which_shards():
    assert batch_label(shards(1)) == "s0"
    assert batch_label(shards(3)) == "s0 … s2 (3)"


@pytest.mark.parametrize(
    ("workers", "shard_count", "batches", "size"),
    [(2, 30, 30, 1), (2, 100, 25, 4), (2, 2500, 32, 79), (64, 2500, 834, 3), (64, 100_000, 1000, 100)],
)
def test_many_shards_do_not_mean_as_many_task_runs(workers, shard_count, batches, size):
    sizes = [len(batch) for batch in Threads(config(workers=workers)).batches([str(i) for i in range(shard_count)])]
    assert sum(sizes) == shard_count
    assert (len(sizes), max(sizes)) == (batches, size)


def test_every_declared_stage_runs_a_function_that_is_there():
    for declared in STAGES.values():
        module, _, function = declared.run.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function)), declared.name


def test_the_threads_are_as_many_as_asked():
    assert Threads(config(workers=3)).workers == 3
    assert Threads(Config()).workers == os.cpu_count()
