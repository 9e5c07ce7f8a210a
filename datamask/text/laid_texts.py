"""Letters, shingles and surface of texts, as the compiled loop lays them out.

A module of its own, so that importing `letters` does not wait for the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datamask.text.letters import WINDOW, tables
from datamask.text.signature_loops import hash_shingles
from datamask.text.surface import Surface
from datamask.text.unescape import unescaped
from datamask.text.utf8 import Texts


@dataclass(frozen=True, eq=False)
class LaidTexts:
    """Of several texts: the letters of text i are `units[first[i] : first[i + 1]]`; its shingles begin there too."""

    units: np.ndarray  # (U,) uint32
    hashes: np.ndarray  # (U,) uint32
    first: np.ndarray  # (texts + 1,) int64
    numbers: np.ndarray  # (texts, 7) int64: `Surface`

    @classmethod
    def of(cls, texts: Texts) -> LaidTexts:
        """Of texts without their escapes."""
        plain = unescaped(texts)
        room = 2 * len(plain[0]) + WINDOW * len(texts)
        units, hashes = np.empty(room, np.uint32), np.empty(room, np.uint32)
        first, numbers = np.zeros(len(texts) + 1, np.int64), np.empty((len(texts), len(Surface._fields)), np.int64)
        hash_shingles(plain, tables(), units, hashes, first, numbers)
        return cls(units, hashes, first, numbers)

    def letters_of(self, text: int) -> np.ndarray:
        """(n,) uint32, copied."""
        return self.units[self.first[text] : self.first[text + 1]].copy()

    def shingles_of(self, text: int) -> np.ndarray:
        """(n,) uint32 in the text's order."""
        begin, end = self.first[text : text + 2].tolist()
        return self.hashes[begin : max(end - WINDOW + 1, begin)]

    def surface_of(self, text: int) -> Surface:
        """What its surface says."""
        return Surface(*self.numbers[text].tolist())
