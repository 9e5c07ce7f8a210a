"""What can go wrong, and whether trying again can help.

Every error a user can cause is a `DatamaskError` whose message says what, where, what is valid and what to do;
the command line prints that message alone and exits with `exit_code`. `is_retryable` is what the tasks' retry
condition asks: bad input is never tried again, flaky storage is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any


class DatamaskError(Exception):
    """Base of every expected failure: a message for people, and what it says as fields, where it is raised with them.

    Both survive pickling, as errors of workers must.
    """

    exit_code = 1
    retryable = False

    def __init__(
        self,
        *said: object,
        path: str | None = None,
        setting: str | None = None,
        valid: Iterable[str] = (),
        next: Iterable[str] = (),
    ) -> None:
        """
        :param said: the message.
        :param path: of the file or folder that it is about.
        :param setting: that it is about, its section and name with a dot between.
        :param valid: values that would be accepted.
        :param next: what to type, an option or a command each.
        """
        super().__init__(*said)
        self.path, self.setting, self.valid, self.next = path, setting, tuple(valid), tuple(next)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that it was raised with."""
        found = {"path": self.path, "setting": self.setting, "valid": list(self.valid), "next": list(self.next)}
        return {name: value for name, value in found.items() if value}


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
        super().__init__(what, extra)  # the arguments themselves, so that it survives pickling
        self.next = (f"pip install 'datamask[{extra}]'",)

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what}: an optional package is missing; pip install 'datamask[{extra}]'"


class StorageError(DatamaskError):
    """A path cannot be read or written, for good (no permission, no space, no such bucket)."""

    exit_code = 5


class MachineError(StorageError):
    """Something of this machine stands in the way: a home folder, a proxy, an encoding, a library that is broken."""


class ServerGoneError(StorageError):
    """Prefect's server went away while a run was at it; at its end the process would wait for it, for minutes."""


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


# errno: what to do about it
FULL = {
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some of your quota or choose another place",
    errno.EFBIG: "files there, or of this process (ulimit -f), may not be so large",
    errno.EROFS: "choose a place that can be written",
}
_PERMANENT_ERRNO = {*FULL, errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR}


def is_retryable(error: BaseException) -> bool:
    """True when the same call may succeed later: by type for our own errors, by errno for the system's."""
    if isinstance(error, DatamaskError):
        return error.retryable
    if isinstance(error, OSError):
        return error.errno not in _PERMANENT_ERRNO and not isinstance(error, FileNotFoundError | PermissionError)
    # botocore and aiohttp report network trouble with classes of their own, which are optional dependencies
    module = type(error).__module__.split(".")[0]
    return module in {"botocore", "aiohttp", "aiobotocore", "urllib3", "requests", "httpx", "gcsfs"}


UNGUARDED = 'in a script, put what it runs below `if __name__ == "__main__":`'
LESS_MEMORY = "out of memory: set run.workers, corpus.shard_rows or encoder.batch_tokens lower, and run it again"


def out_of_memory(error: BaseException) -> bool:
    """True for Python's and torch's errors of that kind. Trying the same again at once would not help."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def causes(error: BaseException | None, handled: bool = False) -> Iterator[BaseException]:
    """An error, what groups of errors hold, and what each was raised from, each once.

    :param handled: and what each was raised in the handling of, which need not be its cause.
    """
    todo, seen = [error], set()
    while todo:
        error = todo.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            yield error
            todo += [error.__context__ if handled else None, error.__cause__]
            todo += reversed(error.exceptions) if isinstance(error, BaseExceptionGroup) else []


def disk_full(error: BaseException) -> str | None:
    """What to tell of an error that says in any way that nothing more can be written, or that its cause says so.

    Libraries hide the errno: DuckDB, tokenizers and safetensors have it in the words of their own exceptions alone.
    """
    for cause in causes(error, handled=True):
        number = getattr(cause, "errno", None)
        text = str(cause)
        for known, remedy in FULL.items():
            if number == known or os.strerror(known) in text or f"os error {known})" in text:
                if isinstance(cause, StorageError):
                    return text
                name = getattr(cause, "filename", None)
                where = f": {name}" if name else f" (of the output, or of TMPDIR: {os.environ.get('TMPDIR', '/tmp')})"
                return f"{os.strerror(known)}{where}; {remedy}"
    return None


def printable(text: str) -> str:
    """`text` for a terminal: control characters, which could move its cursor or hide lines, as \\x.. and the like."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def several(number: int, one: str, many: str = "") -> str:
    """ "1 file", "1,200 files"; many: the word for more than one where it takes more than an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def some(values: Iterable[object], most: int) -> str:
    """The first so many, and dots for the others: "a, b, …"."""
    named = [str(value) for value in values]
    return ", ".join(named[:most]) + (", …" if len(named) > most else "")


def one_line(error: BaseException) -> str:
    """A library's message as one bounded line, to be quoted in ours."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def nearest(name: str, valid: Iterable[str]) -> str:
    """'; did you mean "lamb"?' or '': the end of a message about an unknown name."""
    found = get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f'; did you mean "{found[0]}"?' if found else ""
