"""Whether a fastText model file is whole. fastText reads past the end of a truncated one and answers with zeros.

Layout: fastText 0.9.2, src/fasttext.cc, dictionary.cc, densematrix.cc, quantmatrix.cc, productquantizer.cc.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from datamask.errors import ModelError

MAGIC, VERSION = 793712314, 12
_SUPERVISED = 3


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.place = 0

    def take(self, layout: str) -> tuple:
        values = struct.unpack_from("<" + layout, self._data, self.place)
        self.place += struct.calcsize("<" + layout)
        return values

    def skip(self, size: int) -> None:
        if size < 0 or self.place + size > len(self._data):
            raise struct.error("past the end")
        self.place += size

    def skip_string(self) -> None:
        end = self._data.find(b"\0", self.place)
        if end < 0:
            raise struct.error("past the end")
        self.place = end + 1


def check_file(path: str) -> None:
    """Walks through the file's parts.

    :raises ModelError: it is no fastText classifier, or too short.
    """
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        if size < 8 or struct.unpack("<ii", file.read(8)) != (MAGIC, VERSION):
            raise ModelError(f"fastText model {path}: not a fastText file of version {VERSION} (.bin or .ftz)")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                _walk(_Reader(data), path)
            except (struct.error, OverflowError) as error:
                raise ModelError(
                    f"fastText model {path} is broken: it ends after {size:,} bytes, in the middle; fetch it again"
                ) from error


def _walk(reader: _Reader, path: str) -> None:
    reader.take("ii")
    model = reader.take("12id")[7]  # dim, ws, epoch, minCount, neg, wordNgrams, loss, model, …, t
    if model != _SUPERVISED:
        raise ModelError(f"fastText model {path} holds word vectors, not a classifier")
    entries, _, _, _, pruned = reader.take("iiiqq")
    for _ in range(entries):
        reader.skip_string()
        reader.skip(9)  # count int64, type int8
    reader.skip(8 * max(pruned, 0))
    (quantised,) = reader.take("?")
    (_quantised_matrix if quantised else _matrix)(reader)
    (quantised_output,) = reader.take("?")
    (_quantised_matrix if quantised and quantised_output else _matrix)(reader)


def _matrix(reader: _Reader) -> None:
    rows, columns = reader.take("qq")
    reader.skip(4 * rows * columns)


def _quantised_matrix(reader: _Reader) -> None:
    (normalised,) = reader.take("?")
    rows, _, codes = reader.take("qqi")
    reader.skip(codes)
    _quantiser(reader)
    if normalised:
        reader.skip(rows)
        _quantiser(reader)


def _quantiser(reader: _Reader) -> None:
    dimensions, _, _, _ = reader.take("4i")
    reader.skip(4 * 256 * dimensions)
