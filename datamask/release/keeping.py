"""`datamask status`, `clean`, `rollback`, `trends`: keeping an output folder in order."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from datamask.corpus.belonging import outside_releases
from datamask.errors import several
from datamask.options import JsonOption
from datamask.release.housekeeping import remove, roll_back, survey, unneeded
from datamask.release.printing import print_table, size
from datamask.release.trends import gather, write_page

Out = Annotated[str, typer.Argument(help="An output folder or URL.")]


def status(out: Out = "out/curated", json_: JsonOption = False) -> None:
    """Say what an output folder holds: its releases, the last run, what lies in work/ and what of it can go."""
    found = survey(out)
    if json_:
        print(json.dumps(asdict(found)))
        return
    print(
        f"latest:   {found.latest or 'none yet'} of {several(found.releases, 'release')}, {size(found.release_bytes)}"
    )
    given = ", ".join(found.input) or "an input unknown"
    read = f"{several(found.documents, 'row')} of {several(found.shards, 'shard')} from {given}"
    print(f"last run: {read if found.shards else 'none has come to its end yet'}")
    for key in found.unfinished:
        print(f"begun:    a release {key} was not finished; the same command goes on with it")
    for warning in found.warnings:
        print(f"warning:  {warning}")
    print_table(["work/", "files", "size"], [[stage.name, stage.files, size(stage.bytes)] for stage in found.work])
    if found.frees:
        print(f"`datamask clean {out}` would free {size(found.frees)}")
    if found.free is not None:
        print(f"free on this disk: {size(found.free)}")


def clean(
    out: Out,
    releases: Annotated[int, typer.Option(min=1, help="Keep what so many of the newest releases need.")] = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without, only say what would go.")] = False,
    json_: JsonOption = False,
) -> None:
    """Say which files of work/ no release needs any more, and what removing them frees; with --yes remove them."""
    found = remove(out, releases) if yes else unneeded(out, releases)
    if json_:
        told = {"kept_for": found.kept_for, "releases": found.releases, "bytes": found.bytes}
        told |= {"stages": [asdict(stage) for stage in found.stages], "removed": yes, "files": found.paths}
        print(json.dumps(told))
        return
    for version in found.releases:
        done = "removed" if yes else "can go"
        print(f"{done}: release {version}, whole: it holds documents that must be forgotten")
    if not found.paths and not found.releases:
        print(f"{out}: nothing to remove; all of work/ is needed by {', '.join(found.kept_for)}")
        return
    print_table(["work/", "files", "size"], [[stage.name, stage.files, size(stage.bytes)] for stage in found.stages])
    kept = f"what {', '.join(found.kept_for)} and the last run need stays"
    print(f"{'removed' if yes else 'can go'}: {several(len(found.paths), 'file')}, {size(found.bytes)}; {kept}")
    if not yes:
        print(f"nothing was removed yet: datamask clean {out} --releases {releases} --yes")


def rollback(
    out: Out,
    version: Annotated[
        str | None, typer.Argument(help="A release's version or number; by default the one before.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Point `latest` at an earlier release; nothing is removed."""
    before, after = roll_back(out, version)
    if json_:
        print(json.dumps({"from": before, "to": after}))
        return
    print(f"latest: {before} → {after}; back again: datamask rollback {out} {before.split('-')[0]}")


def trends(
    out: Out = "out/curated",
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Where the page is written: trends.html, with --json nowhere.", callback=outside_releases
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(min=0, help="What an hour of work costs, in any currency: tells each release's cost."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show how the releases have changed: documents, tokens, quality, gap, seconds, cost; as a table and a page."""
    rows = gather(out, price)
    page = to or (None if json_ else "trends.html")
    if page:
        write_page(rows, page)
    if json_:
        print(json.dumps({"releases": rows, "page": page}))
        return
    columns = ["version", "created", "read", "selected", "tokens", "quality", "gap", "seconds"]
    columns += [] if price is None else ["cost"]
    print_table(columns, [[row[name] for name in columns] for row in rows])
    print(f"page: {page}")
