"""Arrow and Feather files, among them the .arrow files of a data set that `datasets` saved to a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from datamask.corpus.plan import Part
from datamask.corpus.project import Rows
from datamask.corpus.streams import damage
from datamask.errors import InputError
from datamask.storage import open_input

ROWS = 2000  # of a batch


def open_arrow(file: Any, path: str) -> pa.RecordBatchReader | pa.RecordBatchFileReader:
    """A reader of a file in Arrow's file format (Feather 2) or its streaming format (`save_to_disk`).

    :raises InputError: it is in neither.
    """
    magic = bytes(file.read(6))
    file.seek(0)
    if magic == b"ARROW1":
        return pa.ipc.open_file(pa.PythonFile(file, mode="r"))
    if magic.startswith(b"FEA1"):
        raise InputError(f"{path}: Feather of version 1; write it again with a newer pyarrow or pandas")
    return pa.ipc.open_stream(pa.PythonFile(file, mode="r"))


def schema_of(path: str) -> pa.Schema:
    """:raises InputError: it is no such file, or damaged."""
    with damage(path), open_input(path) as file:
        return open_arrow(file, path).schema


def batches(part: Part) -> Iterator[Rows]:
    with damage(part.path), open_input(part.path) as file:
        reader = open_arrow(file, part.path)
        found = (
            (reader.get_batch(number) for number in range(reader.num_record_batches))
            if isinstance(reader, pa.RecordBatchFileReader)
            else reader
        )
        for batch in found:
            for column in batch.columns:
                _check(column)
            for first in range(0, batch.num_rows, ROWS):
                rows = batch.slice(first, ROWS)
                yield rows, [None] * rows.num_rows, [None] * rows.num_rows


def _check(array: pa.Array) -> None:
    """Whether every value lies inside the file's buffers. Bytes that are no UTF-8 are a row's trouble, not the file's.

    :raises pyarrow.ArrowInvalid: one does not.
    """
    if pa.types.is_string(array.type):
        array = array.view(pa.binary())
    elif pa.types.is_large_string(array.type):
        array = array.view(pa.large_binary())
    elif pa.types.is_dictionary(array.type):
        array.indices.validate(full=True)
        _check(array.dictionary)
        array.validate()
        known = pc.less(pc.cast(array.indices, pa.int64()), len(array.dictionary))
        if pc.any(pc.invert(known)).as_py() or (pc.min(array.indices).as_py() or 0) < 0:
            raise pa.ArrowInvalid("an index beyond the dictionary")
        return
    array.validate(full=True)
