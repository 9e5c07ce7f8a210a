"""Inner loops compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """The function compiled at first use, and cached on disk where that can be written.

    It runs without the interpreter's lock and in one thread, so that sums are added in a fixed order.
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder for the cache
        return numba.njit(nogil=True)(function)
