"""Which of two copies is the corrupted one: a character model of other documents finds the changed places unnatural.

    model = Characters(); model.learn(codes) …
    model.surprise(codes, ends)      # (texts,) nats of each text, the lower the more natural

Each character given the five before it, backed off to two and to none (interpolated as by Witten and Bell 1991), with
counts in tables indexed by a hash. Case, spaces and line ends are characters like others.
"""

from __future__ import annotations

import numpy as np

LONG_BITS, SHORT_BITS, SINGLE_BITS = 22, 20, 16  # slots of the tables: 2 · 16 MB + 2 · 4 MB + 256 kB
WEIGHT = 2.0  # of the lower order against the counts, in characters
BLOCK = 1 << 20  # characters at a time
_U = np.uint32
_BASE = _U(0x01000193)


class Characters:
    """Counts of 1-, 2-, 3-, 5- and 6-grams of characters."""

    def __init__(self) -> None:
        self._six = np.zeros(1 << LONG_BITS, np.uint32)
        self._five = np.zeros(1 << LONG_BITS, np.uint32)
        self._three = np.zeros(1 << SHORT_BITS, np.uint32)
        self._two = np.zeros(1 << SHORT_BITS, np.uint32)
        self._one = np.zeros(1 << SINGLE_BITS, np.uint32)
        self.characters = 0

    def learn(self, codes: np.ndarray) -> None:
        """Counts the characters (code points, uint32) of a text."""
        for block in _blocks(codes):
            places = _places(block)
            for table, at in zip((self._one, self._two, self._three, self._five, self._six), places, strict=True):
                table += np.bincount(at, minlength=len(table)).astype(np.uint32)
        self.characters += len(codes)

    def surprise(self, codes: np.ndarray) -> float:
        """−ln P of a text, from its sixth character on."""
        total = 0.0
        for block in _blocks(codes):
            one, two, three, five, six = _places(block)
            low = (self._one[one[5:]] + 0.1) / (self.characters + 0.1 * (1 << SINGLE_BITS))
            middle = (self._three[three[3:]] + WEIGHT * low) / (self._two[two[3:-1]] + WEIGHT)
            high = (self._six[six] + WEIGHT * middle) / (self._five[five[:-1]] + WEIGHT)
            total -= float(np.log(high).sum())
        return total


def _blocks(codes: np.ndarray) -> list[np.ndarray]:
    """Overlapping by five, so that each character from the sixth on is seen once with what is before it."""
    return [codes[start : start + BLOCK + 5] for start in range(0, max(len(codes) - 5, 0), BLOCK)]


def _places(codes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Slots of the 1-, 2-, 3-, 5- and 6-grams of n ≥ 6 characters: n, n − 1, n − 2, n − 4 and n − 5 of them."""
    one = codes * _U(0x9E3779B1)
    one ^= one >> _U(15)
    two = one[:-1] * _BASE + one[1:]
    three = two[:-1] * _BASE + one[2:]
    five = three[:-2] * _U(0x01000193**2 & 0xFFFFFFFF) + two[3:]
    six = five[:-1] * _BASE + one[5:]
    sized = ((one, SINGLE_BITS), (two, SHORT_BITS), (three, SHORT_BITS), (five, LONG_BITS), (six, LONG_BITS))
    return tuple(_slot(value, bits) for value, bits in sized)


def _slot(value: np.ndarray, bits: int) -> np.ndarray:
    mixed = (value ^ (value >> _U(16))) * _U(0x85EBCA6B)
    mixed ^= mixed >> _U(13)
    mixed *= _U(0xC2B2AE35)
    return mixed >> _U(32 - bits)
