"""The driver, on real Prefect tasks: chaining, failures, retries, the same results on every engine."""

from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock, Timer

import httpx
import pytest
from prefect import flow, task
from prefect.settings import PREFECT_API_URL

from datamask.config import Config, RunSettings
from datamask.corpus.plan import Part, Shard
from datamask.errors import InputError, TransientError
from datamask.pipeline import STAGES
from datamask.shares import tell
from datamask.stages import ShardFiles
from datamask.storage import Output
from flows import stage_runs
from flows.stage_runs import LeftError, Stages, Step, label
from tasks.batch import run_batch
from tasks.options import STAGE
from tasks.progress import BOARD

pytestmark = pytest.mark.usefixtures("prefect_server")


def config(**run):
    return Config(run=RunSettings(**{"retry_delay": 0.01, "workers": 2, **run}))


def shards(count):
    return [ShardFiles(Shard(f"s{i}", (Part(f"{i}", "parquet", "f", 1, rows=5),), "f")) for i in range(count)]


@task(name="embed", task_run_name="embed {label}", **STAGE)
def embed(batch, label, folder):
    def one(files, progress):
        marks = Path(folder, f"{files.shard.name}.tries")
        tries = int(marks.read_text()) + 1 if marks.exists() else 1
        marks.write_text(str(tries))
        if files.shard.name == "s1":
            raise InputError("s1 is broken")
        if files.shard.name == "s2" and tries < 3:
            raise TransientError("connection reset")
        return replace(files, embeddings=Output(files.shard.name, "k", 5)), False

    return run_batch("embed", batch, one)


@task(name="score", task_run_name="score {label}", **STAGE)
def score(batch, label):
    def one(files, progress):
        return replace(files, scores=Output(f"{files.embeddings.path}!", "k", 5)), True

    return run_batch("score", batch, one)


@task(name="whole", **STAGE)
def whole(value):
    if value < 0:
        raise InputError("negative")
    return value + 1


@dataclass(frozen=True)
class Told:
    config: Config
    folder: str
    more: int = 0


def _tried(told, item):
    marks = Path(told.folder, f"item-{item}.tries")
    tries = int(marks.read_text()) + 1 if marks.exists() else 1
    marks.write_text(str(tries))
    if item == 3 and tries < 3:
        raise TransientError("connection reset")
    if item < 0:
        raise InputError(f"{item} is negative")
    return item + told.more


def counted(folder, config, maps, items):
    first = maps(_tried, Told(config, folder), items, [10] * len(items))
    return maps(_tried, Told(config, folder, more=sum(first)), items)


@pytest.mark.parametrize("count", [1, 5, 100])
def test_rounds_are_tasks_whose_results_come_in_order(tmp_path, count):
    @flow
    def run(items):
        with Stages(config()) as stages:
            found = stages.rounds(
                "export", counted, 1000, lambda found: False, folder=str(tmp_path), config=config(), items=items
            )
            return found, stages.board.stages["export"]

    found, line = run(list(range(count)))
    assert found == [item + sum(range(count)) for item in range(count)]
    assert (line.rows, line.done, line.ended) == (1000, 1, True)
    with pytest.raises(InputError, match="-1 is negative"):
        run([1, -1])
    assert (tmp_path / "item--1.tries").read_text() == "1"  # bad input is never tried again


def test_a_round_of_brief_items_is_a_task_for_each_worker_once_that_is_known(tmp_path, monkeypatch):
    labels, items = [], list(range(10, 19))
    submit = Stages._submit
    monkeypatch.setattr(
        Stages, "_submit", lambda stages, *given: labels.append(given[1]["label"]) or submit(stages, *given)
    )

    @flow
    def run():
        with Stages(config(workers=2)) as stages:
            return stages.rounds(
                "export", counted, 1000, lambda found: False, folder=str(tmp_path), config=config(), items=items
            )

    assert run() == [item + sum(items) for item in items]
    assert labels[:9] == [f"export: tried, {number} of 9" for number in range(1, 10)]
    assert labels[9:] == ["export: tried, 1 to 5 of 9", "export: tried, 6 to 9 of 9"]


def _slow(told, item):
    board = BOARD.get()
    tell(0.5)
    return board.stages["prices"].rows


def _slowly(maps, config):
    first = maps(_slow, Told(config, ""), [0, 1])
    return [*first, *maps(_slow, Told(config, ""), [2], rest=True)]


def test_a_long_item_moves_its_stage_and_the_rest_is_the_rest():
    @flow
    def run():
        with Stages(config(workers=1)) as stages:
            return stages.rounds("prices", _slowly, rows, lambda found: False, config=config())

    rows = 100 * STAGES["prices"].rounds  # a round is 100 rows: the first of two items, the next all that is left
    assert run() == [25, 75, 100 + (rows - 100) / 2]


@flow
def drive(settings, folder, count=4):
    with Stages(settings) as stages:
        through = stages.each([Step(embed, {"folder": folder}), Step(score, {})], shards(count))
        return {
            "through": [files.scores.path for files in through],
            "failures": stages.failures,
            "lines": stages.board.stages,
            "whole": stages.whole(whole, value=1),
        }


@pytest.mark.parametrize("size", [1, 3])
def test_a_failed_shard_falls_out_alone_and_flaky_ones_are_tried_again(tmp_path, size):
    done = drive(config(shards_per_task=size), str(tmp_path))
    assert done["through"] == ["s0!", "s2!", "s3!"]
    assert [(failure.shard, failure.stage, failure.error) for failure in done["failures"]] == [
        ("s1", "embed", "s1 is broken")
    ]
    tries = {path.stem: int(path.read_text()) for path in tmp_path.iterdir()}
    assert tries["s2"] == 3
    if size == 1:
        assert tries == {"s0": 1, "s1": 1, "s2": 3, "s3": 1}  # bad input is never tried again
    assert (done["lines"]["embed"].done, done["lines"]["embed"].failed) == (3, 1)
    assert (done["lines"]["score"].cached, done["lines"]["score"].rows) == (3, 15)
    assert done["whole"] == 2


@task(name="atoms", task_run_name="atoms {label}", **STAGE)
def atoms(batch, label, broken):
    def one(files, progress):
        if files.shard.name == broken:
            raise InputError(f"{broken} has no words")
        return replace(files, atoms=Output(f"{files.shard.name}?", "k", 5)), False

    return run_batch("atoms", batch, one)


@pytest.mark.parametrize("size", [1, 3])
def test_steps_beside_each_other_join_what_they_made_and_a_failure_in_one_is_the_shards(tmp_path, size):
    @flow
    def run():
        with Stages(config(shards_per_task=size)) as stages:
            steps = [
                Step(embed, {"folder": str(tmp_path)}),
                Step(atoms, {"broken": "s3"}, beside=True),
                Step(score, {}),
            ]
            through = stages.each(steps, shards(5))
            return through, stages.failures

    through, failures = run()
    assert [(f.embeddings.path, f.atoms.path, f.scores.path) for f in through] == [
        (name, f"{name}?", f"{name}!") for name in ("s0", "s2", "s4")
    ]
    assert sorted((failure.shard, failure.stage) for failure in failures) == [("s1", "embed"), ("s3", "atoms")]


@task(name="slow", task_run_name="slow {label}", **STAGE)
def slow(batch, label, log):
    def one(files, progress):
        log.begin()
        return files, False

    return run_batch("slow", batch, one)


class Log:
    """Counts the shards at work at once, which work until `end` is set."""

    def __init__(self):
        self.end, self.lock, self.begun = Event(), Lock(), 0
        self.reached = {count: Event() for count in (1, 2, 3, 4)}

    def begin(self):
        with self.lock:
            self.begun += 1
            self.reached[min(self.begun, 4)].set()
        assert self.end.wait(30)


def test_stages_beside_others_leave_them_room_until_they_are_waited_for(monkeypatch):
    monkeypatch.setattr(stage_runs, "REFRESH", 0.05)
    log = Log()

    @flow
    def run():
        with Stages(config(workers=4, shards_per_task=1)) as stages:
            beside = stages.beside(partial(stages.each, [Step(slow, {"log": log})], shards(5)))
            assert log.reached[2].wait(30)
            assert stages.whole(whole, value=6) == 7  # goes by
            before = log.begun
            assert not beside.ended(0)
            assert log.reached[4].wait(30)  # room for all, now
            log.end.set()
            return before, stages.join(beside)

    assert run() == (2, shards(5))


def test_what_fails_beside_fails_where_it_is_waited_for():
    @flow
    def fails():
        with Stages(config()) as stages:
            beside = stages.beside(partial(stages.whole, whole, value=-1))
            assert stages.whole(whole, value=1) == 2
            stages.join(beside)

    with pytest.raises(InputError, match="negative"):
        fails()


def test_a_run_that_ends_begins_nothing_more_beside_it():
    log, held = Log(), []

    @flow
    def fails():
        with Stages(config(shards_per_task=1)) as stages:
            held.append(stages.beside(partial(stages.each, [Step(slow, {"log": log})], shards(5))))
            assert log.reached[1].wait(30)
            Timer(0.2, log.end.set).start()
            raise InputError("another stage failed")

    with pytest.raises(InputError, match="another stage"):
        fails()
    assert held[0].ended(30)
    with pytest.raises(LeftError):
        held[0].result()
    assert log.begun == 1


def test_retries_end(tmp_path):
    done = drive(config(retries=1), str(tmp_path))
    assert [failure.shard for failure in done["failures"]] == ["s1", "s2"]


@pytest.mark.parametrize(("path", "tries"), [("/api/artifacts/", 1), ("", 3)])
def test_a_server_that_is_gone_is_not_asked_again_by_rounds(path, tries):
    """Its client has tried for as long as it may; an address elsewhere is tried again."""
    url = PREFECT_API_URL.value().removesuffix("/api") + path if path else "http://store/bucket"
    calls = []

    def refused(config, maps):
        calls.append(1)
        raise httpx.ConnectError("refused", request=httpx.Request("POST", url))

    @flow
    def run():
        with Stages(config(retries=2)) as stages:
            stages.rounds("export", refused, 10, lambda found: False, config=config())

    with pytest.raises(httpx.ConnectError):
        copy_context().run(run)
    assert len(calls) == tries


def test_the_error_of_a_whole_stage_is_the_flows():
    @flow
    def fails():
        with Stages(config()) as stages:
            stages.whole(whole, value=-1)

    with pytest.raises(InputError, match="negative"):
        fails()


def test_names_say_which_shards():
    assert label(shards(1)) == "s0"
    assert label(shards(3)) == "s0 … s2 (3)"


@pytest.mark.parametrize(
    ("workers", "shard_count", "batches", "size"),
    [(2, 30, 30, 1), (2, 100, 25, 4), (2, 2500, 32, 79), (64, 2500, 834, 3), (64, 100_000, 1000, 100)],
)
def test_many_shards_do_not_mean_as_many_task_runs(workers, shard_count, batches, size):
    @flow
    def sizes():
        with Stages(config(workers=workers)) as stages:
            return [len(batch) for batch in stages._batches(shards(shard_count))]

    assert sum(found := sizes()) == shard_count
    assert (len(found), max(found)) == (batches, size)
