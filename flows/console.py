"""What is shown while a flow runs: bars in a terminal or below a notebook's cell, else plain lines; then the table."""

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import StringIO
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from datamask.console import new_console
from datamask.errors import several, some
from datamask.progress import Board, StageProgress
from datamask.records import dumped, record
from datamask.report.formatting import sentence
from datamask.run_numbers import certificate_line, personal_line, table

SHOWN = 4  # warnings on the terminal
SKIPPED = 5  # files of a kind that were not read
READ = 3  # files that were read in an encoding, or by a separator
LOG_COLUMNS = 110  # of the table in a log
PLAIN_SECONDS = 15.0  # between lines about a stage that goes on


class Display:
    """Follows a board from a thread of its own while the `with` block runs. Writes to stderr, or to the notebook."""

    def __init__(self, board: Board, as_json: bool = False) -> None:
        """:param as_json: lines of JSON instead of bars or plain lines."""
        self.board = board
        self._as_json = as_json
        self._console = Console(stderr=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last = ""
        self._told: dict[str, float] = {}  # stage: when a plain line was last written, inf when it ended
        self._page: Any = None  # below a notebook's cell
        if as_json:
            return
        if self._console.is_jupyter:
            shown = import_module("IPython.display")
            self._html = shown.HTML
            self._page = shown.display(self._html(""), display_id=True)
        elif self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description:<10}"),
                BarColumn(),
                TextColumn("{task.fields[state]:>28}"),
                TextColumn("[dim]{task.fields[rate]}"),
                TextColumn("{task.fields[time]}"),
                console=self._console,
            )

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._update()
        if self._bars:
            self._bars.stop()

    def _follow(self) -> None:
        while not self._stop.wait(0.25):
            self._update()

    def _update(self) -> None:
        if self._page is not None:
            if (text := as_html(self.board.stages.values())) != self._last:
                self._page.update(self._html(text))
                self._last = text
            return
        for line in list(self.board.stages.values()):
            if self._bars:
                self._bar(self._bars, line)
            else:
                self._tell(line)

    def _bar(self, bars: Progress, line: StageProgress) -> None:
        if line.stage not in self._tasks:
            self._tasks[line.stage] = bars.add_task(line.stage, total=line.total or None, state="", rate="", time="")
        total = (line.total or 1) if line.ended else (line.total or None)
        colour = "green" if line.ended else "dim" if line.remaining is None else "cyan"
        bars.update(
            self._tasks[line.stage],
            completed=total if line.ended else line.rows,
            total=total,
            state=_state(line),
            rate=_rate(line),
            time="" if line.is_cached else f"[{colour}]{_time(line)}",
        )

    def _tell(self, line: StageProgress) -> None:
        told = self._told.get(line.stage, 0.0)
        if line.ended and told != float("inf"):
            self._told[line.stage] = float("inf")
            self._print(line, f"{line.stage:<10} {_state(line):<28} {line.seconds:7.1f} s")
        elif not line.ended and line.elapsed - told > PLAIN_SECONDS:
            self._told[line.stage] = line.elapsed
            self._print(line, f"{line.stage:<10} {line.going} after {line.elapsed:.0f} s")

    def _print(self, line: StageProgress, text: str) -> None:
        if self._as_json:
            facts = {name: getattr(line, name) for name in ("stage", "ended", "rows", "done", "cached", "failed")}
            said = " ".join(text.split())
            write_record("info", said, share=round(line.share, 3), seconds=round(line.seconds, 2), **facts)
        else:
            print(text.rstrip(), file=sys.stderr, flush=True)


def write_record(level: str, message: str, **facts: Any) -> None:
    """A line of the log as JSON on stderr."""
    print(dumped(record(level, message, **facts)), file=sys.stderr, flush=True)


def as_html(lines: Iterable[StageProgress]) -> str:
    """A row a stage, for a notebook: bar, state, rate, what remains."""
    rows = []
    for line in lines:
        part = f' max="1" value="{line.share:.3f}"' if line.ended or line.share else ""
        cells = [line.stage, f"<progress{part}></progress>", _state(line), _rate(line), _time(line)]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _rate(line: StageProgress) -> str:
    """Documents a second, or nothing where rows are not counted."""
    return f"{line.rate:,.0f} documents/s" if line.rate else ""


def _time(line: StageProgress) -> str:
    """What remains; where nobody knows, what has gone by; at the end how long it took."""
    if line.ended:
        return f"{line.seconds:,.1f} s of work"
    return f"{line.elapsed:,.0f} s so far" if line.remaining is None else f"{line.remaining:,.0f} s to go"


def _state(line: StageProgress) -> str:
    if not line.shards:
        return ("cached" if line.cached else "done") if line.ended else "working"
    parts = [f"{line.done + line.cached + line.in_place}/{several(line.shards, 'shard')}"]
    if line.in_place:
        parts.append(f"{line.in_place} read in place")
    if line.cached:
        parts.append(f"{line.cached} cached")
    if line.failed:
        parts.append(f"{line.failed} failed")
    return ", ".join(parts)


def summary_text(found: Mapping[str, Any]) -> str:
    """The summary for a log, which has the warnings as records of their own."""
    text = StringIO()
    summary({**found, "warnings": (), "drift": ()}, new_console(file=text, width=LOG_COLUMNS))
    return text.getvalue().rstrip()


def summary(found: Mapping[str, Any], console: Console) -> None:
    """The short table at the end of a run, and where the results are."""
    say = partial(console.print, soft_wrap=True)
    counts = Table("", "documents", "tokens", box=None, header_style="dim")
    for column in counts.columns[1:]:
        column.justify = "right"
    rows = table(found)
    for what, documents, tokens, _ in rows:
        counts.add_row(what, documents, tokens)
    console.print(counts)
    for what, _, _, reasons in rows:
        if reasons:
            say(f"{what}: {reasons}")
    for line in filter(None, (certificate_line(found), personal_line(found))):
        say(line)
    show_warnings(found, console)
    for shift in found.get("drift", ()):
        say(Text("drift: ", style="bold yellow") + Text(shift["text"]))
    worked = ", ".join(f"{line['stage']} {line['seconds']:.1f}" for line in found["stages"] if line["seconds"] >= 0.05)
    start_up = f", start-up {found['startup']:.1f}" if found.get("startup") else ""
    say(f"seconds of work: {worked or 'everything was there already'}{start_up}; the run took {found['seconds']:.1f}")
    _show_unread(console, found["skipped"])
    for how in sorted({file["how"] for file in found["read_as"]}):
        names = [file["path"].rsplit("/", 1)[-1] for file in found["read_as"] if file["how"] == how]
        say(f"read as {how}: {several(len(names), 'file')} ({some(names, READ)})")
    for column in found["restated"]:
        say(f"column {column['name']}: {column['from']} in the corpus, written as {column['type']}")
    for file in found["failed"]:
        say(f"missing: {file['path']}: {file['error']}")
    say(f"dataset: {found['release']}{'' if found['new'] else '  (unchanged)'}")
    say(f"report:  {found['report']}")
    if removed := found["removed"]:
        say(f"removed: {several(len(removed), 'release')} beyond release.keep: {some(removed, READ)}")
    if told := found.get("meanwhile"):
        say(f"latest:  {told}")


def show_warnings(found: Mapping[str, Any], console: Console) -> None:
    """What the report warns about, worst first, a paragraph each."""
    warnings = found.get("warnings") or []
    for warning in warnings[:SHOWN]:
        said = Text("warning: ", style="bold yellow") + Text(sentence(warning, found["release"]))
        console.print(said, soft_wrap=True)
    if len(warnings) > SHOWN:
        console.print(f"warning: {len(warnings) - SHOWN:,} more in the report", soft_wrap=True)


def _show_unread(console: Console, skipped: Sequence[Mapping[str, str]]) -> None:
    """A line for each reason why files were not read."""
    reasons: dict[str, list[str]] = {}
    for file in skipped:
        same = file["error"].startswith("the same file as ")
        reason = "read under another name" if same else file["error"].partition(" (")[0]
        reasons.setdefault(reason, []).append(file["path"].rsplit("/", 1)[-1])
    for reason, names in reasons.items():
        line = f"skipped {several(len(names), 'file')}, {reason}: {some(names, SKIPPED)}"
        console.print(line, soft_wrap=True)
