"""What the groups of documents are called that reports count and `datamask explain --only` lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.corpus.columns import texts_of

LENGTH = "length"  # the column made of token counts
LENGTHS = (0, 64, 256, 1024, 4096, 16_384)  # tokens at which a bin begins
BINS = [
    f"{low:,} to {high - 1:,} tokens" if high else f"{low:,} tokens and more"
    for low, high in pairwise([*LENGTHS, None])
]
NONE = "(none)"  # null, or empty


def as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text; null where a column's type has none (lists, structures)."""
    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.nulls(len(column), pa.string())])
    return texts_of(column)


def with_none(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Texts, and `NONE` for null and empty ones."""
    filled = pc.fill_null(values, "")
    return pc.if_else(pc.equal(filled, ""), NONE, filled)


def length_bins(tokens: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The names of the bins of LENGTHS."""
    counts = np.asarray(pc.fill_null(tokens, 0))
    places = np.searchsorted(np.array(LENGTHS), counts, "right") - 1
    return pa.DictionaryArray.from_arrays(pa.array(places.clip(0), pa.int32()), pa.array(BINS)).cast(pa.string())
