"""Stages of a small pipeline for the tests of the driver and its engines; see `datamask.pipeline.Stage.run`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from datamask.config import Config
from datamask.errors import InputError, TransientError
from datamask.progress import BOARD
from datamask.shares import tell_share
from datamask.storage import Output


class Gate:
    """Counts the shards at work at once, which work until `end` is set."""

    def __init__(self) -> None:
        self.end, self.lock, self.begun = Event(), Lock(), 0
        self.reached = {count: Event() for count in (1, 2, 3, 4)}

    def begin(self) -> None:
        with self.lock:
            self.begun += 1
            self.reached[min(self.begun, 4)].set()
        assert self.end.wait(30)


GATE: list[Gate] = []  # of the test that runs


def embed(shard, folder, progress):
    marks = Path(folder, f"{shard.name}.tries")
    tries = int(marks.read_text()) + 1 if marks.exists() else 1
    marks.write_text(str(tries))
    progress(4)
    if shard.name == "s1":
        raise InputError("s1 is broken")
    if shard.name == "s2" and tries < 3:
        raise TransientError("connection reset")
    return Output(shard.name, "k", 5)


def score(files):
    return Output(f"{files.embeddings.path}!", "k", 5, cached=True)


def atoms(shard):
    if shard.name == "s3":
        raise InputError("s3 has no words")
    return Output(f"{shard.name}?", "k", 5)


def slow(shard):
    GATE[0].begin()
    return Output(shard.name, "k", 5)


def one(value=1):
    if value < 0:
        raise InputError("negative")
    return value + 1


def decide(all_files, maps, config):
    time.sleep(0.1)
    return [Output(f"{files.shard.name} of {len(all_files)}", "k", 5) for files in all_files]


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


def _half(told, item):
    board = BOARD.get()
    tell_share(0.5)
    return board.stages["prices"].rows


def slowly(maps, config):
    first = maps(_half, Told(config, ""), [0, 1])
    return [*first, *maps(_half, Told(config, ""), [2], rest=True)]


def _endless(told, item):
    GATE[0].reached[1].set()
    for _ in range(3000):
        tell_share(0.5)
        time.sleep(0.01)
    GATE[0].end.set()


def endless(maps, config):
    return maps(_endless, Told(config, ""), [0])


def refuses():
    assert GATE[0].reached[1].wait(30)
    raise InputError("another stage failed")


def refused(config, maps, calls, error):
    calls.append(1)
    raise error
