"""`datamask sample`."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from datamask.corpus.belonging import outside_releases
from datamask.errors import several
from datamask.options import JsonOption


def sample(
    output: Annotated[
        str, typer.Argument(help="Folder for the parquet files.", callback=outside_releases)
    ] = "out/sample-corpus",
    documents: Annotated[int, typer.Option(min=1, help="Greatest number of documents.")] = 20_000,
    as_json: JsonOption = False,
) -> None:
    """Gather a sample corpus from this machine's Python packages: docstrings and long comments, as FineWeb parquet."""
    from datamask.corpus.sample import sample_corpus

    written = sample_corpus(output, documents)
    if as_json:
        print(json.dumps({"output": output, "documents": written.documents, "files": [str(f) for f in written.files]}))
        return
    print(
        f"{several(written.documents, 'document')} from {several(written.packages, 'package')} in "
        f"{several(len(written.files), 'file')}: {output}"
    )
    print(f"next: {shlex.join(['datamask', 'curate', '--input', output, '--output', 'out/sample'])}")
