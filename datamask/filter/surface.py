"""How intact the surface of a text is: what capitals, spaces, line ends and punctuation tell of copies.

Of documents with the same words, the one with least wear is the original as far as anybody can tell. It means nothing
between different texts.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any, NamedTuple

import numpy as np

TABLE = 0x20000
UPPER, LOWER, SPACE, STOP, RETURN, BREAK, MARK = 1, 2, 4, 8, 16, 32, 64
CASED = 40  # letters with case, from which a text without a single capital has lost them
SHOUTED = 0.5  # share of a text's cased letters that are capitals inside words, from which it is all capitals
PARAGRAPH = 80  # characters, from which a line is prose whatever it ends in
SENTENCE = 40  # characters, from which a line is prose if it ends as a sentence does
LONG = 200  # characters, from which a text on one line may have lost its line ends


@cache
def kinds() -> np.ndarray:
    """(TABLE,) uint8: capitals, small letters, spaces within a line, ends of sentences, line ends, other marks."""
    table = np.zeros(TABLE, np.uint8)
    for code in (*range(0x3400), *range(0xA640, 0xA800), *range(0xFB00, 0xFFFF), *range(0x10400, 0x10500)):
        category = unicodedata.category(chr(code))
        table[code] = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Zs": SPACE}.get(category, 0)
        if category[0] in "PS":
            table[code] = MARK
    table[ord("\t")], table[ord("\r")], table[ord("\n")] = SPACE, RETURN, BREAK
    table[[ord(mark) for mark in ".!?…。！？।۔؟።"]] = STOP
    return table


class Surface(NamedTuple):
    """Of some texts: (texts,) int64 each; of one text: ints."""

    blemishes: Any
    stops: Any  # ends of sentences
    wear: Any  # blemishes, less the punctuation, spaces and line ends that are there


def surface(codes: np.ndarray, ends: np.ndarray) -> Surface:
    """Of texts given by their code points, one after another, and their ends.

    Blemishes: runs of spaces inside a line and carriage returns; small letters that begin a sentence; every capital of
    a text that is all capitals; one for a text without any capital, and one for a long text on one line.
    """
    if not len(codes):
        return Surface(*np.zeros((3, len(ends)), np.int64))
    kind = kinds()[codes if codes.max() < TABLE else np.minimum(codes, TABLE - 1)]

    def counted(found: np.ndarray) -> np.ndarray:
        return np.diff(np.searchsorted(np.flatnonzero(found), ends), prepend=0)

    before, now = kind[:-1], kind[1:]
    white = kind & (SPACE | RETURN | BREAK) != 0
    bad = kind == RETURN
    bad[2:] |= (kind[2:] == SPACE) & (kind[1:-1] == SPACE) & (kind[:-2] & (SPACE | RETURN | BREAK) == 0)
    bad[2:] |= (kind[2:] == LOWER) & (kind[1:-1] == SPACE) & (kind[:-2] == STOP)
    inside = np.zeros(len(kind), bool)
    inside[1:] = (now == UPPER) & (before & (UPPER | LOWER) != 0)
    upper, lower, shouted = counted(kind == UPPER), counted(kind == LOWER), counted(inside)
    blemishes = counted(bad)
    blemishes += np.where(shouted > SHOUTED * (upper + lower), shouted, 0)
    blemishes += (upper == 0) & (lower >= CASED)
    blemishes += (counted(kind == BREAK) == 0) & (np.diff(ends, prepend=0) >= LONG)
    spaces, lines = white.copy(), kind == BREAK
    spaces[1:] &= ~white[:-1]
    lines[1:] &= ~lines[:-1]
    stops = counted(kind == STOP)
    parts = counted(kind == MARK) + stops + counted(spaces) + counted(lines)
    return Surface(blemishes, stops, blemishes - parts)


class Prose(NamedTuple):
    """Of some texts: (texts,) int64 each; of one text: ints."""

    characters: Any  # of all lines
    prose: Any  # of the lines that are paragraphs or sentences, not a menu's entries or a table's cells


def prose(codes: np.ndarray, ends: np.ndarray) -> Prose:
    """Of texts given by their code points, one after another, and their ends."""
    if not len(codes):
        return Prose(*np.zeros((2, len(ends)), np.int64))
    kind = kinds()[codes if codes.max() < TABLE else np.minimum(codes, TABLE - 1)]
    cuts = np.flatnonzero(kind == BREAK) + 1
    stops = np.union1d(cuts, ends[ends > 0])
    starts = np.concatenate([[0], stops[:-1]])
    lengths = stops - starts
    stop = kind == STOP
    closed = stop[stops - 1] | stop[np.maximum(stops - 2, starts)] | stop[np.maximum(stops - 3, starts)]
    said = (lengths >= PARAGRAPH) | ((lengths >= SENTENCE) & closed)

    def summed(values: np.ndarray) -> np.ndarray:
        found = np.concatenate([[0], np.cumsum(values)])
        return np.diff(found[np.searchsorted(stops, ends, side="right")], prepend=0)

    return Prose(summed(lengths), summed(np.where(said, lengths, 0)))
