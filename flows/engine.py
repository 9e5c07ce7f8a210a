"""The engine that tasks run on, and how they claim a GPU there: Prefect's task runners, chosen by `run.engine`."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from datamask.config import RunSettings
from datamask.errors import UNGUARDED, MachineError, MissingExtraError, StorageError, one_line


def task_runner(run: RunSettings) -> TaskRunner[Any]:
    """Threads here, or a Dask or Ray cluster: by address, else a private one with a process per worker.

    :raises MissingExtraError: the engine's package is not installed.
    """
    workers = run.workers or os.cpu_count() or 1
    if run.engine == "threads":
        return ThreadPoolTaskRunner(max_workers=workers)
    if run.engine == "dask":
        try:
            from prefect_dask import DaskTaskRunner
        except ImportError as error:
            raise MissingExtraError("run.engine dask", "dask") from error
        if run.address:
            return DaskTaskRunner(address=run.address)
        resources = {"GPU": 1} if run.gpus else None
        return DaskTaskRunner(
            cluster_kwargs={
                "n_workers": run.gpus or workers,
                "threads_per_worker": 1,
                "resources": resources,
                "dashboard_address": None,
            }
        )
    try:
        from prefect_ray import RayTaskRunner
    except ImportError as error:
        raise MissingExtraError("run.engine ray", "ray") from error
    if run.address:
        return RayTaskRunner(address=run.address)
    limits = {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False}
    return RayTaskRunner(address="local", init_kwargs={**limits, **({"num_gpus": run.gpus} if run.gpus else {})})


@contextmanager
def workers_without_interrupts(run: RunSettings) -> Iterator[None]:
    """Processes that Dask or Ray start inside do not hear Ctrl-C, which a terminal sends to all: this process ends
    them, and none of them prints how it was torn out of its work.

    They inherit that the signal is ignored; only the main thread may set it. Dask's workers would tell of every task
    that is cancelled under them; other warnings they tell.
    """
    os.environ.setdefault("DASK_LOGGING", '{"distributed.worker.state_machine": "error"}')
    if run.engine == "threads" or run.address or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def cluster_answers(run: RunSettings) -> Iterator[None]:
    """What goes wrong inside with a cluster of one's own is told as such.

    :raises StorageError: nothing that `run.address` names answers. :raises MachineError: no process of Dask's starts.
    """
    try:
        yield
    except Exception as error:
        if not run.address and run.engine == "dask" and isinstance(error, RuntimeError):  # a script without a guard
            raise MachineError(f"Dask's processes do not start here ({one_line(error)}); {UNGUARDED}") from error
        if not run.address:
            raise
        raise StorageError(
            f"run.address = {run.address}: no {run.engine.capitalize()} cluster answers there ({one_line(error)}); "
            "start it, or leave run.address out for processes of this machine"
        ) from error


@contextmanager
def claiming_gpu(run: RunSettings) -> Iterator[None]:
    """Tasks submitted inside claim one GPU: a Dask worker resource GPU, or Ray's num_gpus.

    On threads the tag `gpu` and its limit do the same (tasks/stage.py).
    """
    if run.gpus and run.engine == "dask":
        import dask

        with dask.annotate(resources={"GPU": 1}):
            yield
    elif run.gpus and run.engine == "ray":
        from prefect_ray.context import remote_options

        with remote_options(num_gpus=1):
            yield
    else:
        yield
