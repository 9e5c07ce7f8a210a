"""What the terminal shows at a run's end, and what an error leaves behind."""

import gc
import io
import weakref

import pytest
from rich.console import Console

from flows.commands import let_go
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
