"""A finding, and what was tuned, in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console

from datamask.report.terminal import print_table
from datamask.study import judge_page as page
from datamask.study.space import Space
from datamask.study.tune import Tuned
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


def tuned(found: Tuned) -> list[str]:
    """What was searched and found, a sentence each."""
    point = Space(found.parts).said(found.point)
    gained = [f"{c.first} − {c.second} {page.interval(c)} ({c.says})" for c in found.contrasts]
    return [
        f"Tuned by {len(found.evaluations)} choices read by the coder on {', '.join(found.tuned_on)}.",
        f"Best: {point}; {found.expected:.4f} bits a byte expected there, random draws {found.random:.4f}.",
        f"Checked on {found.pools} fresh pools and on {', '.join(found.held_out)}, {found.bytes:,} bytes of each "
        "choice; bits a byte, less is better:",
        *gained,
        f"So: {found.says}.",
    ]


def show_tuned(found: Tuned, to: str) -> None:
    """The sentences, then the best of what was tried."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    for sentence in tuned(found):
        console.print(sentence, soft_wrap=True)
    space = Space(found.parts)
    best = sorted(found.evaluations, key=lambda each: (each.bits != each.bits, each.bits))[:10]
    rows = [[space.said(each.point), page.number(each.bits), f"{each.documents:,}"] for each in best]
    console.print("\nThe best of what was tried, as it was read", style="bold")
    print_table(console, ["choice", "bits a byte", "documents"], rows)
    console.print(f"configuration: {to}; datamask curate --config {to}", soft_wrap=True)
