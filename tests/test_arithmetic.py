"""Thread pools: the same in every thread, whatever the environment said when the libraries were loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from threadpoolctl import OpenBLASController, threadpool_info, threadpool_limits

from datamask.arithmetic import same_arithmetic

SIZES = """
import os, threading
from datamask.arithmetic import same_arithmetic
found = []
def look():
    same_arithmetic()
    import scipy.linalg, sklearn.cluster, torch
    from threadpoolctl import threadpool_info
    sizes = {pool["user_api"]: pool["num_threads"] for pool in threadpool_info()}
    found.append((torch.get_num_threads(), sizes["openmp"], sizes["blas"]))
for _ in range(2):
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
assert found == [(os.cpu_count(), os.cpu_count(), 1)] * 2, found
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", None])
def test_every_pool_has_its_size_whatever_the_environment_says(threads: str | None) -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    if threads:
        environment.update(dict.fromkeys(names, threads))
    subprocess.run([sys.executable, "-c", SIZES], check=True, env=environment)


def test_blas_has_one_thread_whoever_set_it_before() -> None:
    """threadpoolctl heeds the thread that was the first to set it, and no other."""

    def elsewhere(call: Callable[[], object]) -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    OpenBLASController.clear_controlling_thread(force=True)
    elsewhere(lambda: threadpool_limits(2, "blas"))
    elsewhere(same_arithmetic)
    elsewhere(same_arithmetic)
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
