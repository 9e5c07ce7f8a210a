"""The driver on an engine whose work ends at once."""

from concurrent.futures import Future

import pytest

from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.driver import Driver
from datamask.engine import Engine
from datamask.run import stage_reads, wanted
from datamask.stages import ShardFiles
from datamask.work import Done, Made, ShardResult


class Instant(Engine):
    """Remembers what began, in its order."""

    def __init__(self, config):
        super().__init__(config)
        self.order = []

    def submit(self, work):
        future = Future()
        made = (Made(0.0, False),) * len(work.stages)
        future.set_result(Done("", [ShardResult(files, made) for files in getattr(work, "batch", ())], 0.0))
        shards = [files.shard.name for files in getattr(work, "batch", ())]
        self.order += [(stage.name, *shards) for stage in work.stages]
        return future

    def rounds(self, stage, cached, rows, all_files=(), **given):
        self.board.begin(stage.name, total=rows)
        return [None] * len(all_files) if stage.makes else object()


class Counting(Driver):
    asked = 0

    def is_over(self, name):
        self.asked += 1
        return super().is_over(name)


def drive(shards, first=("filter", "duplicates")):
    config = Config(corpus={"input": ["x"]}, run={"shards_per_task": 1})
    files = [ShardFiles(Shard(f"s{number:05}", (), "x")) for number in range(shards)]
    driver = Counting(Instant(config), wanted(config), stage_reads(config), files, first)
    driver.drive()
    return driver


@pytest.mark.parametrize("first", [(), ("filter", "duplicates")])
def test_every_shard_goes_through_every_stage_once_and_in_its_order(first):
    driver = drive(7, first)
    begun = driver.engine.order
    assert len(begun) == len(set(begun))
    for stage in driver.stages.values():
        names = [name for of, *names in begun if of == stage.name for name in names]
        assert sorted(names) == (list(driver.files) if stage.by == "shard" else [])
    for name, reads in driver.reads.items():
        for read in (read for read in reads if driver.stages[name].by == driver.stages[read].by == "shard"):
            for shard in driver.files:
                assert begun.index((read, shard)) < begun.index((name, shard))


def test_the_work_of_an_event_does_not_grow_with_the_shards():
    few, many = drive(20), drive(200)
    assert many.asked < 10 * few.asked
