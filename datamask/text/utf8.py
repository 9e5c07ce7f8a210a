"""The texts of a batch as bytes, for compiled loops: a column is read as it lies in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def utf8(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The texts in UTF-8, uint8, and where each begins there, int64 [texts + 1]; a null is an empty text.

    :param texts: of type string
    """
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset) if len(texts) else np.zeros(1, np.int32)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return raw, bounds.astype(np.int64)
