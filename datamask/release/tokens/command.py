"""`datamask tokens`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from datamask.errors import several
from datamask.maps import Threads
from datamask.options import JsonOption
from datamask.release.commands import RELEASE, print_json
from datamask.release.printing import size
from datamask.release.release_folder import find_release
from datamask.release.tokens.layouts import LAYOUTS
from datamask.release.tokens.write import TokenOptions, write_tokens


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
