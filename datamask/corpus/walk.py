"""The files of local folders and globs, through symbolic links, each with how it was reached; nothing is passed over
without a word: a link that leads nowhere, one that runs in a circle, a pipe, a folder that may not be read.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from fsspec.utils import glob_translate

from datamask.storage import storage_errors
from datamask.surroundings import shown

ANNEX = "/annex/objects/"  # in the target of a git-annex link


@dataclass(frozen=True)
class Entry:
    """A file, or what stands where one could be."""

    path: str
    real: str  # the file itself, links resolved: two entries with the same are one file
    size: int = 0
    stamp: str = ""  # changes when the file does
    problem: str | None = None  # why it cannot be read; None: it is a file
    circle: bool = False  # the problem is a folder that contains itself: what is in it is read where it lies


def is_hidden(name: str) -> bool:
    """Whether a name is passed over. Spark reads folders of a partition column whose name begins with an underscore."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def walk_folder(folder: str) -> Iterator[Entry]:
    """Every file below a folder, links to files and folders followed, in the order of their names.

    Names that begin with a dot or an underscore are given as files, but not entered as folders.

    :raises StorageError: a folder may not be read.
    """
    yield from _walk(folder, os.path.realpath(folder), ())


def _walk(folder: str, real: str, above: tuple[tuple[int, int], ...]) -> Iterator[Entry]:
    with storage_errors(folder):
        here = os.stat(folder)
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    above = (*above, (here.st_dev, here.st_ino))
    for entry in entries:
        path = f"{folder.rstrip('/')}/{entry.name}"
        beyond = os.path.realpath(path) if entry.is_symlink() else f"{real.rstrip('/')}/{entry.name}"
        found = _look(path, beyond)
        if found is not None:
            yield found
        elif not is_hidden(entry.name):
            inner = os.stat(path)
            if (inner.st_dev, inner.st_ino) in above:
                yield Entry(shown(path), shown(beyond), problem="a link to a folder that it lies in", circle=True)
            else:
                yield from _walk(path, beyond, above)


def look_at_path(path: str) -> Entry | None:
    """What lies at a path; None: a folder."""
    return _look(path, os.path.realpath(path))


def _look(path: str, real: str) -> Entry | None:
    at, path, real = path, shown(path), shown(real)
    try:
        found = os.stat(at)
    except FileNotFoundError:
        fetch = "; fetch it: git annex get FILE" if ANNEX in real else ""
        return Entry(path, real, problem=f"a symbolic link to {real}, which is not there{fetch}")
    except OSError as error:
        if error.errno != errno.ELOOP:
            with storage_errors(path):
                raise
        return Entry(path, path, problem="a symbolic link that leads to itself")
    if stat.S_ISDIR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        return Entry(path, real, problem="a pipe, socket or device, not a file")
    return Entry(path, real, found.st_size, f"{found.st_mtime_ns}:{found.st_ctime_ns}")


def matches(pattern: str) -> Iterator[Entry]:
    """The files that a glob names, and all files of the folders it names. ** is any number of folders."""
    parts = pattern.split("/")
    deep = next((place for place, part in enumerate(parts) if "**" in part), None)
    if deep is None:
        for path in sorted(glob.glob(pattern, include_hidden=True)):
            found = look_at_path(path)
            if found is not None:
                yield found
            else:
                yield from walk_folder(path)
        return
    wanted = re.compile(glob_translate(pattern))
    for head in sorted(glob.glob("/".join(parts[:deep]) or "/", include_hidden=True)):
        if not os.path.isdir(head):
            continue
        for entry in walk_folder(head):
            inside = entry.path.split("/")
            folders = ("/".join(inside[:end]) for end in range(deep, len(inside) + 1))
            if any(wanted.match(folder) for folder in folders):
                yield entry
