"""Options that several commands have, in the same words."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="A YAML file; see `datamask config`.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="A setting: section.name=value; may be given several times.")
]


@contextmanager
def prints_aside(as_json: bool) -> Iterator[None]:
    """With --json what code of the user's own prints goes to stderr, for it is no part of the object."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield
