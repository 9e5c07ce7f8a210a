"""Locks between processes that share a folder: the kernel's own, on an open file.

A lock is gone when its process is, however it ends, so none is ever stale and the file that carries it may stay. It
holds between machines too where the file system passes locks on (NFS from version 4, Lustre, CephFS); where it has none
at all, that is said. Object stores have none; callers ask `storage.is_remote` first. (The library filelock takes the
same lock of the kernel, but cannot share one.)

    with locked(folder / ".publish.lock"): ...            # one at a time, the others wait
    with locked(path, shared=True): ...                   # many at a time, but nobody who wants it alone
    with locked(path, wait=False): ...                    # BlockingIOError if somebody has it
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from datamask.errors import StorageError

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Holds a lock on the file, which is made if it is not there. Who holds it alone may remove the file.

    :raises BlockingIOError: somebody else holds it, and `wait` is False.
    :raises StorageError: the file system has no locks.
    """
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, kind)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    raise StorageError(
                        f"cannot lock {path}: its file system has no locks, so two runs could write at once; choose an "
                        "output on a disk, or on a network file system with locks (NFS from version 4)"
                    ) from error
                raise
            if not _same(path, file.fileno()):
                continue  # whoever had it alone removed it: the lock is on a file that nobody else finds
            yield
            return


def _same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
