"""A batch of texts as code points, and hashes of what stands between two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datamask.compiling import compiled

AS_FOLDED = np.uint64(0x51ED270B)  # added to a folded code point before it is hashed
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: of the polynomial of a word's code points


def code_points(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """uint32 code points of the texts, a newline before and after each, so that every neighbour exists; (texts,) where
    each starts, and ends."""
    joined = "\n".join(["", *texts, ""])
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    ends = np.cumsum(sizes + 1)
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32), ends - sizes, ends


@compiled
def mix_hash(value):  # type: ignore[no-untyped-def]
    """A hash, or an array of them in place, scrambled: every bit depends on every bit."""
    value ^= value >> np.uint64(31)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(29)
    return value


@compiled
def hashed(point, total, power):  # type: ignore[no-untyped-def]
    """(total, power) of a hash, a polynomial in BASE, with one code point more."""
    return total + (point + AS_FOLDED) * power, power * BASE


@compiled
def span_hashes(points, start, end, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) uint64 with hashes of the code points from start (n,) to end (n,): equal texts have equal ones,
    others differ (odds of a collision: about 2**−50)."""
    for span in range(len(start)):
        total, power = np.uint64(0), np.uint64(1)
        for at in range(start[span], end[span]):
            total, power = hashed(np.uint64(points[at]), total, power)
        found[span] = mix_hash(total)
