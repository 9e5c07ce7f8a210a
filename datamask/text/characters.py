"""What kind of character each code point is: lookup tables, built once a process."""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import regex

from datamask.text.properties import LAST, categories, characters, spaceless

# Flags of a code point.
ALPHA = 1  # str.isalpha
SYMBOL = 2  # punctuation and control characters: a word made of these alone is no word (datatrove, utils/text.py)
TERMINAL = 4  # ends a sentence, in any script: Unicode's Sentence_Terminal
UNSPACED = 8  # a letter of a script written without spaces

# Kinds: how a character takes part in words, of which `rule_words.find_words` has the rules.
BLANK, LOWER, UPPER, DIGIT, OTHER, PERIOD, COMMA, HYPHEN, INFIX, APOSTROPHE, EDGE, COLON, ALWAYS, SINGLE = range(14)

# CCNet's punctuation beyond ASCII (normalizer.py), which datatrove's filters use; the digit among it is CCNet's own.
_CCNET = "—”％１〈、━【「」，】；“《„’∶´．（–？！：～«〉》）。…►»"
_CONTROL = [chr(c) for c in (*range(9), 11, 12, *range(13, 32), *range(127, 160))]


@dataclass(frozen=True)
class CharacterTables:
    """Each indexed by code point."""

    flags: np.ndarray  # (0x110000,) uint8
    kinds: np.ndarray  # (0x110000,) uint8


@cache
def tables() -> CharacterTables:
    """The tables of all code points, made at first use."""
    flags = np.zeros(0x110000, dtype=np.uint8)
    kinds = np.full(0x110000, OTHER, dtype=np.uint8)
    category = categories()
    first = category.astype("U1")
    letter = (first == "L") | (first == "M")
    everything = characters()
    space = _points(filter(str.isspace, everything))
    unspaced = spaceless() & letter
    assigned = ~np.isin(category, ("Cn", "Cs"))
    for flag, points in (
        (ALPHA, first == "L"),
        (TERMINAL | SYMBOL, _points(regex.findall(r"\p{Sentence_Terminal}", everything))),
        (SYMBOL, _points([*string.punctuation, *_CCNET, *_CONTROL])),
        (UNSPACED, unspaced),
    ):
        flags[:LAST][points & assigned] |= flag
    rules = (  # the first that holds
        (space, BLANK), (unspaced & (first == "M"), OTHER), (unspaced, SINGLE), (_points("."), PERIOD),
        (_points(","), COMMA), (_points("-~"), HYPHEN), (_points(":<>="), COLON), (_points("/"), INFIX),
        (_points("'’"), APOSTROPHE), (_points("—–") | (category == "So"), ALWAYS),
        ((first == "P") & ~_points("@\\") | (category == "Sc") | _points("`´"), EDGE),
        (category == "Lu", UPPER), (letter, LOWER), (first == "N", DIGIT),
    )  # fmt: skip
    kinds[:LAST] = np.select([points & assigned for points, _ in rules], [kind for _, kind in rules], OTHER)
    for table in (flags, kinds):
        table.setflags(write=False)
    return CharacterTables(flags, kinds)


def _points(characters: Iterable[str]) -> np.ndarray:
    """(LAST,) bool: which code points are among the characters."""
    found = np.zeros(LAST, dtype=bool)
    found[[ord(char) for char in characters]] = True
    return found
