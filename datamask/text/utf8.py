"""The texts of a batch as bytes, for compiled loops: a column is read as it lies in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Texts: TypeAlias = Sequence[str] | pa.Array


def utf8(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """The texts in UTF-8, uint8, and where each begins there, int64 [texts + 1]; a null is an empty text.

    :raises UnicodeEncodeError: a text holds a lone surrogate.
    """
    if not isinstance(texts, pa.Array):
        texts = pa.array(texts, pa.string())
    texts = texts.cast(pa.string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset) if len(texts) else np.zeros(1, np.int32)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    raw.flags.writeable = False  # as some buffers are: loops would be compiled for both kinds
    return raw, bounds.astype(np.int64)


def strings(texts: Texts) -> Sequence[str]:
    """The texts as Python has them."""
    found: Sequence[str] = texts.to_pylist() if isinstance(texts, pa.Array) else texts
    return found


def runs_of(sizes: np.ndarray, room: int) -> list[slice]:
    """Runs of things (n,) one after another, each of about so much in all; one run of nothing if there is none."""
    cuts = [0, *(np.flatnonzero(np.diff(np.cumsum(sizes) // room)) + 1).tolist(), len(sizes)]
    return [slice(*run) for run in pairwise(cuts)]


def blocks(texts: Iterable[str] | pa.Array, characters: int) -> Iterator[Texts]:
    """The texts, in runs that each end with the one by which it has so many characters."""
    held, block = 0, list[str]()
    if isinstance(texts, pa.Array):
        first = 0
        for row, size in enumerate(pc.utf8_length(texts).to_pylist()):
            held += size or 0
            if held >= characters or row + 1 == len(texts):
                yield texts[first : row + 1]
                first, held = row + 1, 0
        return
    for text in texts:
        block.append(text)
        held += len(text)
        if held >= characters:
            yield block
            block, held = [], 0
    if block:
        yield block
