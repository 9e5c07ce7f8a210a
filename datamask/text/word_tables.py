"""What each code point is to the content score: the bits and tables by which texts are split into words."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np

from datamask.text import characters as ch
from datamask.text.properties import small_letters

# Kinds of a code point, bits.
WORD = 1  # letters, marks and digits make words
DIGIT = 2
UPPER = 4
LOWER = 8
SINGLE = 16  # a letter of a script without spaces: a word of its own
STOP = 32  # ends a sentence
JOINER = 64  # between two letters it is of the word: ' and its kin, invisible joiners
MARK = 128

# Places of what is in a packed entry, see `WordTables`.
BLANK = 1 << 8
MEANING, BYTE, FOLDED = 9, 12, 21
CLAUSE = 1 << 20
ORDINARY = 1 << 42  # goes on with the word before it, and is nothing that is counted besides
LEADS = (0xC2, 0xF4)  # the bytes that begin what UTF-8 writes with several
SPACED = (0xC2, 0xC3)  # those after which a no-break space may stand, which other layouts of a text replace by a space

LETTERS = 3  # of a word's end and the next one's beginning: how words join where few pairs of words come twice

# What a code point means beyond its kind.
PLAIN, BROKEN, CODE, BAR, QUOTE = range(5)
_BAR = "|•·►▶★☆✓✔→■●◆※▪"
_OF_WORDS = "°℃℉®™"  # no pictures, whatever their category
_CODE = "{}[]()=;_\\&+^~`"  # no "*" and "#", which begin items of lists and hashtags
_CLAUSES = ";:；：؛—–"  # end a clause: verse and dialogue have few other marks
_QUOTES = "«»‹›"
# Grave, acute, macron: of tone and stress. Of 449 pages of Yoruba news 36 set them on most words, 390 on hardly one.
TONES = "\u0300\u0301\u0304"


@dataclass(frozen=True)
class WordTables:
    """Each indexed by code point."""

    kinds: np.ndarray  # (0x110000,) uint8
    folded: np.ndarray  # (0x110000,) uint32: the code point a letter folds to, 0 what is invisible
    meaning: np.ndarray  # (0x110000,) uint8
    script: np.ndarray  # (0x110000,) uint8: of a letter, its place in `scripts`; else 0
    scripts: tuple[str, ...]  # names of scripts, the first empty
    # (0x110000,) uint64: kind, whether blank, meaning, the byte of 0x80 … 0xff that cp1252 or Latin-1 shows as this or
    # 0, folded, CLAUSE, ORDINARY
    packed: np.ndarray


@cache
def tables() -> WordTables:
    """The tables of all code points, made at first use."""
    flags, blank = ch.tables().flags, ch.tables().kinds == ch.BLANK
    kinds = np.zeros(0x110000, dtype=np.uint8)
    folded = np.arange(0x110000, dtype=np.uint32)
    meaning = np.zeros(0x110000, dtype=np.uint8)
    script = np.zeros(0x110000, dtype=np.uint8)
    category = ch.categories()
    kind = category.astype("U1")  # the first letter
    letter = (kind == "L") | (kind == "M")
    number, upper = kind == "N", np.isin(category, ("Lu", "Lt"))
    joiner = ~letter & ~number & ((category == "Cf") | np.isin(np.arange(ch.LAST), [ord(char) for char in "'’ʼ"]))
    for flag, points in (
        (WORD, letter | number), (MARK, kind == "M"), (UPPER, upper),
        (LOWER, category == "Ll"), (DIGIT, number), (JOINER, joiner),
        (SINGLE, (kind == "L") & (flags[: ch.LAST] & ch.UNSPACED > 0)),
        (STOP, flags[: ch.LAST] & ch.TERMINAL > 0),
    ):  # fmt: skip
        kinds[: ch.LAST][points] |= flag
    folded[: ch.LAST][number] = 48
    folded[: ch.LAST][joiner] = np.where(category[joiner] == "Cf", 0, 39)
    folded[: ch.LAST][upper] = small_letters()[upper]
    for code in np.flatnonzero(letter).tolist():
        char = chr(folded[code])
        if char in TONES or unicodedata.decomposition(char):  # most are letters alone
            folded[code] = _without_tone(char)
    names = [_script(chr(point)) for point in np.flatnonzero(letter).tolist()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(["", *names]))}
    script[: ch.LAST][letter] = [numbers[name] for name in names]
    meaning[: ch.LAST][(category == "So") | np.isin(np.arange(ch.LAST), [ord(char) for char in _BAR])] = BAR
    meaning[[ord(char) for char in _OF_WORDS]] = PLAIN
    meaning[: ch.LAST][np.isin(category, ("Co", "Cn", "Cs"))] = BROKEN
    meaning[0xFFFD] = BROKEN
    meaning[: ch.LAST][(category == "Cc") & ~blank[: ch.LAST]] = BROKEN
    for characters, what in ((_CODE, CODE), (_QUOTES, QUOTE)):
        meaning[[ord(char) for char in characters]] = what
    byte = np.zeros(0x110000, dtype=np.uint8)
    byte[0x80:0x100] = np.arange(0x80, 0x100)
    for value in range(0x80, 0xA0):
        byte[[ord(char) for char in bytes([value]).decode("cp1252", "ignore")]] = value  # five show none
    packed = kinds | np.where(blank, np.uint64(BLANK), np.uint64(0))
    for table, place in ((meaning, MEANING), (byte, BYTE), (folded, FOLDED)):
        packed |= table.astype(np.uint64) << np.uint64(place)
    packed[[ord(char) for char in _CLAUSES]] |= np.uint64(CLAUSE)
    ordinary = (kinds & (WORD | DIGIT | UPPER | SINGLE | JOINER) == WORD) & (meaning == PLAIN) & (folded > 0)
    packed[ordinary & ((byte < LEADS[0]) | (byte > LEADS[1]))] |= np.uint64(ORDINARY)
    for table in (kinds, folded, meaning, script, packed):
        table.setflags(write=False)
    return WordTables(kinds, folded, meaning, script, tuple(numbers), packed)


def _without_tone(letter: str) -> int:
    """The code point of a letter without TONES; 0 for one of them."""
    parts = unicodedata.normalize("NFD", letter)
    plain = unicodedata.normalize("NFC", "".join(part for part in parts if part not in TONES))
    return ord(plain) if len(plain) == 1 else ord(letter) if plain else 0


def _script(char: str) -> str:
    """The first word of a letter's Unicode name, which is its script's; kana stand among Han."""
    name = unicodedata.name(char, "").partition(" ")[0].partition("-")[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA") else name
