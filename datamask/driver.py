"""Starts each stage when what it reads is there: for a shard on its own, or for the whole corpus.

A batch of shards goes on to its next stage whatever the other batches do, and a failed shard falls out alone. Stages
of one reading of the text begin together on a batch, when what each of them reads is there. Stages that the selection
does not wait for begin with it: it leaves cores free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from queue import SimpleQueue
from threading import Thread
from typing import Any

from datamask.engine import Engine, Pending
from datamask.pipeline import Stage
from datamask.stages import ShardFiles


class Driver:
    """Stages under way on an engine, and what they made: `files` of each shard, `results` of the others.

    What a pipeline looks at between its stages, and what it gives them, are methods that it overrides.
    """

    def __init__(
        self,
        engine: Engine,
        stages: Sequence[Stage],
        reads: Mapping[str, set[str]],
        shards: Iterable[ShardFiles],
        first: Iterable[str] = (),
    ) -> None:
        """
        :param reads: the stages that each of `stages` waits for, by name.
        :param first: stages that the others wait for, with all that these read; empty: each begins when it can.
        """
        self.engine, self.config = engine, engine.config
        self.stages, self.reads = {stage.name: stage for stage in stages}, reads
        self.files = {files.shard.name: files for files in shards}  # that have not failed, in their order
        self.results: dict[str, Any] = {}  # of stages that make no file of a shard
        self._first = self.with_reads(first) if first else set(self.stages)
        self._batches = engine.batches(list(self.files))
        self._waits: dict[str, set[str]] = {}  # of each stage, what those of its reading wait for
        self._batch_reads: dict[str, set[str]] = {}  # of these, what a batch goes on from alone
        self._missing: dict[str, list[int]] = {}  # of them, how many each batch waits for
        self._ready: dict[str, list[int]] = {}  # the batches that wait for none, as heaps: the first begins first
        self._ended: Counter[str] = Counter()  # batches, by their stage
        self._lost = 0  # shards that failed before the selection, after which decisions are made again
        self._saw: dict[str, int] = {}  # `_lost` when a stage of rounds began that has ended
        self._looked: set[str] = set()  # stages whose end was looked at
        self._under_way: Counter[str] = Counter()  # tasks, by their stage
        self._events: SimpleQueue[tuple[Stage, int, Any]] = SimpleQueue()

    # ---------------------------------------------------------------- what a pipeline says

    def given(self, stage: Stage) -> dict[str, Any]:
        """What a stage's function can name in its parameters, beside its shards."""
        return {}

    def look_at(self, stage: Stage) -> None:
        """Called once when all shards are through a stage that they go through together."""

    def look_before(self, stage: Stage) -> None:
        """Called before a stage begins, also again where it does so anew."""

    # ---------------------------------------------------------------- the stages, by what they read

    def drive(self) -> None:
        """Runs every stage; raises the first error that is not a shard's own."""
        self._prepare()
        while not all(self.is_over(name) for name in self.stages):
            self._begin_what_can()
            if not self._under_way.total():
                waiting = [name for name in self.stages if not self.is_over(name)]
                raise RuntimeError(f"no stage can begin, and these have not run: {waiting}")
            self._take(*self.engine.next(self._events))
        self._begin_what_can()  # looks at the last

    def _prepare(self) -> None:
        numbers = range(len(self._batches))
        for name, stage in self.stages.items():
            self._waits[name] = set().union(*(self.reads[one.name] for one in self._begun_with(stage)))
            own = self._batch_reads[name] = self._reads_of_a_batch(name)
            self._missing[name] = [len(own)] * len(numbers)
            self._ready[name] = [] if own else list(numbers)

    def _begun_with(self, stage: Stage) -> list[Stage]:
        """The stages of the same reading, the first of which stands for all."""
        same = [one for one in self.stages.values() if one.reading == stage.reading]
        return same if stage.reading else [stage]

    def is_over(self, name: str) -> bool:
        """Whether all shards are through a stage, or it has decided on those that are left."""
        if self.stages[name].by == "shard":
            return self._ended[name] == len(self._batches)
        if self.stages[name].by == "rounds":
            return self._saw.get(name) == self._lost
        return name in self.results

    def with_reads(self, names: Iterable[str]) -> set[str]:
        """These stages and all that they read, directly or not."""
        found = set(names)
        while more := {read for name in found for read in self.reads.get(name, ())} - found:
            found |= more
        return found

    @property
    def rows(self) -> int:
        """Of all shards that have not failed."""
        return sum(files.shard.rows or 0 for files in self.files.values())

    def _begin_what_can(self) -> None:
        for name, stage in self.stages.items():
            if stage.together and name not in self._looked and self.is_over(name):
                self._looked.add(name)
                self.look_at(stage)
        for name, stage in self.stages.items():
            if stage is not self._begun_with(stage)[0]:
                continue
            if not all(self.is_over(read) for read in self._waits[name] - self._batch_reads[name]):
                continue
            if stage.by == "shard":
                while self._ready[name] and self._is_due(stage):
                    self._begin_batch(stage, heappop(self._ready[name]))
            elif not self.is_over(name) and not self._under_way[name] and self._is_due(stage):
                self.look_before(stage)
                if stage.by == "rounds":
                    self._begin_rounds(stage)
                else:
                    self._under_way[name] += 1
                    shards = [files.shard for files in self.files.values()]
                    future = self.engine.begin(stage, shards=shards, **self.given(stage))
                    future.add_done_callback(partial(self._tell, stage, 0))

    def _reads_of_a_batch(self, name: str) -> set[str]:
        """The stages that a batch goes on from alone, of those that a stage waits for; the others are to be over."""
        if self.stages[name].by != "shard":
            return set()
        read = {self.stages[read] for read in self._waits[name]}
        return {stage.name for stage in read if stage.by == "shard" and not stage.together}

    def _is_due(self, stage: Stage) -> bool:
        """Whether the stage is needed first, or those that are have ended; a cluster has room for both."""
        group = {one.name for one in self._begun_with(stage)}
        first = bool(group & self._first) or all(self.is_over(name) for name in self._first)
        return first or bool(self.config.run.address)

    def _begin_batch(self, stage: Stage, number: int) -> None:
        batch = [self.files[name] for name in self._batches[number] if name in self.files]
        group = self._begun_with(stage)
        if not self._ended[stage.name] + self._under_way[stage.name]:  # the first
            for one in group:
                self.look_before(one)
                self.engine.board.begin(one.name, len(self.files), self.rows)
        self._under_way[stage.name] += 1
        if batch:
            future = self.engine.begin_batch(group, batch, [self.given(one) for one in group])
            future.add_done_callback(partial(self._tell, stage, number))
        else:  # all of them have failed
            self._events.put((stage, number, None))

    def _begin_rounds(self, stage: Stage) -> None:
        """In a thread of its own, so that shards go on meanwhile."""
        self._under_way[stage.name] += 1
        saw, rows, names = self._lost, self.rows, list(self.files)
        given = {**self.given(stage), "all_files": list(self.files.values())}

        def decide() -> None:
            try:
                self._events.put((stage, 0, (saw, names, self.engine.rounds(stage, _are_cached, rows, **given))))
            except BaseException as error:  # raised where the run waits
                self._events.put((stage, 0, error))

        Thread(target=copy_context().run, args=(decide,), name=stage.name, daemon=True).start()

    def _tell(self, stage: Stage, number: int, future: Pending) -> None:
        self._events.put((stage, number, future))

    def _take(self, stage: Stage, number: int, ended: Any) -> None:
        """Books what has ended: a batch, a stage of one worker, or one of rounds."""
        self._under_way[stage.name] -= 1
        if isinstance(ended, BaseException):
            raise ended
        if stage.by == "shard":
            self._take_batch(stage, number, ended)
        elif stage.by == "one":
            self.results[stage.name] = self.engine.end(stage, ended.result())
        else:
            self._take_rounds(stage, *ended)

    def _take_batch(self, stage: Stage, number: int, future: Pending | None) -> None:
        group = self._begun_with(stage)
        ended = {one.name for one in group}
        self._ended.update(ended)
        for name, read in self._batch_reads.items():
            if here := read & ended:
                self._missing[name][number] -= len(here)
                if not self._missing[name][number]:
                    heappush(self._ready[name], number)
        batch = [self.files[name] for name in self._batches[number] if name in self.files]
        through = self.engine.end_batch(group, batch, future) if future else []
        passed = {files.shard.name: files for files in through}
        for files in batch:
            name = files.shard.name
            if name in passed:
                self.files[name] = passed[name].joined([files])
            else:
                del self.files[name]
                self._lost += stage.name != "mask"
        if self.is_over(stage.name):
            for one in group:
                self.engine.board.end(one.name)

    def _take_rounds(self, stage: Stage, saw: int, names: Sequence[str], found: Any) -> None:
        if saw != self._lost:
            return  # a shard has failed since: what is left is decided on again
        self._saw[stage.name] = saw
        if not stage.makes:
            self.results[stage.name] = found
            return
        for name, output in zip(names, found, strict=True):
            if name in self.files:  # else its mask has failed meanwhile, which no stage beside it depends on
                self.files[name] = replace(self.files[name], **{stage.makes: output})


def _are_cached(found: Any) -> bool:
    """Whether a stage of rounds found all that it would have made: outputs of the shards, or what says it itself."""
    return bool(found) and all(output.cached for output in (found if isinstance(found, list) else [found]))
