"""What calls the work of a run: `Threads` of this process, or Prefect's tasks (`flows.stage_runs`).

An engine keeps the run's books: the board of progress, the shards that failed, the seconds of each.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import ceil, inf
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from datamask.arithmetic import prepared_by_numpy, same_arithmetic
from datamask.config import Config
from datamask.corpus.held_text import HeldText, holding
from datamask.errors import ConfigError, MissingExtraError, StorageError
from datamask.libraries import load_drawing, loaded, loading
from datamask.pipeline import STAGES, Stage
from datamask.progress import BOARD, Board, EndedError, stop_if_ended
from datamask.release.release_folder import Picture, ReleaseFolder
from datamask.shares import hear_shares
from datamask.stages import ShardFiles
from datamask.work import (
    BatchWork,
    Done,
    OneWork,
    RoundWork,
    ShardFailure,
    ShardResult,
    ShardsFailed,
    Work,
    can_retry,
    describe,
)

T = TypeVar("T")

# tasks of a stage, unless run.shards_per_task says otherwise
PER_WORKER = 16  # enough to even the load; more cost time: some 20 ms each, of this process and of Prefect's server
BRIEF = 1.0  # seconds that a task's items take, at least, where their rounds of before say how long one takes
AT_MOST = 1000  # more slow a server down
REFRESH = 2.0  # seconds between updates of what is shown of the run
LIGHT = ("plan", "convert", "languages", "signatures")  # stages that need not wait for the later ones' libraries
FITTED = ("tokenizer", "encoder", "quality")  # nor these, where NumPy fits them


class Pending(Protocol):
    """Work under way."""

    def result(self) -> Done:
        """What it gave, once it has ended; the error that it ended in after its retries."""
        ...

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        """Calls `call` with this object when it has ended, in any thread."""
        ...


@dataclass
class ShardTimes:
    """Seconds a shard took in each stage; `worked` are those whose file was not there."""

    seconds: dict[str, float] = field(default_factory=dict)
    worked: list[str] = field(default_factory=list)


class Engine:
    """Where a run's work is done. A context manager: leaving it ends what it started."""

    holds_text = True  # that it has decoded, for stages that read it again in this process

    def __init__(self, config: Config) -> None:
        self.config = config
        self.began = time.monotonic()
        self.board = BOARD.get() or Board()
        self.failures: list[ShardFailure] = []
        self.times: dict[str, ShardTimes] = {}
        self._waited: dict[str, float] = {}  # seconds of a stage in rounds that its items did not work, below 0 if more
        self._took: dict[tuple[str, str], float] = {}  # seconds of an item in the last round of a stage that did this

    def submit(self, work: Work) -> Pending:
        """Begins work."""
        raise NotImplementedError

    def wait_for_libraries(self, work: Work) -> None:
        """Waits until what the work needs is loaded, as far as it is being loaded."""
        light = {*LIGHT, *FITTED} if prepared_by_numpy(self.config) else {*LIGHT}
        if not {stage.name for stage in work.stages} <= light:
            loaded()

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Says something of the run in its log."""
        logging.getLogger("datamask").log(level, "%s", text)

    def update(self) -> None:
        """Called every `REFRESH` seconds while the run waits."""

    def show_failures(self, failed: Sequence[tuple[str, str]]) -> None:
        """Shows the files and shards that failed, each with its error."""

    def show_changes(self, changes: str) -> None:
        """Shows what a refresh found changed."""

    def show_drift(self, shifts: Sequence[str], release: str) -> None:
        """Shows in what a refresh's new documents are unlike the old ones."""

    def show(
        self, release: ReleaseFolder, found: Mapping[str, Any], pictures: Sequence[Picture], failed: Sequence[Any]
    ) -> None:
        """Shows a run that has published, by its numbers."""

    def gives_up(self, error: BaseException) -> bool:
        """Whether another attempt cannot help, whatever the error's type says."""
        return False

    def try_again(self, call: Callable[[], T]) -> T:
        """What a call returns, tried as often as the settings say where its error may pass."""
        run = self.config.run
        for attempt in range(run.retries):
            try:
                return call()
            except Exception as error:
                if not can_retry(error) or self.gives_up(error):
                    raise
                time.sleep(run.retry_delay * 2**attempt)
        return call()

    def __enter__(self) -> Self:
        self._context = ExitStack()
        self._context.callback(BOARD.reset, BOARD.set(self.board))
        self.board.ended = False
        self._context.enter_context(holding(HeldText.for_this_machine() if self.holds_text else None))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.board.ended = True
        self._context.close()

    # ---------------------------------------------------------------- stages of one worker

    def begin(self, stage: Stage, **given: Any) -> Pending:
        """Begins a stage of one worker."""
        self.board.begin(stage.name)
        return self.submit(OneWork(stage, self.config, given))

    def end(self, stage: Stage, done: Done) -> Any:
        """The result of a stage of one worker that has ended."""
        self.board.end_whole(stage.name, cached=done.cached, seconds=done.seconds)
        fitting = stage.name in FITTED and self.board.stages.keys() <= {*LIGHT, *FITTED}
        if fitting and not done.cached:
            load_drawing()  # now, when nothing is under way that may load the same
        return done.result

    def run(self, stage: Stage, **given: Any) -> Any:
        """The result of a stage of one worker; its error, if it fails for good."""
        return self.end(stage, self.wait([self.begin(stage, **given)])[0])

    # ---------------------------------------------------------------- stages of rounds

    def rounds(self, stage: Stage, cached: Callable[[Any], bool], rows: int, **given: Any) -> Any:
        """The result of a stage of maps and reduces: its reduces in this process, the items of its maps as tasks.

        A reduce that takes long tells the share of the whole stage that is done (`datamask.shares`). An error of a
        reduce that may pass begins the stage again, which finds what its maps have published.

        :param cached: of the result, whether it was there. :param rows: of the corpus.
        """
        self.board.begin(stage.name, total=rows)
        began, self._waited[stage.name] = time.monotonic(), 0.0
        same_arithmetic()  # of the reduces, as of the maps
        maps = Rounds(self, stage.name, rows / stage.rounds)
        with hear_shares(partial(self.board.reach, stage.name), stop_if_ended):
            result = self.try_again(partial(stage.call, maps=maps, config=self.config, **given))
        worked = max(0.0, time.monotonic() - began - self._waited[stage.name])
        self.board.end_whole(stage.name, cached=cached(result), seconds=worked)
        return result

    def round(
        self, stage: str, work: Callable[[Any, Any], Any], state: Any, items: Sequence[Any], rows: Sequence[int]
    ) -> list[Any]:
        """The results of one round, in the items' order; the first error that a task ends in."""
        kind, began = (stage, work.__name__), time.monotonic()
        size = self.size(len(items), self._took.get(kind))
        futures = []
        for first in range(0, len(items), size):
            last = min(first + size, len(items))
            name = f"{stage}: {work.__name__.strip('_').replace('_', ' ')}{_which(first + 1, last, len(items))}"
            futures.append(
                self.submit(RoundWork(STAGES[stage], name, work, state, items[first:last], rows[first:last]))
            )

        def show(done: Done, place: int) -> None:
            self.board.complete_part(stage, done.message, sum(rows[place * size : (place + 1) * size]))

        found = self.wait(futures, show)
        seconds = sum(done.seconds for done in found)
        self._took[kind] = seconds / max(len(items), 1)
        self._waited[stage] += time.monotonic() - began - seconds
        return [result for done in found for result in done.result]

    def wait(
        self, futures: Sequence[Pending], each: Callable[[Done, int], None] = lambda done, place: None
    ) -> list[Done]:
        """What the work of these futures gave, in their order; the first error that one ends in.

        :param each: called with each Done and its place, as they end.
        """
        finished: SimpleQueue[tuple[int, Pending]] = SimpleQueue()
        for place, future in enumerate(futures):
            future.add_done_callback(partial(_put, finished, place))
        found: dict[int, Done] = {}
        while len(found) < len(futures):
            place, future = self.next(finished)
            found[place] = future.result()
            each(found[place], place)
        return [found[place] for place in range(len(futures))]

    def next(self, finished: SimpleQueue[Any]) -> Any:
        """The next of a queue.

        :raises EndedError: the run has ended meanwhile.
        """
        while True:
            try:
                return finished.get(timeout=REFRESH)
            except Empty:
                if self.board.ended:
                    raise EndedError from None
                self.update()

    # ---------------------------------------------------------------- stages that run per shard

    def batches(self, shards: Sequence[str]) -> list[Sequence[str]]:
        """The shards that a task handles together, by name."""
        size = self.config.run.shards_per_task or self.size(len(shards))
        return [shards[first : first + size] for first in range(0, len(shards), size)] if shards else []

    def begin_batch(
        self, stages: Sequence[Stage], batch: Sequence[ShardFiles], given: Sequence[Mapping[str, Any]]
    ) -> Pending:
        """Begins stages on some shards, more than one if they are of one reading. given: of each."""
        return self.submit(BatchWork(stages, self.config, batch, given))

    def end_batch(self, stages: Sequence[Stage], batch: Sequence[ShardFiles], future: Pending) -> list[ShardFiles]:
        """The shards that came through; the others are in `failures`.

        :raises StorageError: no other shard could be finished either. :raises MissingExtraError: likewise.
        """
        results: Sequence[ShardResult]
        failures: Sequence[ShardFailure]
        try:
            results, failures = future.result().result, ()
        except ShardsFailed as error:
            results, failures = error.done, error.failures
        except (StorageError, MissingExtraError):
            raise
        except Exception as error:  # the task itself was lost: a worker killed too often, a time limit
            results = ()
            failures = [ShardFailure(files.shard.name, stages[0].name, describe(error), False) for files in batch]
        for result in results:
            shard = result.files.shard
            times = self.times.setdefault(shard.name, ShardTimes())
            for stage, made in zip(stages, result.made, strict=True):
                rows = shard.rows or 0
                self.board.complete(stage.name, shard.name, rows, made.seconds, made.cached, result.in_place)
                times.seconds[stage.name] = round(made.seconds, 3)
                if not made.cached:
                    times.worked.append(stage.name)
        for failure in failures:
            for stage in stages:
                self.board.fail(stage.name, failure.shard)
        self.failures.extend(failures)
        return [result.files for result in results]

    def size(self, count: int, seconds: float | None = None) -> int:
        """How many of so many items are a task. seconds: that one takes, if known."""
        run = self.config.run
        here = inf if run.address else PER_WORKER * self.workers
        size = max(1, ceil(count / min(AT_MOST, here)))
        if seconds is None or run.address:
            return size
        return max(size, min(ceil(count / self.workers), ceil(BRIEF / max(seconds, 1e-3))))

    @property
    def workers(self) -> int:
        """Tasks at once, on this machine."""
        return self.config.run.workers or os.cpu_count() or 1


@dataclass(frozen=True)
class Rounds:
    """A `datamask.maps.Mapper` whose items are tasks of an engine."""

    engine: Engine
    stage: str
    share: float  # of the stage's progress that a round is, in rows

    def __call__(
        self,
        work: Callable[[Any, Any], Any],
        state: Any,
        items: Sequence[Any],
        rows: Sequence[int] | None = None,
        rest: bool = False,
    ) -> list[Any]:
        weights = [1] * len(items) if rows is None else list(rows)
        total = max(sum(weights), 1)
        line = self.engine.board.stages[self.stage]
        share = max(self.share, line.total - line.rows) if rest else self.share
        ends = [round(share * done / total) for done in accumulate(weights, initial=0)]
        return self.engine.round(self.stage, work, state, items, [b - a for a, b in pairwise(ends)])


class Threads(Engine):
    """Threads of this process, without Prefect."""

    @classmethod
    def alone(cls, config: Config) -> Self:
        """The engine of a run without Prefect.

        :raises ConfigError: the settings name another.
        """
        if config.run.engine != "threads":
            raise ConfigError(
                "without Prefect (--plain, datamask.run) a run has threads alone, "
                f"and run.engine is {config.run.engine!r}; leave out one of the two, or set run.engine to threads",
                setting="run.engine",
            )
        return cls(config)

    def __enter__(self) -> Self:
        self._libraries = loading()
        self._libraries.__enter__()
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="datamask")
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        super().__exit__(kind, error, at)
        self._pool.shutdown(cancel_futures=True)
        self._libraries.__exit__(kind, error, at)

    def submit(self, work: Work) -> Pending:
        if self.board.ended:
            raise EndedError
        self.wait_for_libraries(work)
        return self._pool.submit(copy_context().run, self.try_again, work)

    def log(self, text: str, level: int = logging.INFO) -> None:
        super().log(text, min(level, logging.INFO))  # a warning is printed, and would be on stderr twice


def _put(finished: SimpleQueue[tuple[int, Pending]], place: int, future: Pending) -> None:
    finished.put((place, future))


def _which(first: int, last: int, count: int) -> str:
    """The items of a round that a task handles, in its name; the UI's graph has no dash."""
    if count == 1:
        return ""
    return f", {first} of {count}" if first == last else f", {first} to {last} of {count}"
