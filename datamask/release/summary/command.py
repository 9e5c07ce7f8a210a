"""`datamask summary`."""

from __future__ import annotations

import json
from typing import Annotated, get_args

import typer

from datamask.config import Statement
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError
from datamask.options import JsonOption
from datamask.release.commands import RELEASE, print_json
from datamask.release.release_folder import find_release
from datamask.release.summary.facts import with_statements
from datamask.release.summary.write import FILES, publish_files, summary_files


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
