"""Ctrl-C: one line at once, whatever the command is at, and never a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import datamask
from datamask import interrupts
from datamask.interrupts import INTERRUPTS, STATUS

STAGE = re.compile(r"[a-z]+ +(done|\d+/\d+ shards?) .* s$")  # a line about one that has ended
LOADING = """
import os, signal, sys
class Import:
    def find_spec(self, name, path=None, target=None):
        if name == "datamask.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Import())
from datamask.__main__ import main
main()
"""
RUNNING = """
import os, signal, time
from datamask.interrupts import INTERRUPTS
INTERRUPTS.begin()
with INTERRUPTS.saying("stopping when the shard is through"):
    try:
        os.kill(os.getpid(), signal.SIGINT); time.sleep(60)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT); time.sleep(60)
"""


LOST = """
import gc, os, signal, time
from datamask.interrupts import INTERRUPTS
INTERRUPTS.begin()
left = [3]
def callback(phase, info):  # as Dask has one: what is raised here is dropped
    if left[0]:
        left[0] -= 1
        if left[0] == 2:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
gc.callbacks.append(callback)
try:
    gc.collect()
    for _ in range(100):
        time.sleep(0.1)
    print("never heard of")
except KeyboardInterrupt:
    print("heard of")
"""


def run(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_while_the_command_is_being_loaded_it_ends_in_one_line():
    done = run(LOADING)
    assert (done.returncode, done.stderr) == (STATUS, f"{interrupts.NOT_BEGUN}\n")


def test_the_first_is_answered_at_once_and_the_second_ends_the_process():
    done = run(RUNNING)
    assert done.returncode == STATUS
    assert done.stderr.splitlines() == ["stopping when the shard is through", interrupts.STOPPED]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_flow_that_is_terminated_says_so_in_one_line(ending):
    as_usual = f"import signal\nsignal.signal({int(ending)}, signal.SIG_DFL)\n"  # these tests may run under nohup
    done = run(as_usual + RUNNING.replace("SIGINT", ending.name))
    assert done.returncode == -ending
    assert done.stderr.splitlines() == [interrupts.STOPPED]


def test_one_that_python_drops_is_repeated_without_a_trace():
    done = run(LOST)
    assert (done.stdout, done.stderr) == ("heard of\n", f"{interrupts.STOPPING}\n")


@pytest.mark.parametrize("wait", [0.1, 0.3, 0.6, 1.0, 2.0])
def test_at_any_moment_of_a_real_start(tmp_path, wait):
    """From where Python itself is up, which takes it a tenth of a second, and longer on a busy machine; until then it
    answers in its own way, and the same is tried later."""
    lines = (json.dumps({"text": f"document {number} of a few words"}) for number in range(30))
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    for later in range(6):
        status, printed = interrupted(tmp_path, wait * 2**later)
        if not any(place in printed for place in ("init_import_site", "<frozen runpy>", "import INTERRUPTS")):
            break
    if status == 0:  # it was through before
        return
    assert status in (STATUS, -signal.SIGINT), printed  # both are 130 to a shell
    begun = ("datamask is starting: ", "datamask curate: ")  # what a run says before its first stage
    told = [line for line in printed.splitlines() if not STAGE.match(line) and not line.startswith(begun)]
    assert 1 <= len(told) <= 3 and all(line.startswith("datamask: ") for line in told), printed


def interrupted(folder, wait):
    """The exit status of a run that is interrupted so long after Python has a handler of its own, and what it said."""
    command = [sys.executable, "-m", "datamask", "curate", "--input", "x.jsonl", "--output", "out"]
    environment = {**os.environ, "PYTHONPATH": str(Path(datamask.__file__).parents[1])}
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None and not caught(status):
        time.sleep(0.005)
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=120)[0]
    return process.returncode, printed


def caught(status):
    [line] = [line for line in status.read_text().splitlines() if line.startswith("SigCgt")]
    return int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1


def test_the_words_are_put_back():
    with pytest.raises(ZeroDivisionError), INTERRUPTS.saying("x"):
        1 / 0
    assert INTERRUPTS.stopping == interrupts.STOPPING
