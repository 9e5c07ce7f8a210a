"""The vectors of a shard's documents, as its file holds them; and what stands for vectors where there are none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.errors import InputError


def read_vectors(path: str) -> np.ndarray:
    """(rows, d) float16 of an embeddings file; of an index, `hash_vectors` of its documents."""
    with storage.open_parquet(path) as file:
        embedded = "feature_arr" in file.schema_arrow.names
    if embedded:
        return read_features(storage.read_table(path, ["feature_arr"]), path)
    table = storage.read_table(path, ["text_hash", "reason"])
    return hash_vectors(table.filter(pa.compute.is_null(table["reason"]))["text_hash"])


def hash_vectors(hashes: pa.ChunkedArray) -> np.ndarray:
    """(rows, 16) float16 made of the hashes of documents' texts, in place of vectors where nothing reads these.

    Nothing but the order of documents depends on them: ties, samples and what is drawn.
    """
    joined = np.frombuffer(b"".join(hashes.to_pylist()), np.uint8)
    return joined.reshape(-1, 16).astype(np.float16) + np.float16(1)


def read_features(table: pa.Table, where: str) -> np.ndarray:
    """(rows, d) of a table's feature_arr: fixed-size or variable lists of any float type.

    :raises InputError: a null, or rows of different widths; names the first.
    """
    column = table["feature_arr"].combine_chunks()
    if column.null_count:
        first = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{where}: feature_arr of row {first} is null; embed that document again or leave it out")
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = column.value_lengths().to_numpy()
        if len(lengths) and (lengths != lengths[0]).any():
            first = int(np.flatnonzero(lengths != lengths[0])[0])
            raise InputError(
                f"{where}: feature_arr has {lengths[0]} numbers in row 0 and {lengths[first]} in row {first}; "
                "all rows must come from one encoder"
            )
        width = int(lengths[0]) if len(lengths) else 0
    else:
        raise InputError(f"{where}: feature_arr is {column.type}; valid: lists of floats of one length")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)
