"""What the commands print: tables with rich, as wide as the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from datamask.report import page
from datamask.report.findings import OURS, Findings
from datamask.report.sections import make_sections
from datamask.study import arms, front
from datamask.study.ablation import Ablation
from datamask.study.sweep import Point, Sweep


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], mark: str | None = None) -> None:
    """A plain table, first column left, the others right; the row that begins with `mark` in bold."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == mark else None)
    console.print(table)


def show_report(findings: Findings, path: str) -> None:
    """The page's lead and first tables."""
    console = _console()
    console.print(page.lead(findings), soft_wrap=True)
    for section in make_sections(findings, {}):
        tables = [block for block in section.blocks if block["kind"] == "table"]
        if section.id in ("selected", "objective", "diversity", "length", "stages") and tables:
            console.print(f"\n{section.title}", style="bold")
            for block in tables:
                print_table(console, block["head"], block["rows"], OURS)
    console.print(f"page: {path}", soft_wrap=True)


def show_sweep(found: Sweep, paths: Mapping[str, str], picked: Point | None, config: Path | None) -> None:
    """Prints a sweep's table, the path of its page and the λ that was picked."""
    console = _console()
    head, rows = front.rows(found)
    print_table(console, head, rows, f"{found.chosen:.2f}")
    console.print(f"{len(found.points)} λ in {found.seconds:.1f} s; page: {paths['page']}", soft_wrap=True)
    if picked:
        where = f"written to {config}" if config else f"to use it: --set select.lamb={picked.lamb:g}"
        console.print(f"picked λ = {picked.lamb:g} (mean quality {picked.mean_quality:.3f}); {where}", soft_wrap=True)


def show_ablation(found: Ablation, paths: Mapping[str, str]) -> None:
    """Prints an ablation's lead, its tables and the path of its page."""
    console = _console()
    console.print(arms.lead(found), soft_wrap=True)
    for title, head, rows in arms.tables(found):
        console.print(f"\n{title}", style="bold")
        print_table(console, head, rows)
    console.print(f"page: {paths['page']}", soft_wrap=True)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A line on stderr that is written over in a terminal, and a line a step where there is none."""
    terminal = sys.stderr.isatty()

    def line(text: str) -> None:
        print(f"\r\x1b[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)

    try:
        yield line
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
