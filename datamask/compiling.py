"""Inner loops: compiled by Numba, and shared between cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba.core import config as numba_config

from datamask.surroundings import cache_folder

_CONFIG: Any = numba_config
# Of the loops' cache: raised when a named tuple that loops take moves to another module. Numba reads the types of what
# it cached before it looks whether the source has changed, and fails where one is no longer there.
LAYOUT = 4
BLOCKS = 8  # of a result; the bytes of a product by blocks depend on it
_DECLARING = threading.RLock()  # held while Numba's folder is ours: threads that load stages declare loops at once


def compiled(function: Callable[..., Any]) -> Any:
    """The function compiled at first use, and cached on disk where that can be written.

    It runs without the interpreter's lock and in one thread, so that sums are added in a fixed order.
    """
    return _compiled(function)


def vectorised(function: Callable[..., Any]) -> Any:
    """As `compiled`, but sums are added in the order that the processor's vectors suggest: a sum's last digits may
    differ from one kind of processor to another.

    It becomes part of each loop that calls it. As a function of its own it was compiled twice, alone and within its
    caller's module, with sums in two orders; which of them ran depended on whether the process had compiled it or read
    it from the cache."""
    return _compiled(function, fastmath={"reassoc", "nsz"}, forceinline=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Where NUMBA_CACHE_DIR is not set the cache lies outside the package: what it leaves there would look like an
    installation when the package is gone."""
    folder = _CONFIG.CACHE_DIR or _folder()
    if not folder:
        return numba.njit(nogil=True, **options)(function)
    with _DECLARING:
        before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, folder  # read where a function is declared, and only there
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # it cannot be written after all
            return numba.njit(nogil=True, **options)(function)
        finally:
            _CONFIG.CACHE_DIR = before


@lru_cache(maxsize=1)
def _folder() -> str:
    folder = cache_folder()
    return str(folder / f"numba-{LAYOUT}") if folder else ""


def on_cores(work: Callable[[int, int], None], size: int) -> None:
    """`work(first, last)` of `blocks_of(size)`, on as many threads as this process may use cores.

    Where each range is computed alone the bytes do not depend on how many threads there are. `work` must not call this.
    """
    for done in [_pool(os.getpid()).submit(work, *block) for block in blocks_of(size)]:
        done.result()


def blocks_of(size: int) -> list[tuple[int, int]]:
    """The ranges `first, last` of at most BLOCKS parts of `size`."""
    ends = np.linspace(0, size, BLOCKS + 1).astype(int).tolist()
    return [(first, last) for first, last in pairwise(ends) if first < last]


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """This process's threads, which stay: starting them anew for a few milliseconds' work costs as much as the work."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(min(cores, BLOCKS), thread_name_prefix="block")
