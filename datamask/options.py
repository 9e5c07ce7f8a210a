"""Options that several commands have, in the same words."""

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="A YAML file; see `datamask config`.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="A setting: section.name=value; may be given several times.")
]
