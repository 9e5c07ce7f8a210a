"""How far each stage is: a board that tasks write to and a terminal or the UI reads from.

Tasks find the board in a context variable, which Prefect's threads inherit. Another process has none, so that under
Dask and Ray the flow alone moves the board, a shard at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

from datamask.pipeline import STAGES
from datamask.stages import silent

OPTIONAL = {"languages", "tokenizer", "leaks", "duplicates", "copies"}  # stages that not every run has
SURE = 0.1  # share of its rows from which a stage's own rate is believed rather than the last run's seconds


@dataclass
class StageProgress:
    """One stage's line."""

    stage: str
    shards: int  # 0: the stage sees the corpus as a whole
    total: int  # rows; 0: not counted
    started: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)  # when a shard was over
    ended: bool = False
    rows: int = 0
    done: int = 0  # shards that were worked on
    cached: int = 0  # shards whose file was there
    in_place: int = 0  # shards that are read where they lie: there is nothing to do, the first time too
    failed: int = 0
    seconds: float = 0.0  # of work, all workers together
    expected: float = 0.0  # seconds that it took the last time; 0: unknown

    @property
    def elapsed(self) -> float:
        """Seconds from the stage's first task to its last, or to now."""
        return (self.last if self.ended else time.monotonic()) - self.started

    @property
    def rate(self) -> float:
        """Rows a second so far; 0 where rows are not counted, and of cached shards, where it means nothing."""
        worked = self.done or not self.ended
        return self.rows / self.elapsed if self.total and worked and self.elapsed > 0.5 else 0.0

    @property
    def share(self) -> float:
        """Of the stage that is done, from 0 to 1: by its rows or, as long as none is told of (they are not counted, or
        the first shard is another process's), by the time that it took the last time."""
        if self.ended:
            return 1.0
        done, whole = (self.rows, self.total) if self.total and self.rows else (self.elapsed, self.expected)
        return min(1.0, done / whole) if whole else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds to go: at the rate so far or, where no rate tells, by what the stage took the last time; None: who
        knows."""
        if self.ended or (self.total and self.rows >= self.total):
            return None
        if self.rate and (self.rows > SURE * self.total or not self.expected):
            return (self.total - self.rows) / self.rate
        return max(0.0, self.expected - self.elapsed) if self.expected else None

    @property
    def is_cached(self) -> bool:
        """Whether the stage is over and had nothing to do."""
        return self.ended and bool(self.cached + self.in_place) and not self.done

    @property
    def going(self) -> str:
        """How far it is, in words: share, rate, and what remains."""
        parts = [f"{self.share:.0%}"] if self.total else ["working"]
        if self.rate:
            parts.append(f"{self.rate:,.0f} documents/s")
        if self.total and self.rows >= self.total:
            parts.append("finishing")
        elif self.remaining is not None:
            parts.append(f"{self.remaining:,.0f} s to go")
        return ", ".join(parts)


class EndedError(Exception):
    """The run has ended: nothing more is begun, and what is under way stops at its next step."""


class Board:
    """The stages by name, in the order they began. Safe to use from many threads."""

    def __init__(self) -> None:
        self.stages: dict[str, StageProgress] = {}
        self.expected: Mapping[str, float] = {}  # seconds of each stage, the last time
        self.ended = False  # the run is
        self._rows: dict[tuple[str, str], int] = {}  # of shards that are being worked on
        self._lock = threading.Lock()

    @property
    def share(self) -> float:
        """Of the run that is done, from 0 to 1: by what each stage took the last time; else each counts alike."""
        lines = list(self.stages.values())
        weights = {name: max(seconds, 0.1) for name, seconds in self.expected.items()}
        usual = sum(weights.values()) / len(weights) if weights else 1.0
        done = sum(weights.get(line.stage, usual) * line.share for line in lines)
        known = {line.stage for line in lines} | (weights.keys() or set(STAGES) - OPTIONAL)
        return min(1.0, done / sum(weights.get(name, usual) for name in known))

    def begin(self, stage: str, shards: int = 0, total: int = 0) -> None:
        """A stage begins, or has more to do: so many shards, of so many rows in all."""
        with self._lock:
            line = self.stages.get(stage)
            if line is None:
                self.stages[stage] = StageProgress(stage, shards, total, expected=self.expected.get(stage, 0.0))
            elif line.ended:  # the stage runs again, as masks do after a new selection
                line.shards, line.total, line.ended = line.shards + shards, line.total + total, False

    def advance(self, stage: str, shard: str, rows: int) -> None:
        """`rows` more of a shard are done."""
        with self._lock:
            if stage in self.stages:
                self._rows[stage, shard] = self._rows.get((stage, shard), 0) + rows
                self.stages[stage].rows += rows

    def reach(self, stage: str, share: float) -> None:
        """So much of a stage is done, at least."""
        with self._lock:
            if stage in self.stages:
                line = self.stages[stage]
                line.rows = max(line.rows, int(share * line.total))

    def restart(self, stage: str, shard: str) -> None:
        """A shard is tried again: what was reported of it no longer counts."""
        with self._lock:
            if stage in self.stages:
                self.stages[stage].rows -= self._rows.pop((stage, shard), 0)

    def complete(self, stage: str, shard: str, rows: int, seconds: float, cached: bool, in_place: bool = False) -> None:
        """A shard is through: whatever was reported on the way, it counts as `rows`."""
        with self._lock:
            line = self.stages[stage]
            line.rows += rows - self._rows.pop((stage, shard), 0)
            line.in_place += in_place
            line.cached += cached and not in_place
            line.done += not (cached or in_place)
            line.seconds += seconds
            line.last = time.monotonic()

    def complete_part(self, stage: str, part: str, rows: int) -> None:
        """Items of a round are through, which count as `rows`."""
        with self._lock:
            line = self.stages[stage]
            line.rows += rows - self._rows.pop((stage, part), 0)
            line.last = time.monotonic()

    def fail(self, stage: str, shard: str) -> None:
        """A shard failed for good."""
        with self._lock:
            line = self.stages[stage]
            line.rows -= self._rows.pop((stage, shard), 0)
            line.failed += 1
            line.last = time.monotonic()

    def end(self, stage: str) -> None:
        """A stage has ended: what was expected of it beyond its rows is expected no more."""
        with self._lock:
            self.stages[stage].ended = True

    def end_whole(self, stage: str, cached: bool, seconds: float) -> None:
        """A stage that sees the corpus as a whole is over. seconds: that it worked."""
        with self._lock:
            line = self.stages[stage]
            line.last = time.monotonic()
            line.ended = True
            line.seconds = 0.0 if cached else seconds
            line.cached, line.done, line.rows = int(cached), int(not cached), line.total


BOARD: ContextVar[Board | None] = ContextVar("BOARD", default=None)


def stop_if_ended() -> None:
    """Called between the steps of what takes long; another process's hears of no end, and is ended itself.

    :raises EndedError: the run has ended.
    """
    if (board := BOARD.get()) and board.ended:
        raise EndedError


def reporter(stage: str, shard: str) -> Callable[[int], None]:
    """Where a task that begins a shard reports the rows it has done.

    Tasks must not name BOARD themselves: Dask and Ray pickle a task's function with the globals it names.
    """
    board = BOARD.get()
    if not board:
        return silent
    board.restart(stage, shard)
    return partial(board.advance, stage, shard)
