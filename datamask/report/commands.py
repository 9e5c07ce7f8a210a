"""`datamask report`."""

from __future__ import annotations

from typing import Annotated

import typer

from datamask.corpus.belonging import outside_releases
from datamask.options import JsonOption
from datamask.release.release_folder import find_release
from datamask.storage import join
from datamask.surroundings import escaped


def report(
    release: Annotated[str, typer.Argument(help="A release, or an output folder (its latest release).")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Where to write the page again; else it is left as it is.", callback=outside_releases
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a release's report in the terminal, and build its page and pictures again from its report.json."""
    from datamask.report.report import PAGE, headline_numbers, load_findings, write_findings

    folder = find_release(release).path
    findings = load_findings(folder)
    if to is not None:
        write_findings(to, findings)
        folder = to
    if as_json:
        print(escaped({**headline_numbers(findings), "page": join(folder, PAGE)}))
        return
    from datamask.report.terminal import show_report

    show_report(findings, join(folder, PAGE))
