"""Errors: every one crosses a process, as Dask and Ray send them; a full disk is known by whatever says it."""

import errno
import importlib
import inspect
import pickle
import pkgutil

import cloudpickle
import pytest

import datamask
import flows
import tasks
from datamask.errors import DatamaskError, StorageError, disk_full, printable


def classes():
    for package in (datamask, tasks, flows):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, pending = set(), [DatamaskError]
    while pending:
        kind = pending.pop()
        found.add(kind)
        pending += kind.__subclasses__()
    return sorted(found, key=lambda kind: kind.__name__)


def test_every_error_survives_pickling():
    assert len(classes()) > 10
    for kind in classes():
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
        named = [p for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        given = [() if kind.__name__ == "ShardsFailed" else f"{p.name} of it" for p in named] or ["what, where"]
        error = kind(*given)
        for dumps in (pickle.dumps, cloudpickle.dumps):
            again = pickle.loads(dumps(error))
            assert type(again) is kind and str(again) == str(error) and again.args == error.args


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/x"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Error: I/O error: No space left on device (os error 28)"),
        OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
    ],
)
def test_a_full_disk_is_known_by_its_words(error):
    said = disk_full(error)
    assert "choose another place" in said and ("/x" in said or "TMPDIR" in said)
    try:
        try:
            raise error
        except Exception as cause:
            raise ValueError("in the midst of something") from cause
    except ValueError as outer:
        assert disk_full(outer) == disk_full(error)
    assert disk_full(ValueError("no space in this name")) is None
    known = StorageError("cannot write x: No space left on device; free some space")
    assert disk_full(known) == str(known)


def test_printable_keeps_text_and_shows_what_moves_a_terminal():
    assert printable("Größe 日本\n\tx") == "Größe 日本\n\tx"
    assert printable("\x1b[2J\r\x07\u202e") == "\\x1b[2J\\r\\x07\\u202e"
