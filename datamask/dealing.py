"""The inner loop of `maps.write_dealt`."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled


@compiled
def dealt_out(rows, part, parts):  # type: ignore[no-untyped-def]
    """(rows by part, within a part in their order; where each part begins and the last ends).

    rows: (n, w); part: (n,) int32, 0 to parts − 1.
    """
    bounds = np.zeros(parts + 1, np.int64)
    for number in part:
        bounds[number + 1] += 1
    for number in range(parts):
        bounds[number + 1] += bounds[number]
    filled, found = bounds.copy(), np.empty_like(rows)
    for row in range(len(rows)):
        at = filled[part[row]]
        filled[part[row]] += 1
        for place in range(rows.shape[1]):
            found[at, place] = rows[row, place]
    return found, bounds
