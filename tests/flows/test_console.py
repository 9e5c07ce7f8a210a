"""What the terminal shows at a run's end and when it is stopped; what an error leaves behind."""

import gc
import io
import os
import signal
import subprocess
import sys
import weakref

import pytest
from rich.console import Console

from flows.commands import INTERRUPTED, interruptible, let_go
from flows.console import SHOWN, summary

FOUND = {
    "release": "out/releases/0001-ab",
    "report": "out/releases/0001-ab/report.html",
    "new": True,
    "documents": {"read": 10, "selected": 2, "not_selected": 8, "filtered": {}, "quarantined": {}},
    "tokens": {"read": 100, "selected": 20},
    "certificate": {"objective": None, "upper_bound": None, "gap": None},
    "stages": [{"stage": "embed", "seconds": 2.0}],
    "failed": [],
    "skipped": [],
    "read_as": [],
    "seconds": 16.0,
    "startup": 14.0,
    "meanwhile": None,
    "warnings": [],
}
WARNING = {
    "text": "Filter x takes far more of language am (320 of 331).",
    "remedy": "loosen x",
    "look": ["--filter", "x"],
}


def shown(**changes):
    console = Console(file=io.StringIO(), width=200)
    summary({**FOUND, **changes}, console)
    return console.file.getvalue()


def test_seconds_in_all_are_all_and_start_up_is_among_them():
    assert "seconds: embed 2.0, start-up 14.0; 16.0 in all" in shown()


def test_warnings_name_group_filter_command_and_remedy():
    text = shown(warnings=[WARNING] * (SHOWN + 2))
    expected = "Look: datamask explain out/releases/0001-ab --filter x; loosen x."
    assert "warning: Filter x takes far more of language am (320 of 331)." in text and expected in text
    assert text.count("Filter x takes") == SHOWN and "2 more in the report" in text
    assert "warning" not in shown()


def test_latest_that_went_to_another_run_is_told():
    assert "latest:  `latest` points at 0002-cd" in shown(
        meanwhile="`latest` points at 0002-cd, which another run published"
    )


def test_an_error_lets_go_of_what_its_frames_held():
    class Connection:
        pass

    def fail():
        connection = Connection()
        held.append(weakref.ref(connection))
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error

    held = []
    with pytest.raises(RuntimeError) as caught:
        fail()
    gc.collect()
    assert held[0]() is not None  # the error's frames hold it
    let_go(caught.value)
    gc.collect()
    assert held[0]() is None


def test_ctrl_c_is_answered_at_once_and_a_second_one_ends_the_process():
    script = (
        "import os, signal, time\n"
        "from flows.commands import interruptible\n"
        "with interruptible():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 130 and ended.stderr.startswith(INTERRUPTED) and "stopped" in ended.stderr


def test_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
