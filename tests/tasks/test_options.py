"""Thread pools: the same in every thread, whatever the environment said when the libraries were loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tasks.options import same_arithmetic

SIZES = """
import os, threading
from tasks.options import same_arithmetic
found = []
def look():
    same_arithmetic()
    import scipy.linalg, sklearn.cluster, torch
    from threadpoolctl import threadpool_info
    found.append({torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())})
for _ in range(2):
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
assert found == [{os.cpu_count()}] * 2, found
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", None])
def test_every_pool_has_the_size_of_the_machine(threads: str | None) -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    if threads:
        environment.update(dict.fromkeys(names, threads))
    subprocess.run([sys.executable, "-c", SIZES], check=True, env=environment)


def test_a_task_that_begins_beside_the_encoders_fit_leaves_its_one_thread() -> None:
    same_arithmetic()
    with threadpool_limits(1, "blas"):
        beside = threading.Thread(target=same_arithmetic)
        beside.start()
        beside.join()
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
