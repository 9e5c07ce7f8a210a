"""What can go wrong, and whether trying again can help.

Every error a user can cause is a `DatamaskError` whose message says what, where, what is valid and what to do;
the command line prints that message alone and exits with `exit_code`. `is_retryable` is what the tasks' retry
condition asks: bad input is never tried again, flaky storage is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class DatamaskError(Exception):
    """Base of every expected failure."""

    exit_code = 1
    retryable = False


class ConfigError(DatamaskError):
    """A setting is unknown, of the wrong kind, out of range, or contradicts another."""

    exit_code = 2


class InputError(DatamaskError):
    """The corpus, or a file of it, cannot be used as it is."""

    exit_code = 3


class ModelError(DatamaskError):
    """A model is missing, broken, or does not fit the settings."""

    exit_code = 4


class MissingExtraError(ModelError):
    """An optional package is needed; the message carries the exact pip line."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'datamask[{extra}]'")


class StorageError(DatamaskError):
    """A path cannot be read or written, for good (no permission, no space, no such bucket)."""

    exit_code = 5


class MissingFileError(StorageError, FileNotFoundError):
    """There is no such file."""


class DamagedFileError(StorageError, ValueError):
    """A file of datamask's own does not hold what was written to it."""


class TransientError(DatamaskError):
    """Something outside failed that may work a moment later (a connection reset, a 500)."""

    exit_code = 5
    retryable = True


class ConservationError(DatamaskError):
    """Rows were lost or counted twice: a defect in datamask, never the user's fault."""

    exit_code = 6


class IncompleteError(DatamaskError):
    """Shards failed and the run was not told to publish without them."""

    exit_code = 7


_PERMANENT_ERRNO = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOSPC}


def is_retryable(error: BaseException) -> bool:
    """True when the same call may succeed later: by type for our own errors, by errno for the system's."""
    if isinstance(error, DatamaskError):
        return error.retryable
    if isinstance(error, OSError):
        return error.errno not in _PERMANENT_ERRNO and not isinstance(error, FileNotFoundError | PermissionError)
    # botocore and aiohttp report network trouble with classes of their own, which are optional dependencies
    module = type(error).__module__.split(".")[0]
    return module in {"botocore", "aiohttp", "aiobotocore", "urllib3", "requests", "httpx", "gcsfs"}


LESS_MEMORY = "out of memory: set run.workers, corpus.shard_rows or encoder.batch_tokens lower, and run it again"


def out_of_memory(error: BaseException) -> bool:
    """True for Python's and torch's errors of that kind. Trying the same again at once would not help."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def one_line(error: BaseException) -> str:
    """A library's message as one bounded line, to be quoted in ours."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def nearest(name: str, valid: Iterable[str]) -> str:
    """'; did you mean "lamb"?' or '': the end of a message about an unknown name."""
    found = get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f'; did you mean "{found[0]}"?' if found else ""
