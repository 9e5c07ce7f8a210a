"""A finding in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console

from datamask.report.terminal import print_table
from datamask.study import page
from datamask.study.verdict import Finding


def show_finding(found: Finding, paths: Mapping[str, str]) -> None:
    """What was judged, the verdicts as sentences, then the tables."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(page.lead(found), soft_wrap=True)
    console.print()
    for place, verdict in enumerate(found.verdicts, 1):
        console.print(f"{verdict.first} against {verdict.second}: {verdict.says}", style="bold")
        if [verdict.why] != [following.why for following in found.verdicts[place : place + 1]]:  # the same why once
            console.print(f"  {verdict.why}", soft_wrap=True)
    for title, head, rows in page.tables(found)[1:]:
        console.print(f"\n{title}", style="bold")
        print_table(console, head, rows)
    console.print(f"page: {paths['page']}", soft_wrap=True)
