"""`datamask sample`."""

from __future__ import annotations

from typing import Annotated

import typer


def sample(
    output: Annotated[str, typer.Argument(help="Folder for the parquet files.")] = "out/sample-corpus",
    documents: Annotated[int, typer.Option(min=1, help="Greatest number of documents.")] = 20_000,
) -> None:
    """Gather a sample corpus from this machine's Python packages: docstrings and long comments, as FineWeb parquet."""
    from datamask.corpus.sample import sample_corpus

    written = sample_corpus(output, documents)
    print(f"{written.documents:,} documents from {written.packages:,} packages in {len(written.files)} files: {output}")
    print(f"next: datamask curate --input {output} --output out/sample")
