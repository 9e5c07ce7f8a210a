"""Commands about releases: `datamask verify`, `releases`, `diff`, `explain`, `push`, `tokens`, `summary`; and for an
output folder in order: `status`, `clean`, `rollback`, `trends`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import Annotated, Any, get_args

import typer

from datamask import storage
from datamask.config import Statement
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError, printable, several
from datamask.maps import Threads
from datamask.options import JsonOption
from datamask.release.compare import Difference, compare
from datamask.release.explain import explain as look
from datamask.release.explain import read_dropped
from datamask.release.housekeeping import remove, roll_back, survey, unneeded
from datamask.release.printing import print_table, show_dropped, show_explanation, size
from datamask.release.push import upload_release
from datamask.release.release_folder import find_release, latest_version, release_versions
from datamask.release.summary.facts import FILES, publish_files, summary_files, with_statements
from datamask.release.tokens.layouts import LAYOUTS
from datamask.release.tokens.token_files import TokenOptions, verify_tokens, write_tokens
from datamask.release.trends import gather, write_page
from datamask.release.verify import verify as check
from datamask.surroundings import escaped

RELEASE = "A release's folder, OUT/latest, or an output folder (its latest release)."
Out = Annotated[str, typer.Argument(help="An output folder or URL.")]


def verify(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    against: Annotated[
        list[str] | None, typer.Option(help="The corpus (files, folders, globs): compare every value with its source.")
    ] = None,
    digest: Annotated[
        str | None, typer.Option(help="The digest that whoever published the release gave: prove that it is that one.")
    ] = None,
    tokens: Annotated[
        list[str] | None, typer.Option(help="Folders of `datamask tokens`: prove that they hold what was decided.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Recompute every sha256, row count, schema and sum of a release, and say what is not as it should be."""
    found = check(find_release(release), against or [], digest=digest)
    for folder in tokens or []:
        found.problems += verify_tokens(folder, find_release(release))
    if json_:
        print_json({**vars(found), "verified": not found.problems})
    else:
        for problem in found.problems:
            print(f"✗ {printable(problem)}")
        written = f", {several(len(tokens), 'folder')} of tokens" if tokens else ""
        compared = f", {found.compared:,} rows the same as in the corpus" if found.compared is not None else ""
        told = f"{several(found.files, 'file')}, {size(found.bytes)}, {several(found.rows, 'row')}{compared}{written}"
        print(f"{'✗' if found.problems else '✓'} {found.path}: {told}, {len(found.problems)} problems")
        if found.forgotten and not found.problems:
            print(f"no row is named by the {several(found.forgotten, 'entry', 'entries')} that must be forgotten")
        if found.digest:
            print(f"digest: {found.digest}")
    if found.problems:
        raise typer.Exit(1)


def releases(
    out: Annotated[str, typer.Argument(help="Output folder or URL.")] = "out/curated", json_: JsonOption = False
) -> None:
    """List the releases of an output folder, the newest last."""
    out = storage.output_folder(out)
    found, latest = release_versions(out), latest_version(out)
    rows = []
    for release in found:
        manifest = release.manifest()
        total = manifest["conservation"]["total"]
        rows.append(
            {
                "version": release.version,
                "latest": release.version == latest,
                "created": manifest["created"],
                "documents": total["selected"],
                "tokens": total["tokens_selected"],
                "read": total["rows"],
                "bytes": sum(item["bytes"] for item in manifest["files"]),
                "previous": (manifest["previous"] or {}).get("version"),
                "path": release.path,
            }
        )
    if json_:
        print_json({"releases": rows})
        return
    names = ("created", "documents", "tokens", "read")
    told = [
        [row["version"], "latest" if row["latest"] else "", *(row[name] for name in names), size(row["bytes"])]
        for row in rows
    ]
    print_table(["version", "", "created", "documents", "tokens", "of rows read", "size"], told)


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=RELEASE)],
    second: Annotated[str, typer.Argument(metavar="B", help=RELEASE)],
    rows: Annotated[int, typer.Option(min=1, help="Values shown of each column.")] = 10,
    json_: JsonOption = False,
) -> None:
    """Say what entered and what left from release A to release B: by source, language, length and score, and why."""
    a, b = find_release(first), find_release(second)
    found = compare(a, b)
    if json_:
        print_json({"first": a.path, "second": b.path, **vars(found)})
        return
    print(f"from {a.version} to {b.version}")
    _show_difference(found, rows)


def explain(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    document: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Its id, SHARD/CHUNK_ID, or FILE:ROW; or else --filter.")
    ] = None,
    neighbours: Annotated[int, typer.Option(min=0, help="Nearest selected documents shown.")] = 5,
    filter_: Annotated[
        str | None, typer.Option("--filter", help="List documents that fell to it; also selected, not_selected.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many of them, drawn at random.")] = 20,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="COLUMN=VALUE the documents must have; several times.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="The same as --only language=…")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which are drawn.")] = 0,
    json_: JsonOption = False,
) -> None:
    """Say why a document is in a release, or is not; or show some that a filter took, beside what was kept."""
    if (document is None) == (filter_ is None):
        raise ConfigError("give an ID to explain one document, or --filter NAME to list some; one of the two")
    found = find_release(release)
    if document is not None:
        rows = look(found, document, neighbours)
        if json_:
            print_json({"rows": [asdict(one) for one in rows]})
            return
        for one in rows:
            show_explanation(one)
        return
    pairs = [*(only or []), *([f"language={language}"] if language is not None else [])]
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ConfigError(f"--only {wrong[0]}: write COLUMN=VALUE, such as --only language=am")
    wanted = dict(pair.split("=", 1) for pair in pairs)
    listed, number, missing = read_dropped(found, str(filter_), sample, wanted, seed)
    if json_:
        print_json({"rows": [asdict(one) for one in listed], "of": number, "missing": missing})
        return
    show_dropped(listed, number, str(filter_), missing)


def push(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    url: Annotated[
        str, typer.Argument(help="hf://datasets/OWNER/NAME[@revision], s3://bucket/folder, gs://…, a folder.")
    ],
    public: Annotated[
        bool, typer.Option("--public", help="On the hub, a data set that everybody can read; without it, private.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Upload a release; run again, it goes on where it stopped. Credentials come from the environment."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    found = find_release(release)
    total = sum(item["bytes"] for item in found.manifest()["files"])
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, disable=json_, transient=True) as bars:
        task = bars.add_task("push", total=total)
        pushed = upload_release(
            found, url, lambda path, sent: bars.update(task, advance=sent, description=path[-40:]), public
        )
    if json_:
        print_json({"release": found.path, **vars(pushed)})
        return
    print(
        f"{found.path} → {pushed.url}: {several(len(pushed.uploaded), 'file')} uploaded ({size(pushed.bytes)}), "
        f"{len(pushed.skipped):,} were there, {len(pushed.removed):,} of an older release removed"
    )


def tokens(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    tokenizer: Annotated[str, typer.Option(help="A folder with tokenizer.json, such a file, or a hub name.")],
    format_: Annotated[str, typer.Option("--format", help=f"{', '.join(LAYOUTS)}.")],
    to: Annotated[str | None, typer.Option(help="Folder or URL; without it OUT/tokens.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order of the documents.")] = 0,
    end: Annotated[str | None, typer.Option("--end-token", help="Ends a document; else the tokenizer's own.")] = None,
    file_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a file, about; each worker holds as many in memory.")
    ] = TokenOptions.file_tokens,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; else one per core, at most 8.")] = None,
    json_: JsonOption = False,
) -> None:
    """Write a release as a trainer reads it: tokenised, each document as often as it was chosen, shuffled over all."""
    options = TokenOptions(format_, seed, end, file_tokens)
    done = write_tokens(find_release(release), tokenizer, options, to, Threads(workers) if workers else None)
    if json_:
        print_json({**done.record(), "folder": done.folder, "new": done.new})
        return
    files = [file for file in done.files if "tokens" in file]
    held = size(sum(file["bytes"] for file in files))
    print(
        f"{done.folder}: {several(done.documents, 'document')}, {done.tokens:,} tokens of {done.width} in "
        f"{several(len(files), 'file')}, {held}{'' if done.new else '; it was there already'}"
    )
    print(f"check it: {shlex.join(['datamask', 'verify', release, '--tokens', done.folder])}")


def summary(
    release: Annotated[str, typer.Argument(help=RELEASE)],
    to: Annotated[
        str | None,
        typer.Option(help="Folder or URL for its three files; else it is printed.", callback=outside_releases),
    ] = None,
    statement: Annotated[
        list[str] | None, typer.Option(help=f"NAME=TEXT, what only you know: {', '.join(get_args(Statement))}.")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="The provider is a small or medium enterprise.")] = False,
    json_: JsonOption = False,
) -> None:
    """Say what a release is made of, as the EU's AI Act asks: domains, dumps, dates, languages, licences, removals."""
    said: dict[str, str] = {}
    for pair in statement or []:
        name, given, said[name] = pair.partition("=")
        if not given or name not in get_args(Statement):
            raise ConfigError(f"--statement {name}: valid are {', '.join(get_args(Statement))}, each with =TEXT")
    found = find_release(release)
    files = summary_files(with_statements(found.manifest(), said, small), found.path)
    if to is not None:
        publish_files(to, files)
    if json_:
        print_json(json.loads(files[FILES[1]]))
    else:
        print(f"{to}: {', '.join(FILES)}" if to is not None else files[FILES[0]], end="\n" if to is not None else "")


# ---------------------------------------------------------------- output folders


def status(out: Out = "out/curated", json_: JsonOption = False) -> None:
    """Say what an output folder holds: its releases, the last run, what lies in work/ and what of it can go."""
    found = survey(out)
    if json_:
        print_json(asdict(found))
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
        print_json(told)
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
        print_json({"from": before, "to": after})
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
        print_json({"releases": rows, "page": page})
        return
    columns = ["version", "created", "read", "selected", "tokens", "quality", "gap", "seconds"]
    columns += [] if price is None else ["cost"]
    print_table(columns, [[row[name] for name in columns] for row in rows])
    print(f"page: {page}")


# ---------------------------------------------------------------- printing


def print_json(value: dict[str, Any]) -> None:
    """Prints a result as one JSON object."""
    print(escaped(value, indent=1))


def _show_difference(found: Difference, rows: int) -> None:
    print_table(
        ["", "documents", "tokens"],
        [[move, counts["documents"], counts["tokens"]] for move, counts in found.total.items()],
    )
    for name, values in found.groups.items():
        shown = [[v["value"], v["stayed"], v["entered"], v["left"]] for v in values[:rows]]
        if more := len(values) - rows:
            shown += [[f"… {more:,} more", None, None, None]] if more > 0 else []
        print_table([name, "stayed", "entered", "left"], shown, f"by {name}")
    causes = [[move, cause, count] for move, some in found.causes.items() for cause, count in some.items()]
    if causes:
        print("What entered was, in A, and what left is, in B:")
        print_table(["", "what", "documents"], causes)
