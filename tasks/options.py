"""How tasks are tried again and what they claim, from the settings of `run`."""

from __future__ import annotations

import os
import threading
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from datamask.config import Config, RunSettings
from datamask.errors import is_retryable
from tasks.batch import ShardsFailed

GPU_TAG = "gpu"  # `make server` creates its limit; without a created limit a tag does nothing

# the file is the cache; see tasks/__init__.py
STAGE: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False}


def can_help(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Prefect's retry condition: by the exception's type, never for bad input. A timeout may have been a hang."""
    error = state.result(raise_on_failure=False)
    if isinstance(error, ShardsFailed):
        return error.can_retry
    return isinstance(error, BaseException) and (is_retryable(error) or state.name == "TimedOut")


def configured(task: Task[..., Any], stage: str, run: RunSettings, gpu: bool, shards: bool) -> Task[..., Any]:
    """The task under its stage's name, with the run's retries (delays doubled each time, with jitter), and a time limit
    on shards. A tag costs a request for a slot that takes SQLite about 2 s; so the stage is no tag but the task's name,
    by which the UI filters too."""
    delays = [run.retry_delay * 2**attempt for attempt in range(min(run.retries, 50))]
    return task.with_options(
        name=stage,
        retries=run.retries,
        retry_delay_seconds=delays or 0,
        retry_jitter_factor=0.5,
        retry_condition_fn=can_help,
        timeout_seconds=run.timeout if shards else None,
        tags=[GPU_TAG] if gpu and run.gpus else None,
    )


def same_arithmetic(torch: bool = True) -> None:
    """The same thread pools wherever a task runs, in this thread from now on.

    The environment, Dask and Ray may say otherwise, and sums in another order round differently: without this the same
    key could stand for other bytes. A library's pool takes its size when it is loaded and can be set only then, so all
    that have one are loaded first. OpenMP keeps a size for each thread that asks: as many threads as the machine has
    cores. BLAS has one size for the process, and threadpoolctl lets only the thread that set it first change it,
    without a word to the others: so it is one thread from the beginning, not only where the encoder is fitted (which
    shares its products between cores itself).

    :param torch: False where NumPy and SciPy alone compute: the stage need not wait for PyTorch and scikit-learn.
    """
    if not getattr(_LIMITED, "blas", False):
        import scipy.linalg  # noqa: F401

        _one_blas_thread()
        _LIMITED.blas = True
    if torch and not getattr(_LIMITED, "all", False):
        import sklearn.utils._openmp_helpers  # noqa: F401
        from threadpoolctl import threadpool_limits
        from torch import set_num_threads

        cores = os.cpu_count() or 1
        set_num_threads(cores)
        threadpool_limits(cores, "openmp")
        _one_blas_thread()  # of theirs
        _LIMITED.all = True


def _one_blas_thread() -> None:
    from threadpoolctl import OpenBLASController, threadpool_limits

    with _BLAS:
        OpenBLASController.clear_controlling_thread(force=True)
        threadpool_limits(1, "blas")


def prepared_by_numpy(config: Config) -> bool:
    """Whether neither the encoder's preparation nor the scorers' needs PyTorch."""
    scorers = {scorer.kind for scorer in config.quality.scorers}
    return config.encoder.model == "static" and scorers <= {"content", "heuristic", "column"}


_LIMITED = threading.local()
_BLAS = threading.Lock()


def needs_gpu(stage: str, config: Config) -> bool:
    """Whether a stage computes on a GPU when the run has some."""
    if stage == "score":
        return any(scorer.kind in ("transformer", "encoder", "prox") for scorer in config.quality.scorers)
    return stage in ("embed", "prices", "mask")
