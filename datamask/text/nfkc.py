"""Texts in Unicode's form NFKC, as code points."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from datamask.text.code_points import WIDTH, tables
from datamask.text.utf8 import Texts, strings, utf8
from datamask.text.utf8_loops import composed


def nfkc(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """The code points of texts in NFKC, one text after the other, uint32; and where each ends, int64 [texts].

    A lone surrogate stays as it is.
    """
    try:
        raw, bounds = utf8(texts)
    except UnicodeEncodeError:  # a lone surrogate
        return _joined([_by_the_library(text) for text in strings(texts)])
    points, ends = np.empty(WIDTH * (bounds[-1] - bounds[0]), np.uint32), np.empty(len(texts), np.int64)
    composed(raw, bounds, *tables("NFKC"), points, ends)
    if len(ends) and ends.min() >= 0:
        return points[: ends[-1]], ends
    parts, begins = [], 0
    for text, end in zip(strings(texts), ends.tolist(), strict=True):
        parts.append(_by_the_library(text) if end < 0 else points[begins:end])
        begins = max(begins, end)
    return _joined(parts)


def _by_the_library(text: str) -> np.ndarray:
    return np.frombuffer(unicodedata.normalize("NFKC", text).encode("utf-32-le", "surrogatepass"), np.uint32)


def _joined(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    return np.concatenate([np.zeros(0, np.uint32), *parts]), ends
