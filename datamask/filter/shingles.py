"""How alike two texts are: by the set of their shingles, windows of 12 letters of the normalised text (`text.letters`).

a, b = shingles("To be, or not to be …"), shingles("TO BE OR NOT TO BE")
likeness(a, b)      # Likeness(jaccard=1.0, containment=1.0): what a decision records can be computed again
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.filter.pair_loops import in_common
from datamask.text.laid_texts import LaidTexts
from datamask.text.letters import unique_sorted


class Likeness(NamedTuple):
    """Of two texts: of all their shingles the share they have in common; of the smaller set's, the share in the other.

    An empty text is like nothing.
    """

    jaccard: float
    containment: float

    @classmethod
    def of(cls, common: float, one: int, other: int) -> Likeness:
        """Of two texts of so many shingles, so many of them in common."""
        if not one or not other:
            return cls(0.0, 0.0)
        return cls(common / (one + other - common), common / min(one, other))


def shingles(text: str) -> np.ndarray:
    """A text's shingles: their 32-bit hashes, ascending, each once, (n,) uint32."""
    return unique_sorted(LaidTexts.of([text]).shingles_of(0))


def likeness(one: np.ndarray, other: np.ndarray) -> Likeness:
    """Of two texts given by their `shingles`."""
    return Likeness.of(int(in_common(one, other)), len(one), len(other))
