"""What the studies found, in the terminal: sweeps, ablations, the judge's finding, what an addition is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from datamask.console import wide_console
from datamask.report.formatting import Table
from datamask.report.terminal import print_table
from datamask.study.sweep import Point, Sweep, front_rows
from datamask.study.verdict import Finding, lead, tables


def show_finding(found: Finding, paths: Mapping[str, str]) -> None:
    console = wide_console()
    console.print(lead(found), soft_wrap=True)
    console.print()
    for place, verdict in enumerate(found.verdicts, 1):
        console.print(f"{verdict.first} against {verdict.second}: {verdict.says}", style="bold")
        if [verdict.why] != [following.why for following in found.verdicts[place : place + 1]]:  # the same why once
            console.print(f"  {verdict.why}", soft_wrap=True)
            for judge, reach in verdict.reach.items():
                console.print(f"  {judge} read {reach}", soft_wrap=True)
    _show_tables(console, tables(found)[1:], paths)


def show_sweep(found: Sweep, paths: Mapping[str, str], picked: Point | None, config: Path | None) -> None:
    """Prints a sweep's table, the path of its page and the λ that was picked."""
    console = wide_console()
    head, rows = front_rows(found)
    print_table(console, head, rows, f"{found.chosen:.2f}")
    console.print(f"{len(found.points)} λ in {found.seconds:.1f} s; page: {paths['page']}", soft_wrap=True)
    if picked:
        where = f"written to {config}" if config else f"to use it: --set select.lamb={picked.lamb:g}"
        console.print(f"picked λ = {picked.lamb:g} (mean quality {picked.mean_quality:.3f}); {where}", soft_wrap=True)


def show_tables(lead: str, tables: Sequence[Table], paths: Mapping[str, str]) -> None:
    console = wide_console()
    console.print(lead, soft_wrap=True)
    _show_tables(console, tables, paths)


def _show_tables(console: Console, tables: Sequence[Table], paths: Mapping[str, str]) -> None:
    for title, head, rows in tables:
        console.print(f"\n{title}", style="bold")
        print_table(console, head, rows)
    if paths:
        console.print(f"page: {paths['page']}", soft_wrap=True)
