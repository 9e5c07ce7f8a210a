"""Locks: one holder, or many who share; gone with their process; a file system without any is named."""

import errno
import subprocess
import sys
import threading
import time

import pytest

from datamask.errors import StorageError
from datamask.locks import locked

HOLDER = """
import sys, pathlib
from datamask.locks import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def test_one_at_a_time_or_many_who_share(tmp_path):
    path = tmp_path / "x.lock"
    with locked(path), pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    with locked(path, shared=True), locked(path, shared=True, wait=False):
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
    with locked(path, wait=False):
        pass


def test_a_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "x.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    holder.kill()
    holder.wait()
    with locked(path, wait=False):
        assert path.exists()  # the file stays; it is no lock by itself


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def none(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(StorageError, match="its file system has no locks"), locked(tmp_path / "x.lock"):
        pass


def test_who_waits_for_a_file_that_is_removed_gets_the_one_that_others_find(tmp_path):
    path, held, done = tmp_path / "lock", threading.Event(), threading.Event()

    def wait_for_it():
        with locked(path):
            held.set()
            done.wait(30)

    with locked(path):
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        time.sleep(0.2)  # so that it waits; if it does not yet, it finds no file, and makes one
        path.unlink()
    assert held.wait(30)
    with pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    done.set()
    thread.join()
