"""The task that runs some items of a round of a stage that sees the whole corpus (`datamask.maps`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from prefect import task
from prefect.states import Completed

from datamask.shares import heard
from tasks.gpus import on_gpu
from tasks.options import STAGE, same_arithmetic
from tasks.progress import reporter


class RoundItems:
    """Consecutive items of a round. No dataclass: Prefect would look through it for results of other tasks."""

    def __init__(
        self,
        stage: str,
        label: str,
        work: Callable[[Any, Any], Any],
        state: Any,
        items: tuple[Any, ...],
        rows: tuple[int, ...],
    ) -> None:
        """:param work: called with the state, a dataclass with the run's settings in `config`, and an item.
        :param rows: of progress, an item each.
        """
        self.stage, self.label, self.work, self.state, self.items, self.rows = stage, label, work, state, items, rows


@dataclass(frozen=True)
class RoundDone:
    """What the items of one task gave, in their order, and how long they took."""

    label: str
    results: tuple[Any, ...]
    seconds: float


class Counted:
    """An item's rows of progress, reported as its share grows."""

    def __init__(self, report: Callable[[int], None], rows: int) -> None:
        self._report, self._rows, self._done = report, rows, 0

    def to(self, share: float) -> None:
        """So much of the item is done."""
        if more := int(share * self._rows) - self._done:
            self._done += more
            self._report(more)


@task(name="round", task_run_name="{label}", **STAGE)
def run_round(label: str, part: RoundItems) -> Any:
    """The results of some items of a round."""
    same_arithmetic()
    began = time.perf_counter()
    report = reporter(part.stage, label)
    found = []
    with on_gpu(part.stage, part.state.config) as own:
        state = replace(part.state, config=own)
        for item, rows in zip(part.items, part.rows, strict=True):
            counted = Counted(report, rows)
            with heard(counted.to):
                found.append(part.work(state, item))
            counted.to(1.0)
    return Completed(message=label, data=RoundDone(label, tuple(found), time.perf_counter() - began))
