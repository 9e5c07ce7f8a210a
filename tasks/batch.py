"""What a task that handles a batch of shards does, returns and raises.

One broken shard costs itself alone: the others of its batch are finished first, and the error carries them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from prefect.logging import get_run_logger
from prefect.states import Completed

from datamask.corpus.plan import Shard
from datamask.errors import (
    LESS_MEMORY,
    DatamaskError,
    MissingExtraError,
    StorageError,
    full,
    is_retryable,
    out_of_memory,
    several,
)
from datamask.stages import Progress, ShardFiles
from datamask.storage import Output
from datamask.surroundings import machines_fault
from tasks.logs import tell_errors_plainly
from tasks.progress import reporter

tell_errors_plainly()

Item = TypeVar("Item")
Work = Callable[[ShardFiles, Progress], tuple[ShardFiles, bool]]  # the shard with one more file; whether it was there


@dataclass(frozen=True)
class ShardResult:
    """A shard after a stage."""

    files: ShardFiles
    seconds: float
    cached: bool


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


class Unsearched(Sequence[Item]):
    """Items in their order, where Prefect does not look for results of other tasks, as it does in a list: 0.3 ms for a
    shard's files, several times for each stage."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = tuple(items)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        return self._items[place]


def run_stage(
    stage: str, batch: Sequence[ShardFiles], kind: str, write: Callable[[ShardFiles, Progress], Output]
) -> Any:
    """`run_batch` of a stage that writes one file a shard, as this `kind` of its ShardFiles."""

    def one(files: ShardFiles, progress: Progress) -> tuple[ShardFiles, bool]:
        output = write(files, progress)
        made: dict[str, Any] = {kind: output}
        return replace(files, **made), output.cached

    return run_batch(stage, batch, one)


def run_batch(
    stage: str, batch: Sequence[ShardFiles], work: Work, in_place: Callable[[Shard], bool] = lambda shard: False
) -> Any:
    """Runs `work` on every shard.

    :param in_place: whether a shard is read where it lies, so that there is nothing to do and nothing to keep.
    :returns: a tuple of ShardResult, in a state named Cached if every file was there.
    :raises ShardsFailed: after the last shard, when some failed.
    :raises StorageError: nothing more can be written, or this machine stands in the way.
    :raises MissingExtraError: a package is not installed, which every shard needs.
    """
    done: list[ShardResult] = []
    failures: list[ShardFailure] = []
    cause: Exception | None = None
    for files in batch:
        name = files.shard.name
        began = time.perf_counter()
        try:
            result, cached = work(files, reporter(stage, name))
        except Exception as error:
            if told := full(error):  # no other shard could be written either
                raise StorageError(told) from error
            if isinstance(error, MissingExtraError):
                raise
            if here := machines_fault(error):
                raise here from error
            failures.append(ShardFailure(name, stage, describe(error), is_retryable(error)))
            cause = error
            continue
        done.append(ShardResult(result, 0.0 if cached else time.perf_counter() - began, cached))
    if failures:
        raise ShardsFailed(tuple(done), tuple(failures)) from cause
    name = done[0].files.shard.name if len(done) == 1 else several(len(done), "shard")
    if all(in_place(result.files.shard) for result in done):
        return Completed(message=f"{stage} {name}: read where it lies, nothing to convert", data=tuple(done))
    if all(result.cached for result in done):
        return Completed(name="Cached", message=f"{stage} {name}: the output is there already", data=tuple(done))
    rows = sum(result.files.shard.rows or 0 for result in done)
    seconds = sum(result.seconds for result in done)
    get_run_logger().info("%s: %s in %.1f s", stage, several(rows, "row"), seconds)
    return Completed(message=f"{stage} {name}: {several(rows, 'row')} in {seconds:.1f} s", data=tuple(done))


def describe(error: BaseException) -> str:
    """An error in one line: our own as they are, others with their type."""
    text = " ".join(str(error).split())
    if isinstance(error, DatamaskError):
        return text
    named = f"{type(error).__name__}: {text}"[:500]
    return f"{LESS_MEMORY} ({named})" if out_of_memory(error) else named
