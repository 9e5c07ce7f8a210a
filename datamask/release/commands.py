"""`datamask verify`, `releases`, `diff`, `explain`, `push`: what is done with releases once they are there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from datamask.release.compare import Difference
    from datamask.release.explain import Explanation

RELEASE = "A release's folder, OUT/latest, or an output folder (its latest release)."
WIDE = 240  # columns of a table where there is no terminal
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]


def verify(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    against: Annotated[
        list[str] | None, typer.Option(help="The corpus (files, folders, globs): compare every value with its source.")
    ] = None,
    json_: Json = False,
) -> None:
    """Recompute every sha256, row count, schema and sum of a release, and say what is not as it should be."""
    from datamask.release.layout import find_release
    from datamask.release.verify import verify as check

    found = check(find_release(release), against or [])
    if json_:
        _print_json({**vars(found), "verified": not found.problems})
    else:
        for problem in found.problems:
            print(f"✗ {problem}")
        compared = f", {found.compared:,} rows the same as in the corpus" if found.compared is not None else ""
        told = f"{found.files:,} files, {_size(found.bytes)}, {found.rows:,} rows{compared}"
        print(f"{'✗' if found.problems else '✓'} {found.path}: {told}, {len(found.problems)} problems")
    if found.problems:
        raise typer.Exit(1)


def releases(
    out: Annotated[str, typer.Argument(help="Output folder or URL.")] = "out/curated", json_: Json = False
) -> None:
    """List the releases of an output folder, the newest last."""
    from datamask.errors import InputError
    from datamask.release.layout import Release, latest_version, list_versions, version_key, version_path

    versions = list_versions(out.rstrip("/"))
    if not versions:
        raise InputError(f"no release in {out}; make one: datamask curate --output {out}")
    latest = latest_version(out.rstrip("/"))
    rows = []
    for version in versions:
        path = version_path(out.rstrip("/"), version)
        manifest = Release(path, version, version_key(version)).manifest()
        total = manifest["conservation"]["total"]
        rows.append(
            {
                "version": version,
                "latest": version == latest,
                "created": manifest["created"],
                "documents": total["selected"],
                "tokens": total["tokens_selected"],
                "read": total["rows"],
                "bytes": sum(item["bytes"] for item in manifest["files"]),
                "previous": (manifest["previous"] or {}).get("version"),
                "path": path,
            }
        )
    if json_:
        _print_json({"releases": rows})
        return
    _table(
        ["version", "", "created", "documents", "tokens", "of rows read", "size"],
        [
            [
                r["version"],
                "latest" if r["latest"] else "",
                r["created"],
                r["documents"],
                r["tokens"],
                r["read"],
                _size(r["bytes"]),
            ]
            for r in rows
        ],
    )


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=RELEASE)],
    second: Annotated[str, typer.Argument(metavar="B", help=RELEASE)],
    rows: Annotated[int, typer.Option(min=1, help="Values shown of each column.")] = 10,
    json_: Json = False,
) -> None:
    """Say what entered and what left from release A to release B: by source, language, length and score, and why."""
    from datamask.release.compare import compare
    from datamask.release.layout import find_release

    a, b = find_release(first), find_release(second)
    found = compare(a, b)
    if json_:
        _print_json({"first": a.path, "second": b.path, **vars(found)})
        return
    print(f"from {a.version} to {b.version}")
    _show_difference(found, rows)


def explain(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    document: Annotated[str, typer.Argument(metavar="ID", help="The document's id, or SHARD/CHUNK_ID.")],
    neighbours: Annotated[int, typer.Option(min=0, help="Nearest selected documents shown.")] = 5,
    json_: Json = False,
) -> None:
    """Say why a document is in a release, or is not: scores and signals, price, neighbours, the filter that took it."""
    from datamask.release.explain import explain as look
    from datamask.release.layout import find_release

    found = look(find_release(release), document, neighbours)
    if json_:
        _print_json({"rows": [one.to_json() for one in found]})
        return
    for one in found:
        _show_explanation(one)


def push(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    url: Annotated[
        str, typer.Argument(help="hf://datasets/OWNER/NAME[@revision], s3://bucket/folder, gs://…, a folder.")
    ],
    json_: Json = False,
) -> None:
    """Upload a release; run again, it goes on where it stopped. Credentials come from the environment."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from datamask.release.layout import find_release
    from datamask.release.push import push as upload

    found = find_release(release)
    total = sum(item["bytes"] for item in found.manifest()["files"])
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, disable=json_, transient=True) as bars:
        task = bars.add_task("push", total=total)
        pushed = upload(found, url, lambda path, size: bars.update(task, advance=size, description=path[-40:]))
    if json_:
        _print_json({"release": found.path, **vars(pushed)})
        return
    print(
        f"{found.path} → {pushed.url}: {len(pushed.uploaded):,} files uploaded ({_size(pushed.bytes)}), "
        f"{len(pushed.skipped):,} were there, {len(pushed.removed):,} of an older release removed"
    )


# ---------------------------------------------------------------- printing


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for place, column in enumerate(columns):
        numbers = all(isinstance(row[place], int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    console = Console()
    if not console.is_terminal:  # a pipe or a log: lines as long as they are
        console = Console(width=WIDE)
    console.print(table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def _show_difference(found: Difference, rows: int) -> None:
    _table(
        ["", "documents", "tokens"],
        [[move, counts["documents"], counts["tokens"]] for move, counts in found.total.items()],
    )
    for name, values in found.groups.items():
        shown = [[v["value"], v["stayed"], v["entered"], v["left"]] for v in values[:rows]]
        if more := len(values) - rows:
            shown += [[f"… {more:,} more", None, None, None]] if more > 0 else []
        _table([name, "stayed", "entered", "left"], shown, f"by {name}")
    causes = [[move, cause, count] for move, some in found.causes.items() for cause, count in some.items()]
    if causes:
        print("What entered was, in A, and what left is, in B:")
        _table(["", "what", "documents"], causes)


def _show_explanation(found: Explanation) -> None:
    decision = found.decision
    why = f" ({decision['reason']})" if decision["reason"] else ""
    print(f"{decision['id']}  {decision['shard']}/{decision['chunk_id']}: {decision['outcome'].replace('_', ' ')}{why}")
    if found.quarantine:
        print(f"  row {found.quarantine['row']} of {found.quarantine['file']}: {found.quarantine['excerpt'] or ''!r}")
    facts = [[name, decision[name]] for name in ("token_count", "quality_score", "probability", "price")]
    if found.price_rank:
        facts.append(["place by price", f"{found.price_rank['rank']:,} of {found.price_rank['of']:,} candidates"])
    if not found.quarantine:
        _table(["", ""], facts)
    if found.copy_of:
        copy = found.copy_of
        near = f", cosine {copy['similarity']:.4f}" if "similarity" in copy else ""
        print(f"kept in its place: {copy['id']}  {copy['shard']}/{copy['chunk_id']} ({copy['outcome']}{near})\n")
    if found.scores:
        _table(["score or signal", "value"], [[name, value] for name, value in found.scores.items()])
    if found.rules:
        _table(["what pulls its quality down"], [[rule] for rule in found.rules])
    if found.neighbours:
        _table(
            ["cosine", "id", "shard/row", "quality_score"],
            [[n["cosine"], n["id"], f"{n['shard']}/{n['chunk_id']}", n["quality_score"]] for n in found.neighbours],
            "nearest selected documents",
        )
    for missing in found.missing:
        print(f"not told: {missing}")
