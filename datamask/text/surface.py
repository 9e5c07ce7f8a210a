"""How intact the surface of a text is: what capitals, spaces, line ends and punctuation tell of copies.

Of documents with the same words, the one with least wear is the original as far as anybody can tell. It means nothing
between different texts.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import NamedTuple

import numpy as np

from datamask.text.properties import categories

TABLE = 0x20000  # code points looked up
UPPER, LOWER, SPACE, STOP, RETURN, BREAK, MARK, BROKEN = 1, 2, 4, 8, 16, 32, 64, 128
QUOTE = STOP | MARK  # the sign before each line of a mail that is quoted
CASED = 40  # letters with case, from which a text without a single capital has lost them
SHOUTED = 0.5  # share of a text's cased letters that are capitals inside words, from which it is all capitals
PARAGRAPH = 64  # letters, from which a line is prose whatever it ends in
SENTENCE = 32  # letters, from which a line is prose if it ends as a sentence does
LONG = 200  # characters, from which a text on one line may have lost its line ends


@cache
def byte_kinds() -> np.ndarray:
    """(TABLE,) uint8: capitals, small letters, spaces within a line, ends of sentences, line ends, other marks,
    characters that stand for none; a letter with an accent is one with a mark, and an = is a space: quoted-printable
    leaves one where it broke a line."""
    table = np.zeros(TABLE, np.uint8)
    for code in (*range(0x3400), *range(0xA640, 0xA800), *range(0xFB00, 0xFFFF), *range(0x10400, 0x10500)):
        character = chr(code)
        category = str(categories()[code])
        table[code] = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Zs": SPACE, "Cc": BROKEN}.get(category, 0)
        if category[0] in "PS" or category == "Mn" or unicodedata.decomposition(character)[:1].isalnum():
            table[code] |= MARK
    table[0xE000:0xF900] = table[0xFFFD] = BROKEN
    table[ord("\t")], table[ord("\r")], table[ord("\n")], table[ord(">")] = SPACE, RETURN, BREAK, QUOTE
    table[ord("=")] = SPACE
    table[[ord(mark) for mark in ".!?…。！？।۔؟።"]] = STOP
    return table


class Surface(NamedTuple):
    """Of a text.

    Blemishes: runs of spaces inside a line and carriage returns; small letters that begin a sentence; every capital of
    a text that is all capitals; one for a text without any capital, and one for a long text on one line.
    """

    blemishes: int
    wear: int  # blemishes, less the punctuation, accents, spaces and line ends that are there
    broken: int  # escapes, and characters that stand for none
    prose: int  # letters of the lines that are paragraphs or sentences, not a menu's entries, a table's cells or quoted
    quoted: int  # letters of lines that are quoted, and of all below the line above a forwarded mail
    figures: int  # digits
    digest: int  # of the digits
