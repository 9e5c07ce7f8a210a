"""What a worker is given to do: a stage over a batch of shards, a stage of one worker, or items of a round.

An engine (`datamask.engine`) calls it on a thread, on Dask or on Ray, with or without Prefect; what it says of itself
is in `Done`. One broken shard costs itself alone: the others of its batch are finished first, and the error carries
them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from datamask import storage
from datamask.arithmetic import prepared_by_numpy, same_arithmetic
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.reading import ShardReading, in_one_reading
from datamask.errors import (
    LESS_MEMORY,
    ConfigError,
    DatamaskError,
    MissingExtraError,
    StorageError,
    disk_full,
    is_retryable,
    out_of_memory,
    several,
)
from datamask.gpus import on_gpu
from datamask.pipeline import Stage
from datamask.progress import reporter, stop_if_ended
from datamask.shares import hear_shares, tell_share
from datamask.stages import ShardFiles
from datamask.surroundings import machines_fault


@dataclass(frozen=True)
class Made:
    """What a stage did for a shard."""

    seconds: float
    cached: bool


@dataclass(frozen=True)
class ShardResult:
    """A shard after a stage, or after those of one reading."""

    files: ShardFiles
    made: tuple[Made, ...]  # by each stage
    in_place: bool = False  # it is read where it lies: there was nothing to do, and nothing to keep

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(made.seconds for made in self.made)

    @property
    def cached(self) -> bool:
        """Whether every file was there."""
        return all(made.cached for made in self.made)


@dataclass(frozen=True)
class ShardFailure:
    """A shard that a stage could not finish, and why, in the user's words."""

    shard: str
    stage: str
    error: str
    retryable: bool


class ShardsFailed(DatamaskError):
    """Shards of a batch failed; `done` are those that did not."""

    def __init__(self, done: tuple[ShardResult, ...], failures: tuple[ShardFailure, ...]) -> None:
        super().__init__(done, failures)  # the arguments themselves, so that it survives pickling
        self.done = done
        self.failures = failures

    def __str__(self) -> str:
        return "; ".join(f"{failure.shard}: {failure.error}" for failure in self.failures)

    @property
    def can_retry(self) -> bool:
        """Whether another attempt can help one of the shards at least."""
        return any(failure.retryable for failure in self.failures)


def can_retry(error: BaseException) -> bool:
    """Whether another attempt of a task can help: the exception's type says it, or one of a batch's shards."""
    return error.can_retry if isinstance(error, ShardsFailed) else is_retryable(error)


@dataclass(frozen=True)
class Done:
    """What work gave, and the seconds it took: those in a queue do not count."""

    message: str
    result: Any
    seconds: float
    cached: bool = False


class Work(ABC):
    """What one task does. No dataclass: Prefect would look through it for results of other tasks, 0.3 ms a shard."""

    def __init__(self, stage: Stage, label: str, config: Config) -> None:
        """:param label: what it is in the run's list of tasks."""
        self.stage, self.label, self.config = stage, label, config
        self.name = stage.name
        self.stages: tuple[Stage, ...] = (stage,)

    @abstractmethod
    def __call__(self) -> Done:
        """Does it, on whatever worker."""


class BatchWork(Work):
    """A stage that runs per shard, or stages of one reading, over some shards."""

    def __init__(
        self,
        stages: Sequence[Stage],
        config: Config,
        batch: Sequence[ShardFiles],
        given: Sequence[Mapping[str, Any]],
    ) -> None:
        """:param given: what each stage's function takes beside the shard, by name."""
        name = ", ".join(stage.name for stage in stages)
        super().__init__(stages[0], f"{name}: {batch_label(batch)}", config)
        self.name, self.stages = name, tuple(stages)
        self.batch, self.given = tuple(batch), tuple(given)

    def __call__(self) -> Done:
        """:returns: a Done with a tuple of ShardResult, cached if every file was there.
        :raises ShardsFailed: after the last shard, when some failed.
        :raises StorageError: nothing more can be written, or this machine stands in the way.
        :raises MissingExtraError: a package is not installed, which every shard needs.
        :raises EndedError: the run has ended; what was done is kept.
        """
        done: list[ShardResult] = []
        failures: list[ShardFailure] = []
        cause: Exception | None = None
        with on_gpu([stage.name for stage in self.stages], self.config) as config:
            for files in self.batch:
                stop_if_ended()
                name = files.shard.name
                try:
                    done.append(self._one(files, config))
                except _StageError as failed:
                    error = failed.error
                    if told := disk_full(error):  # no other shard could be written either
                        raise StorageError(told) from error
                    if isinstance(error, MissingExtraError):
                        raise error from None
                    # what an own class lacks is told with its line already
                    if not isinstance(error, ConfigError) and (here := machines_fault(error)):
                        raise here from error
                    failures.append(ShardFailure(name, failed.stage, describe(error), is_retryable(error)))
                    cause = error
        if failures:
            raise ShardsFailed(tuple(done), tuple(failures)) from cause
        what = done[0].files.shard.name if len(done) == 1 else several(len(done), "shard")
        return self._done(f"{self.name} {what}", done)

    def _one(self, files: ShardFiles, config: Config) -> ShardResult:
        """:raises _StageError: of the first stage that failed; the others have gone on to their end."""
        began = time.perf_counter()
        calls = [
            partial(_call, stage, files, {**given, "config": config})
            for stage, given in zip(self.stages, self.given, strict=True)
        ]
        alone = len(calls) == 1
        reading = ShardReading(files.shard, config, files.index)
        called = [calls[0](None)] if alone else in_one_reading(reading, calls)
        return _result(files, self.stages, called, time.perf_counter() - began)

    def _done(self, what: str, done: Sequence[ShardResult]) -> Done:
        seconds = sum(result.seconds for result in done)
        if all(result.in_place for result in done):
            return Done(f"{what}: read where it lies, nothing to convert", tuple(done), seconds)
        if all(result.cached for result in done):
            return Done(f"{what}: the output is there already", tuple(done), seconds, cached=True)
        rows = several(sum(result.files.shard.rows or 0 for result in done), "row")
        return Done(f"{what}: {rows} in {seconds:.1f} s", tuple(done), seconds)


class _StageError(Exception):
    """A stage has failed for a shard."""

    def __init__(self, stage: str, error: Exception) -> None:
        super().__init__(stage, error)
        self.stage, self.error = stage, error


@dataclass(frozen=True)
class _Called:
    """What a stage's function returned for a shard."""

    made: Any
    seconds: float  # that its thread worked
    there: bool  # whether its file was there before


def _call(stage: Stage, files: ShardFiles, given: Mapping[str, Any], reading: ShardReading | None) -> _Called:
    """:raises _StageError: the stage has failed."""
    began = time.thread_time()
    if stage.sums:
        same_arithmetic()
    progress = reporter(stage.name, files.shard.name)
    given = {**given, "files": files, "shard": files.shard, "progress": progress, "reading": reading}
    try:
        there = bool(stage.place) and storage.exists(stage.path(**given))
        return _Called(stage.call(**given), time.thread_time() - began, there)
    except Exception as error:
        raise _StageError(stage.name, error) from error


def _result(files: ShardFiles, stages: Sequence[Stage], calls: Sequence[_Called], seconds: float) -> ShardResult:
    """The seconds of a reading are each stage's by the time that its thread worked."""
    in_place, made = False, []
    working = [call.seconds for call in calls if not call.there and not getattr(call.made, "cached", False)]
    for stage, call in zip(stages, calls, strict=True):
        if isinstance(call.made, Shard):
            files, in_place = replace(files, shard=call.made), stage.name == "convert" and not call.made.converted_from
            cached = call.there or in_place
        else:
            files, cached = replace(files, **{stage.makes: call.made}), call.made.cached
        made.append(Made(0.0 if cached else seconds * call.seconds / (sum(working) or 1.0), cached))
    return ShardResult(files, tuple(made), in_place)


class OneWork(Work):
    """A stage of one worker."""

    def __init__(self, stage: Stage, config: Config, given: Mapping[str, Any]) -> None:
        """:param given: what the stage's function takes, by name."""
        super().__init__(stage, f"{stage.name}: {stage.says.format(model=config.encoder.model)}", config)
        self.given = dict(given)

    def __call__(self) -> Done:
        """:returns: a Done with what the stage's function returns, cached if it made nothing new."""
        if self.stage.sums:
            same_arithmetic(torch=not prepared_by_numpy(self.config))
        name, work, folder = self.stage.name, self.given.get("work", ""), self.stage.folder
        place = storage.join(work, folder or "")
        before = set(storage.list_names(place)) if folder else set()
        began = time.perf_counter()
        result = self.stage.call(**self.given, config=self.config)
        seconds = time.perf_counter() - began
        staged = self.given.get("staged")
        made_none = before and before == set(storage.list_names(place))
        if made_none or (staged and staged.published is not None):
            return Done(f"{name}: the output is there already", result, 0.0, cached=True)
        return Done(f"{name}: {seconds:.1f} s", result, seconds)


class RoundWork(Work):
    """Consecutive items of a round (`datamask.maps`)."""

    def __init__(
        self,
        stage: Stage,
        label: str,
        work: Callable[[Any, Any], Any],
        state: Any,
        items: Sequence[Any],
        rows: Sequence[int],
    ) -> None:
        """:param work: called with the state, a dataclass with the run's settings in `config`, and an item.
        :param rows: of progress, an item each.
        """
        super().__init__(stage, label, state.config)
        self.work, self.state, self.items, self.rows = work, state, tuple(items), tuple(rows)

    def __call__(self) -> Done:
        """:returns: a Done with a tuple of the items' results."""
        same_arithmetic()
        began = time.perf_counter()
        report = reporter(self.stage.name, self.label)
        found = []
        with on_gpu([self.stage.name], self.config) as config:
            state = replace(self.state, config=config)
            for item, rows in zip(self.items, self.rows, strict=True):
                counted = Counted(report, rows)
                with hear_shares(counted.to, stop_if_ended):
                    tell_share(0.0)
                    found.append(self.work(state, item))
                counted.to(1.0)
        return Done(self.label, tuple(found), time.perf_counter() - began)


class Counted:
    """An item's rows of progress, reported as its share grows."""

    def __init__(self, report: Callable[[int], None], rows: int) -> None:
        self._report, self._rows, self._done = report, rows, 0

    def to(self, share: float) -> None:
        """So much of the item is done."""
        if more := int(share * self._rows) - self._done:
            self._done += more
            self._report(more)


def batch_label(batch: Sequence[ShardFiles]) -> str:
    """A batch in a task's name."""
    first, last = batch[0].shard.name, batch[-1].shard.name
    return first if len(batch) == 1 else f"{first} … {last} ({len(batch)})"


def describe(error: BaseException) -> str:
    """An error in one line: our own as they are, others with their type."""
    text = " ".join(str(error).split())
    if isinstance(error, DatamaskError):
        return text
    named = f"{type(error).__name__}: {text}"[:500]
    return f"{LESS_MEMORY} ({named})" if out_of_memory(error) else named
