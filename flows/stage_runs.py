"""The engine whose work is Prefect's tasks, on threads here, on Dask or on Ray (`flows.engine`)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Self

from prefect import Task
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger

from datamask.config import Config
from datamask.engine import Engine
from datamask.gpus import needs_gpu
from datamask.progress import EndedError
from datamask.release.release_folder import Picture, ReleaseFolder
from datamask.report.formatting import sentence
from datamask.run_numbers import as_markdown, shard_rows
from datamask.work import BatchWork, Done, Work
from flows.artifacts import RunArtifacts
from flows.engine import claiming_gpu, cluster_answers, task_runner, workers_without_interrupts
from flows.metrics import measured
from flows.server import by_the_server, stop_trying
from tasks.stage import configured


class Stages(Engine):
    """Prefect's tasks, with the artifacts and metrics of the run."""

    def __init__(self, config: Config, out: str = "") -> None:
        """:param out: the output folder, by which the UI tells artifacts of several apart."""
        super().__init__(config)
        self._ready: dict[tuple[str, type[Work]], Task[..., Any]] = {}
        self._runner = task_runner(config.run)
        self.artifacts = RunArtifacts(self.board, out)
        self._measured = measured(self.board, out)

    def __enter__(self) -> Self:
        super().__enter__()
        self.metrics = self._measured.__enter__()
        with workers_without_interrupts(self.config.run), cluster_answers(self.config.run):
            self._runner.__enter__()
            if self.config.run.engine == "dask":
                _ = self._runner.client  # type: ignore[attr-defined]  # starts the cluster, which else the first task does
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.board.ended = True
        self._runner.__exit__(kind, error, at)
        super().__exit__(kind, error, at)
        self._measured.__exit__(None, None, None)
        if by_the_server(error):
            stop_trying()
        else:
            self.artifacts.update()

    def submit(self, work: Work) -> "TaskRun":
        if self.board.ended:
            raise EndedError
        self.wait_for_libraries(work)
        gpu = any(needs_gpu(stage.name, self.config) for stage in work.stages)
        ready = self._ready.get((work.name, type(work)))
        if ready is None:  # Prefect looks at a task's source each time that one is made
            ready = configured(work.name, self.config.run, gpu, isinstance(work, BatchWork))
            self._ready[work.name, type(work)] = ready
        with claiming_gpu(self.config.run) if gpu else nullcontext():
            future = self._runner.submit(ready, {"label": work.label, "work": work})
        return TaskRun(future)

    def log(self, text: str, level: int = logging.INFO) -> None:
        get_run_logger().log(level, "%s", text)

    def update(self) -> None:
        self.artifacts.update()

    def gives_up(self, error: BaseException) -> bool:
        return by_the_server(error)

    def show_failures(self, failed: Sequence[tuple[str, str]]) -> None:
        self.artifacts.show_failures(failed)

    def show_changes(self, changes: str) -> None:
        self.artifacts.show_changes(changes)

    def show_drift(self, shifts: Sequence[str], release: str) -> None:
        self.artifacts.show_drift(shifts, release)

    def show(
        self, release: ReleaseFolder, found: Mapping[str, Any], pictures: Sequence[Picture], failed: Sequence[Any]
    ) -> None:
        """`curation` comes last, for it links to the others."""
        if self.metrics:
            self.metrics.tell(found, release)
        self.artifacts.show_pictures(release.path, pictures)
        if failed:
            self.artifacts.show_failures([(file.path, file.error) for file in failed])
        self.artifacts.show_warnings([sentence(warning, release.path) for warning in found["warnings"]])
        self.artifacts.show_shards(shard_rows(release, self))
        self.artifacts.show_numbers(as_markdown(found))


class TaskRun:
    """A task run under way; see `datamask.engine.Pending`."""

    def __init__(self, future: PrefectFuture[Any]) -> None:
        self._future = future

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        def ended(_: PrefectFuture[Any]) -> None:
            call(self)

        self._future.add_done_callback(ended)

    def result(self) -> Done:
        self._future.wait()
        done: Done = self._future.result()
        return done
