"""Drives tasks on the run's engine: one for the whole corpus, the rounds of a stage that sees all of it, or each batch
of shards through its stages in turn.

A batch goes on to its next stage when it is through with the last, whatever the other batches do, and a failed shard
falls out alone. Stages whose files are asked for later run beside others (`Stages.beside`), in the room that these
leave. Only small results pass through here.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import ceil, inf
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from prefect import Task
from prefect.futures import PrefectFuture

from datamask.config import Config, RunSettings
from datamask.errors import MissingExtraError, StorageError, is_retryable
from datamask.pipeline import STAGES
from datamask.shares import heard
from datamask.stages import ShardFiles
from flows.artifacts import RunArtifacts
from flows.engine import claiming_gpu, cluster_answers, task_runner, workers_without_interrupts
from flows.metrics import measured
from flows.server import by_the_server, stop_trying
from tasks.batch import ShardFailure, ShardResult, ShardsFailed, Unsearched, describe
from tasks.corpus import Timed
from tasks.options import configured, needs_gpu, same_arithmetic
from tasks.progress import BOARD, Board
from tasks.round_items import RoundDone, RoundItems, run_round

# task runs of a stage, unless run.shards_per_task says otherwise
PER_WORKER = 16  # enough to even the load; more cost time: some 20 ms each, of this process and the server
BRIEF = 1.0  # seconds that a task's items take, at least, where their rounds of before say how long one takes
AT_MOST = 1000  # more slow a server down
REFRESH = 2.0  # seconds between updates of the UI's progress

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """A stage that runs per shard: its task, and what the task is given beside the batch."""

    task: Task[..., Any]
    parameters: Mapping[str, Any]
    beside: bool = False  # reads nothing of the step before it, and runs beside it

    @property
    def stage(self) -> str:
        """The stage's name, which is its task's."""
        return self.task.name


@dataclass(frozen=True)
class Started:
    """A stage that sees the corpus as a whole, under way."""

    stage: str
    future: PrefectFuture[Any]


class LeftError(Exception):
    """The run has ended: nothing more is begun beside it."""


class Beside(Generic[T]):
    """Stages under way beside others, driven by a thread of their own: `Stages.beside` begins, `Stages.join` ends it.

    Until they are waited for they have `room` tasks under way at most, so that the others' need not queue behind them.
    """

    def __init__(self, run: Callable[[], T], room: float) -> None:
        self._room, self._tasks, self._left = room, 0, False
        self._changed = threading.Condition()
        self._result: list[T] = []
        self._error: BaseException | None = None
        context = copy_context()
        context.run(BESIDE.set, self)
        self._thread = threading.Thread(target=context.run, args=(self._drive, run), name="beside", daemon=True)
        self._thread.start()

    def _drive(self, run: Callable[[], T]) -> None:
        try:
            self._result.append(run())
        except BaseException as error:  # told by `result`
            self._error = error

    def take_room(self) -> None:
        """Waits until another task may begin.

        :raises LeftError: none may.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._tasks < self._room or self._left)
            self.go_on()
            self._tasks += 1

    def give_room(self, future: PrefectFuture[Any]) -> None:
        """A task is over."""
        with self._changed:
            self._tasks -= 1
            self._changed.notify()

    def go_on(self) -> None:
        """:raises LeftError: the run has ended."""
        if self._left:
            raise LeftError

    def ended(self, seconds: float) -> bool:
        """Whether all is done, or has failed, at most so many seconds from now; there is room for all from now on."""
        with self._changed:
            self._room = inf
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """What `run` returned, or its error, once it has `ended`."""
        if self._error:
            raise self._error
        return self._result[0]

    def leave(self) -> None:
        """Begins nothing more."""
        with self._changed:
            self._left = True
            self._changed.notify()


BESIDE: ContextVar[Beside[Any] | None] = ContextVar("BESIDE", default=None)  # what this thread drives


@dataclass
class Together:
    """A batch in steps that run beside each other, and what has come out of them."""

    position: int  # of the steps
    batch: Sequence[ShardFiles]
    steps: int
    over: int = 0  # of the steps
    passed: dict[str, list[ShardFiles]] = field(default_factory=dict)  # by shard, of the steps it came through

    def end(self, passed: Sequence[ShardFiles]) -> bool:
        """A step is over, and these came through it; whether it was the last."""
        self.over += 1
        for files in passed:
            self.passed.setdefault(files.shard.name, []).append(files)
        return self.over == self.steps

    def through(self) -> list[ShardFiles]:
        """The shards that came through all steps, with the files of each."""
        found = [self.passed.get(files.shard.name, []) for files in self.batch]
        return [own[0].joined(own[1:]) if own[1:] else own[0] for own in found if len(own) == self.steps]


@dataclass
class ShardTimes:
    """Seconds a shard took in each stage; `worked` are those whose file was not there."""

    seconds: dict[str, float] = field(default_factory=dict)
    worked: list[str] = field(default_factory=list)


class Stages:
    """The engine, started. A context manager: leaving it ends what it started."""

    def __init__(self, config: Config, out: str = "") -> None:
        """:param out: the output folder, by which the UI tells artifacts of several apart."""
        self.config = config
        self.began = time.monotonic()
        self.board = BOARD.get() or Board()
        self.failures: list[ShardFailure] = []
        self.times: dict[str, ShardTimes] = {}
        self._ready: dict[tuple[Task[..., Any], str], Task[..., Any]] = {}
        self._waited: dict[str, float] = {}  # seconds of a stage in rounds that its items did not work, below 0 if more
        self._took: dict[tuple[str, str], float] = {}  # seconds of an item in the last round of a stage that did this
        self._beside: list[Beside[Any]] = []
        self._runner = task_runner(config.run)
        self.artifacts = RunArtifacts(self.board, out)
        self._measured = measured(self.board, out)

    def __enter__(self) -> Self:
        self._token = BOARD.set(self.board)
        self.metrics = self._measured.__enter__()
        with workers_without_interrupts(self.config.run), cluster_answers(self.config.run):
            self._runner.__enter__()
            if self.config.run.engine == "dask":
                _ = self._runner.client  # type: ignore[attr-defined]  # starts the cluster, which else the first task does
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for beside in self._beside:
            beside.leave()
        self._runner.__exit__(kind, error, at)
        BOARD.reset(self._token)
        self._measured.__exit__(None, None, None)
        if by_the_server(error):
            stop_trying()
        else:
            self.artifacts.update()

    def whole(self, task: Task[..., Any], rows: int = 0, **parameters: Any) -> Any:
        """The result of a stage that sees the corpus as a whole; its error, if it fails for good."""
        return self.finish(self.start(task, rows, **parameters))

    def start(self, task: Task[..., Any], rows: int = 0, **parameters: Any) -> "Started":
        """Begins a stage that sees the corpus as a whole, and goes on; `finish` has its result."""
        self.board.begin(task.name, total=rows)
        return Started(task.name, self._submit(task, parameters))

    def finish(self, started: "Started") -> Any:
        """What `whole` returns of a stage that was started."""
        future = started.future
        waiting: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
        future.add_done_callback(waiting.put)
        self._next(waiting)
        done = future.result()
        timed = done if isinstance(done, Timed) else Timed(done, self.board.stages[started.stage].elapsed)
        self.board.end_whole(started.stage, cached=future.state.name == "Cached", seconds=timed.seconds)
        return timed.result

    def beside(self, run: Callable[[], T]) -> Beside[T]:
        """Begins stages whose files are asked for later, and goes on; `join` has what `run` returns.

        :param run: drives them by this object's other methods, in a thread of its own.
        """
        settings = self.config.run
        self._beside.append(Beside(run, inf if settings.address else max(1, _workers(settings) // 2)))
        return self._beside[-1]

    def join(self, beside: Beside[T]) -> T:
        """What the `run` of `beside` returned; its error, if it failed."""
        while not beside.ended(REFRESH):
            self.artifacts.update()
        return beside.result()

    def rounds(
        self, stage: str, run: Callable[..., Any], rows: int, cached: Callable[[Any], bool], **given: Any
    ) -> Any:
        """The result of a stage of maps and reduces: its reduces in this process, the items of its maps as tasks.

        A reduce that takes long tells the share of the whole stage that is done (`datamask.shares`).

        An error of a reduce that may pass begins the stage again, which finds what its maps have published.

        :param rows: of the corpus. :param cached: of the result, whether it was there.
        """
        self.board.begin(stage, total=rows)
        began, self._waited[stage] = time.monotonic(), 0.0
        same_arithmetic()  # of the reduces, as of the maps
        maps = Rounds(self, stage, rows / STAGES[stage].rounds)
        for attempt in range(self.config.run.retries + 1):
            try:
                with heard(partial(self.board.reach, stage)):
                    result = run(maps=maps, **given)
                break
            except Exception as error:
                if attempt == self.config.run.retries or not is_retryable(error) or by_the_server(error):
                    raise
                time.sleep(self.config.run.retry_delay * 2**attempt)
        worked = max(0.0, time.monotonic() - began - self._waited[stage])
        self.board.end_whole(stage, cached=cached(result), seconds=worked)
        return result

    def each(self, steps: Sequence[Step], shards: Sequence[ShardFiles]) -> list[ShardFiles]:
        """The shards that came through all steps, in their order; the others are in `failures`."""
        finished: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
        pending: dict[PrefectFuture[Any], tuple[Step, Together]] = {}
        through: dict[str, ShardFiles] = {}
        rows = sum(files.shard.rows or 0 for files in shards)
        groups = _groups(steps)

        def submit(position: int, batch: Sequence[ShardFiles]) -> None:
            together = Together(position, batch, len(groups[position]))
            for step in groups[position]:
                self.board.begin(step.stage, len(shards), rows)
                future = self._submit(step.task, {"batch": batch, "label": label(batch), **step.parameters})
                pending[future] = (step, together)
                future.add_done_callback(finished.put)

        for batch in self._batches(shards):
            submit(0, batch)
        while pending:
            future = self._next(finished)
            step, together = pending.pop(future)
            last = together.end(self._complete(step.stage, together.batch, future))
            future = None  # type: ignore[assignment]  # let its result go
            if not last:
                continue
            passed = together.through()
            if together.position + 1 == len(groups):
                through.update((files.shard.name, files) for files in passed)
            elif passed:
                submit(together.position + 1, passed)
        for step in steps:
            if step.stage in self.board.stages:
                self.board.end(step.stage)
        return [through[files.shard.name] for files in shards if files.shard.name in through]

    # ------------------------------------------------------------ inside

    def round(
        self, stage: str, work: Callable[[Any, Any], Any], given: Any, items: Sequence[Any], rows: Sequence[int]
    ) -> list[Any]:
        """The results of one round, in the items' order; the first error that a task ends in."""
        finished: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
        pending: dict[PrefectFuture[Any], tuple[int, int]] = {}
        found: list[Any] = [None] * len(items)
        kind, seconds, began = (stage, work.__name__), 0.0, time.monotonic()
        size = self._size(len(items), self._took.get(kind))
        for first in range(0, len(items), size):
            last = min(first + size, len(items))
            name = f"{stage}: {work.__name__.strip('_').replace('_', ' ')}{_which(first + 1, last, len(items))}"
            part = RoundItems(stage, name, work, given, tuple(items[first:last]), tuple(rows[first:last]))
            future = self._submit(run_round, {"label": name, "part": part}, stage)
            pending[future] = (first, last)
            future.add_done_callback(finished.put)
        while pending:
            future = self._next(finished)
            first, last = pending.pop(future)
            done: RoundDone = future.result()
            found[first:last] = done.results
            seconds += done.seconds
            self.board.complete_part(stage, done.label, sum(rows[first:last]))
            future = None  # type: ignore[assignment]  # let its result go
        self._took[kind] = seconds / max(len(items), 1)
        self._waited[stage] += time.monotonic() - began - seconds
        return found

    def _submit(self, task: Task[..., Any], parameters: dict[str, Any], stage: str | None = None) -> PrefectFuture[Any]:
        """:param stage: its name; None: the task's."""
        stage = stage or task.name
        gpu = needs_gpu(stage, self.config)
        ready = self._ready.get((task, stage))
        if ready is None:  # Prefect looks at a task's source each time that one is made
            ready = configured(task, stage, self.config.run, gpu, "batch" in parameters)
            self._ready[task, stage] = ready
        given = {
            name: Unsearched(value) if isinstance(value, list | tuple) else value for name, value in parameters.items()
        }
        beside = BESIDE.get()
        if beside:
            beside.take_room()
        with claiming_gpu(self.config.run) if gpu else nullcontext():
            future = self._runner.submit(ready, given)
        if beside:
            future.add_done_callback(beside.give_room)
        return future

    def _next(self, finished: "SimpleQueue[PrefectFuture[Any]]") -> PrefectFuture[Any]:
        while True:
            try:
                future = finished.get(timeout=REFRESH)
            except Empty:
                if beside := BESIDE.get():
                    beside.go_on()
                else:
                    self.artifacts.update()
                continue
            future.wait()
            return future

    def _complete(self, stage: str, batch: Sequence[ShardFiles], future: PrefectFuture[Any]) -> list[ShardFiles]:
        results: Sequence[ShardResult]
        failures: Sequence[ShardFailure]
        try:
            results, failures = future.result(), ()
        except ShardsFailed as error:
            results, failures = error.done, error.failures
        except (StorageError, MissingExtraError):  # no other shard could be finished either: the run ends here
            raise
        except Exception as error:  # the task itself was lost: a worker killed too often, a time limit
            results = ()
            failures = [ShardFailure(files.shard.name, stage, describe(error), False) for files in batch]
        for result in results:
            shard = result.files.shard
            in_place = stage == "convert" and not shard.converted_from
            self.board.complete(stage, shard.name, shard.rows or 0, result.seconds, result.cached, in_place)
            times = self.times.setdefault(shard.name, ShardTimes())
            times.seconds[stage] = round(result.seconds, 3)
            if not result.cached:
                times.worked.append(stage)
        for failure in failures:
            self.board.fail(stage, failure.shard)
        self.failures.extend(failures)
        return [result.files for result in results]

    def _batches(self, shards: Sequence[ShardFiles]) -> list[Sequence[ShardFiles]]:
        size = self.config.run.shards_per_task or self._size(len(shards))
        return [shards[first : first + size] for first in range(0, len(shards), size)] if shards else []

    def _size(self, count: int, seconds: float | None = None) -> int:
        """How many of so many items are a task. seconds: that one takes, if known."""
        run = self.config.run
        here = None if run.address else PER_WORKER * _workers(run)
        size = max(1, ceil(count / min(AT_MOST, here or AT_MOST)))
        if seconds is None or run.address:
            return size
        return max(size, min(ceil(count / _workers(run)), ceil(BRIEF / max(seconds, 1e-3))))


@dataclass(frozen=True)
class Rounds:
    """A `datamask.maps.Mapper` whose items are Prefect tasks on the run's engine."""

    stages: Stages
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
        line = self.stages.board.stages[self.stage]
        share = max(self.share, line.total - line.rows) if rest else self.share
        ends = [round(share * done / total) for done in accumulate(weights, initial=0)]
        return self.stages.round(self.stage, work, state, items, [b - a for a, b in pairwise(ends)])


def _workers(run: RunSettings) -> int:
    return run.workers or os.cpu_count() or 1


def _groups(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps in the order they run in, those beside each other in one list."""
    found: list[list[Step]] = []
    for step in steps:
        if step.beside and found:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def _which(first: int, last: int, count: int) -> str:
    """The items of a round that a task handles, in its name; the UI's graph has no dash."""
    if count == 1:
        return ""
    return f", {first} of {count}" if first == last else f", {first} to {last} of {count}"


def label(batch: Sequence[ShardFiles]) -> str:
    """A batch in a task run's name."""
    first, last = batch[0].shard.name, batch[-1].shard.name
    return first if len(batch) == 1 else f"{first} … {last} ({len(batch)})"
