"""What the commands print: tables with rich, as wide as the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.table import Table

from datamask.console import wide_console
from datamask.report import page
from datamask.report.findings import OURS, Findings
from datamask.report.formatting import Table as Titled
from datamask.report.sections import make_sections


def print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], mark: str | None = None) -> None:
    """A plain table, first column left, the others right; the row that begins with `mark` in bold."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place == 0 else "right", overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == mark else None)
    console.print(table)


def show_report(findings: Findings, path: str) -> None:
    console = wide_console()
    console.print(page.lead(findings), soft_wrap=True)
    for section in make_sections(findings):
        tables = [block for block in section.blocks if block["kind"] == "table"]
        if section.id in ("selected", "objective", "diversity", "length", "stages") and tables:
            console.print(f"\n{section.title}", style="bold")
            for block in tables:
                print_table(console, block["head"], block["rows"], OURS)
    console.print(f"page: {path}", soft_wrap=True)


def show_tables(lead: str, tables: Sequence[Titled], paths: Mapping[str, str]) -> None:
    """What a study found: in words, in tables, and where its page is, if it was kept."""
    console = wide_console()
    console.print(lead, soft_wrap=True)
    print_tables(console, tables, paths)


def print_tables(console: Console, tables: Sequence[Titled], paths: Mapping[str, str]) -> None:
    for title, head, rows in tables:
        console.print(f"\n{title}", style="bold")
        print_table(console, head, rows)
    if paths:
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
