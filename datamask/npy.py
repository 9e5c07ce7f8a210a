"""NumPy's .npy and .npz files, read by any number of threads.

NumPy parses a file's header as a Python literal, and CPython 3.11 counts the depth of such a parse in one place for all
threads: two at once can end in "SystemError: AST constructor recursion depth mismatch" (python/cpython#106905). So one
thread reads at a time; what is mapped into memory is looked at outside the lock.
"""

from __future__ import annotations

import threading
from typing import IO

import numpy as np

_reading = threading.Lock()


def load_array(file: IO[bytes] | str, *, mapped: bool = False) -> np.ndarray:
    """The array of an .npy file, given as a path or open. mapped: what is looked at is read, of a path alone."""
    with _reading:
        array: np.ndarray = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def load_named(file: IO[bytes], *names: str) -> dict[str, np.ndarray]:
    """The arrays of these names of an .npz file, in this order; all of them if none is named.

    :raises KeyError: the file has no array of a name.
    """
    with _reading, np.load(file, allow_pickle=False) as held:
        return {name: held[name] for name in names or held.files}


def array_names(file: IO[bytes]) -> list[str]:
    """The names of the arrays of an .npz file."""
    with np.load(file, allow_pickle=False) as held:  # reads the archive's list alone, no header
        return list(held.files)
