"""What the terminal shows at a run's end, and what an error leaves behind."""

import gc
import io
import sys
import time
import weakref
from types import SimpleNamespace

import pytest
from rich.console import Console

from datamask import times
from datamask.console import wide_console
from datamask.corpus.plan import Part, Plan, Shard
from datamask.progress import Board, StageProgress
from datamask.release.printing import WIDE
from datamask.report.terminal import print_table
from flows.commands import let_go
from flows.console import SHOWN, Display, summary, summary_text

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
    "restated": [],
    "seconds": 16.0,
    "startup": 14.0,
    "meanwhile": None,
    "removed": [],
    "warnings": [],
    "personal": None,
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
    assert "seconds of work: embed 2.0, start-up 14.0; the run took 16.0" in shown()


def test_releases_that_went_are_named():
    assert "removed: 2 releases beyond release.keep: 0001-ab, 0002-cd\n" in shown(removed=["0001-ab", "0002-cd"])
    assert "removed" not in shown()


def test_warnings_name_group_filter_command_and_remedy():
    text = shown(warnings=[WARNING] * (SHOWN + 2))
    expected = "Look: datamask explain out/releases/0001-ab --filter x; loosen x."
    assert "warning: Filter x takes far more of language am (320 of 331)." in text and expected in text
    assert text.count("Filter x takes") == SHOWN and "2 more in the report" in text
    assert "warning" not in shown()


def test_personal_data_is_told_where_it_was_looked_for():
    counts = {"documents": 7, "email": 12, "ip": 0, "card": 1, "phone": 0}
    assert "personal data: 12 e-mail addresses, 1 card number in 7 documents" in shown(personal=counts)
    one = {"documents": 1, "email": 1, "ip": 2, "card": 0, "phone": 0}
    assert "personal data: 1 e-mail address, 2 IP addresses in 1 document\n" in shown(personal=one)
    assert "personal data: none found" in shown(personal=dict.fromkeys(counts, 0))
    assert "personal data" not in shown()


def test_files_that_were_not_read_are_told_by_reason():
    skipped = [{"path": f"in/{n}.pdf", "error": "not a format datamask reads (.parquet …)"} for n in range(7)]
    skipped.append({"path": "in/b.jsonl", "error": "the same file as in/a.jsonl"})
    text = shown(skipped=skipped)
    assert "skipped 7 files, not a format datamask reads: 0.pdf, 1.pdf, 2.pdf, 3.pdf, 4.pdf, …\n" in text
    assert "skipped 1 file, read under another name: b.jsonl\n" in text


def test_paths_and_names_are_shown_as_they_are_written(monkeypatch):
    odd = "out/[a] :car: [/b]"
    assert f"dataset: {odd}" in summary_text({**FOUND, "release": odd})
    for new in (wide_console, lambda: wide_console(WIDE)):
        monkeypatch.setattr(sys, "stdout", printed := io.StringIO())
        print_table(new(), ["source", odd], [[odd, "1"]])
        assert printed.getvalue().count(odd) == 2


def test_drift_is_told():
    assert "drift: length of the 9 new documents" in shown(
        drift=[{"text": "length of the 9 new documents has shifted"}]
    )


def line(stage="embed", **changes):
    now = time.monotonic()
    return StageProgress(stage, 2, **{"total": 1000, "started": now - 10, **changes})


def test_what_remains_is_told_at_the_rate_so_far_or_by_the_last_time():
    assert line(rows=500).going == "50%, 50 documents/s, 10 s to go"
    assert line(rows=10, expected=40.0).going == "1%, 1 documents/s, 30 s to go"  # too few to believe the rate
    assert line(rows=500, expected=400.0).going == "50%, 50 documents/s, 10 s to go"
    assert line(total=0, expected=40.0).going == "working, 30 s to go"
    assert line(total=0, expected=4.0).going == "working, 0 s to go"
    assert line(rows=0, expected=40.0).going == "25%, 30 s to go"  # under Dask and Ray, before a first shard is over
    assert line(rows=0).going == "0%"
    assert line(total=0).going == "working" and line(total=0).remaining is None
    assert line(rows=1000).going == "100%, 100 documents/s, finishing"
    whole = line(rows=0)
    board = Board()
    board.stages["embed"] = whole
    board.end_whole("embed", cached=False, seconds=1.0)
    assert whole.rate == pytest.approx(100, rel=0.01) and whole.remaining is None


def test_a_terminal_has_a_bar_a_stage(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        "flows.console.Console", lambda stderr: Console(file=screen, width=120, force_terminal=True, color_system=None)
    )
    board = Board()
    lines = [line(rows=500), line("prices", total=0, expected=40.0), line("encoder", total=0)]
    board.stages = {each.stage: each for each in lines}
    with Display(board):
        pass
    text = screen.getvalue()
    assert "50 documents/s" in text and "10 s to go" in text and "30 s to go" in text and "10 s so far" in text


def test_a_notebook_has_a_table_that_is_brought_up_to_date(monkeypatch):
    class Handle:
        pages = []

        def update(self, page):
            self.pages.append(page)

    shown = SimpleNamespace(HTML=str, display=lambda page, display_id: Handle())
    monkeypatch.setattr("flows.console.import_module", {"IPython.display": shown}.__getitem__)
    monkeypatch.setattr("flows.console.Console", lambda stderr: Console(file=io.StringIO(), force_jupyter=True))
    board = Board()
    with Display(board):
        board.stages = {"embed": line(rows=500), "encoder": line("encoder", total=0)}
    page = Handle.pages[-1]
    assert page.count("<tr>") == 2 and '<progress max="1" value="0.500">' in page and "<progress></progress>" in page
    assert "<td>0/2 shards</td><td>50 documents/s</td><td>10 s to go</td>" in page


def test_times_of_the_last_run_scale_with_the_input(tmp_path):
    def plan(size):
        return Plan((Shard("x", (Part("x.parquet", "parquet", "f", size),), "f"),))

    work = str(tmp_path)
    assert times.expected(work, plan(10)) == {}
    board = Board()
    board.stages = {name: StageProgress(name, 0, 0, ended=True, done=1) for name in ("encoder", "prices", "embed")}
    for each in board.stages.values():
        each.last = each.started + 8
    board.stages["embed"].cached = 1  # a part of it was there: says nothing
    times.keep_times(work, plan(100), board)
    assert times.expected(work, plan(300)) == {"encoder": 8.0, "prices": 24.0}
    times.keep_times(work, plan(300), Board())
    assert times.expected(work, plan(300)) == {"encoder": 8.0, "prices": 24.0}
    (tmp_path / "times.json").write_text("[]")
    assert times.expected(work, plan(1)) == {}


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
