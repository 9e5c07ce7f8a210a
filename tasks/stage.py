"""The task that runs a stage's work, under the stage's name: retries by the exception's type, and what it claims."""

from __future__ import annotations

from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled, Completed

from datamask.config import RunSettings
from datamask.progress import EndedError
from datamask.work import Work, can_retry
from tasks.logs import tell_errors_plainly

GPU_TAG = "gpu"  # `make server` creates its limit; without a created limit a tag does nothing

# the file is the cache; see tasks/__init__.py
STAGE: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False}

tell_errors_plainly()


@task(name="stage", task_run_name="{label}", **STAGE)
def run_work(label: str, work: Work) -> Any:
    """What the work returns, as data of a state with its message: "Finished in state Completed()" says nothing."""
    try:
        done = work()
    except EndedError:
        return Cancelled(message="its run had ended")
    return Completed(name="Cached" if done.cached else "Completed", message=done.message, data=done)


def can_help(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Prefect's retry condition: by the exception's type, never for bad input. A timeout may have been a hang."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and (can_retry(error) or state.name == "TimedOut")


def configured(stage: str, run: RunSettings, gpu: bool, shards: bool) -> Task[..., Any]:
    """The task under its stage's name, with the run's retries (delays doubled each time, with jitter), and a time limit
    on shards. A tag costs a request for a slot that takes SQLite about 2 s; so the stage is no tag but the task's name,
    by which the UI filters too."""
    delays = [run.retry_delay * 2**attempt for attempt in range(min(run.retries, 50))]
    return run_work.with_options(
        name=stage,
        retries=run.retries,
        retry_delay_seconds=delays or 0,
        retry_jitter_factor=0.5,
        retry_condition_fn=can_help,
        timeout_seconds=run.timeout if shards else None,
        tags=[GPU_TAG] if gpu and run.gpus else None,
    )
