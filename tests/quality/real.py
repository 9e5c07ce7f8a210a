"""The real documents the tests measure on, where they are at hand."""

from __future__ import annotations

from functools import cache

import pyarrow.parquet as pq
import pytest

from tests.real import ABSENT, FOLDER


@cache
def documents(files: int = 1) -> list[dict]:
    """Rows with text of the first files; skips the test where the data are absent."""
    paths = sorted(FOLDER.glob("*.parquet"))[:files]
    if not paths:
        pytest.skip(ABSENT)
    columns = ["text", "source", "quality", "language"]
    rows = [row for path in paths for row in pq.read_table(path, columns=columns).to_pylist()]
    return [row for row in rows if row["text"] and not row["text"].isspace()]
