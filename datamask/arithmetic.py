"""The same sums wherever a stage computes: how many threads the libraries add in."""

from __future__ import annotations

import os
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING

from datamask.config import Config

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def same_arithmetic(torch: bool = True) -> None:
    """The same thread pools wherever a task runs, in this thread from now on.

    The environment, Dask and Ray may say otherwise, and sums in another order round differently: without this the same
    key could stand for other bytes. A library's pool takes its size when it is loaded and can be set only then: so
    PyTorch is loaded first, and scikit-learn, which few stages need, finds its size in the environment. OpenMP keeps a
    size for each thread that asks: as many threads as the machine has cores. BLAS has one size for the process, and
    threadpoolctl lets only the thread that set it first change it, without a word to the others: so it is one thread
    from the beginning, not only where the encoder is fitted (which shares its products between cores itself).

    :param torch: False where NumPy and SciPy alone compute: the stage need not wait for PyTorch.
    """
    if not getattr(_LIMITED, "blas", False):
        import scipy.linalg  # noqa: F401

        _one_blas_thread()
        _LIMITED.blas = True
    if torch and not getattr(_LIMITED, "all", False):
        from torch import set_num_threads

        cores = os.cpu_count() or 1
        os.environ["OMP_NUM_THREADS"] = str(cores)  # for scikit-learn's pool, whenever it is loaded
        set_num_threads(cores)
        thread_pools().limit(limits=cores, user_api="openmp")
        _one_blas_thread()  # of theirs
        _LIMITED.all = True


def _one_blas_thread() -> None:
    from threadpoolctl import OpenBLASController

    with _BLAS:
        OpenBLASController.clear_controlling_thread(force=True)
        thread_pools().limit(limits=1, user_api="blas")


def thread_pools() -> ThreadpoolController:
    """The thread pools of the libraries loaded so far. Each thread of each stage asks, and a search takes 7 ms: they
    are searched again only when a module has been imported since."""
    return _thread_pools(len(sys.modules))


@lru_cache(maxsize=1)
def _thread_pools(modules: int) -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def prepared_by_numpy(config: Config) -> bool:
    """Whether neither the encoder's preparation nor the scorers' needs PyTorch."""
    scorers = {scorer.kind for scorer in config.quality.scorers}
    return config.encoder.model == "static" and scorers <= {"content", "heuristic", "column"}


_LIMITED = threading.local()
_BLAS = threading.Lock()
