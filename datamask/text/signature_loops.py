"""The inner loops of `signatures` and `held_texts`, compiled by Numba: texts are looked at once, where arrays would be
passed over many times.

A module of its own, so that importing `signatures` does not wait for the compiler.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled
from datamask.text.letters import _SEEDS, DIGIT, LETTERS, TABLE, WEIGHTS, WINDOW
from datamask.text.surface import (
    BREAK,
    BROKEN,
    CASED,
    LONG,
    LOWER,
    MARK,
    PARAGRAPH,
    QUOTE,
    RETURN,
    SENTENCE,
    SHOUTED,
    SPACE,
    STOP,
    UPPER,
)

WHITE, LETTER = SPACE | RETURN | BREAK, UPPER | LOWER
BEFORE = 3  # characters before a text, which are line ends
QUESTION = 63
PRIME = np.uint64(0x100000001B3)  # FNV-1a's
LOOKS = 0x370, 0x530  # Greek and Cyrillic: such a letter beside a Latin one is put in its place
CASES = 0x250, 0x590, 0x1D00, 0x2000  # letters of scripts with case that are not Latin, before and after those without
FOREIGN = 0.33  # of the letters of scripts with case: fewer that are not ASCII are, or look like, those of a Latin text
DASHES = 4  # on either side of the line above a forwarded mail
SEVERAL = WEIGHTS[0][0]  # no code point below counts for more than one letter
# of the two hashes of a window: odd numbers, and the powers of the third by which WINDOW = 8 + 4 letters come together
HIGH, LOW = (
    tuple(np.uint32(value) for value in (*seeds, *(pow(seeds[2] | 1, power, 1 << 32) for power in (1, 2, 4, 8))))
    for seeds in _SEEDS
)


@compiled
def mix_letter(unit, one, two):  # type: ignore[no-untyped-def]
    """A letter, mixed as the odd numbers say, before the polynomial."""
    value = np.uint32(unit * one)
    value = np.uint32(value ^ (value >> np.uint32(15)))
    return np.uint32(value * two)


@compiled
def finish_hash(value, two, three):  # type: ignore[no-untyped-def]
    """A polynomial's value, its bits mixed as murmur3 does at the end."""
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * two)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(13))) * three)
    return np.uint32(value ^ (value >> np.uint32(16)))


@compiled
def code_point(raw, at):  # type: ignore[no-untyped-def]
    """The code point that begins at a byte of valid UTF-8, and its bytes."""
    first = int(raw[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | int(raw[at + 1]) & 0x3F, 2
    if first < 0xF0:
        return (first & 0x0F) << 12 | (int(raw[at + 1]) & 0x3F) << 6 | int(raw[at + 2]) & 0x3F, 3
    return (
        (first & 0x07) << 18
        | (int(raw[at + 1]) & 0x3F) << 12
        | (int(raw[at + 2]) & 0x3F) << 6
        | int(raw[at + 3]) & 0x3F,
        4,
    )


@compiled
def is_letter(byte):  # type: ignore[no-untyped-def]
    """Whether an ASCII byte is a letter."""
    return 97 <= (byte | 32) <= 122


@compiled
def read_text(raw, escapes, tables, units, row, numbers):  # type: ignore[no-untyped-def]
    """Reads a text's bytes: fills `units` with its letters, zeros after fewer than WINDOW, and returns how many these
    are.

    escapes: that the text had. tables: see `letters.tables`. row: uint8, for BEFORE kinds of characters and the text's.
    numbers: (7,) is filled as `surface.Surface` has them.
    """
    letters, latin, weights, kinds = tables
    many = read_letters(raw, letters, weights, kinds, units, row, numbers)
    latin_letters, foreign = 0, 0
    for unit in units[:many]:
        latin_letters += (unit > DIGIT) & (unit < 128)
        foreign += ((unit >= CASES[0]) & (unit < CASES[1])) | ((unit >= CASES[2]) & (unit < CASES[3]))
    if 0 < foreign <= FOREIGN * (foreign + latin_letters):
        many = read_letters(raw, latin, weights, kinds, units, row, numbers)
    numbers[2] += escapes
    if many:
        units[many:WINDOW] = 0
        many = max(many, WINDOW)
    return many


@compiled
def read_letters(raw, letters, weights, kinds, units, row, numbers):  # type: ignore[no-untyped-def]
    """Fills units, row and numbers as `read_text` does, but for escapes; returns the letters.

    First, without branches that nobody could foretell, each character's letter and kind; then what kinds say, many at
    a time. A number is one DIGIT, however long; so are several with nothing but marks between them.
    """
    row[:BEFORE] = BREAK
    at, many, filled, begun, line, unsure, said, quoted, figures = 0, 0, BEFORE, BEFORE, 0, 0, 0, 0, 0
    digest, number, forwarded = np.uint64(0), False, False
    while at < len(raw):
        code, size = code_point(raw, at)
        at += size
        kind = kinds[min(code, TABLE - 1)]
        if code == QUESTION:  # in place of a letter, inside a word or one after another
            inside = row[filled - 1] & LETTER != 0 and at < len(raw) and raw[at] > QUESTION
            unsure += inside or (at > 1 and raw[at - 2] == QUESTION)
        if LOOKS[0] <= code < LOOKS[1]:
            unsure += (at > size and is_letter(raw[at - size - 1])) + (at < len(raw) and is_letter(raw[at]))
        row[filled] = kind
        filled += 1
        unit = np.uint32(0)
        if code < TABLE:
            unit = letters[code]
        elif code < LETTERS:
            unit = np.uint32(code)
        if unit == DIGIT:
            digest, figures = digest * PRIME + np.uint64(code), figures + 1
            many -= number
            number = True
        else:
            number &= unit == 0
        units[many] = unit
        many += unit != 0
        if unit >= SEVERAL:
            often = weights[unit] if unit < TABLE else 3
            for _ in range(1, often):
                units[many] = unit
                many += 1
        if kind == BREAK or at == len(raw):
            length = many - line
            closed = row[filled - 1] == STOP
            for back in range(2, 4):
                closed |= filled - begun >= back and row[filled - back] == STOP
            while begun < filled - 1 and row[begun] & WHITE:
                begun += 1
            forwarded |= length > 0 and dashed(row, begun, filled)
            if forwarded or row[begun] == QUOTE:
                quoted += length
            elif length >= PARAGRAPH or (length >= SENTENCE and closed):
                said += length
            begun, line = filled, many
    count_kinds(row, filled - BEFORE, numbers)
    numbers[2] += unsure
    digest *= PRIME  # else the lowest bit, which is left out, is the last digit's alone
    numbers[3], numbers[4], numbers[5], numbers[6] = said, quoted, figures, np.int64(digest >> np.uint64(1))
    return many


@compiled
def dashed(row, begin, end):  # type: ignore[no-untyped-def]
    """Whether a line begins and ends with dashes, as those before a forwarded mail do."""
    while end > begin and row[end - 1] & WHITE:
        end -= 1
    marks = 0
    for place in range(DASHES):
        marks += place < end - begin and row[begin + place] == MARK and row[end - 1 - place] == MARK
    return marks == DASHES


@compiled
def count_kinds(row, characters, numbers):  # type: ignore[no-untyped-def]
    """Fills the first three numbers of `surface.Surface`; row: has the kinds of characters from BEFORE on."""
    upper, lower, inside, bad, breaks, marks, spaces, lines, broken = 0, 0, 0, 0, 0, 0, 0, 0, 0
    for place in range(BEFORE, BEFORE + characters):
        kind, last, second = row[place], row[place - 1], row[place - 2]
        upper += kind & UPPER
        lower += kind & LOWER != 0
        marks += (kind & (MARK | STOP) != 0) & (kind != QUOTE)
        breaks += kind == BREAK
        broken += kind == BROKEN
        inside += (kind & UPPER != 0) & (last & LETTER != 0)
        spaces += (kind & WHITE != 0) & (last & WHITE == 0)
        lines += (kind == BREAK) & (last != BREAK)
        bad += kind == RETURN
        bad += (kind & LOWER != 0) & (last == SPACE) & (second == STOP)
        bad += (kind == SPACE) & (last == SPACE) & (second & WHITE == 0)
    blemishes = bad
    if inside > SHOUTED * (upper + lower):
        blemishes += inside
    blemishes += upper == 0 and lower >= CASED
    blemishes += breaks == 0 and characters >= LONG
    numbers[0], numbers[1], numbers[2] = blemishes, blemishes - (marks + spaces + lines), broken


@compiled
def hash_windows(units, many, numbers, found):  # type: ignore[no-untyped-def]
    """Fills found (many,) uint32 with the hashes of a text's windows, one for each letter but the last WINDOW − 1.

    A polynomial over each window, as of Rabin and Karp, but doubled instead of rolled: of 2, of 4, of 12 letters, each
    step over the whole text, where the processor takes many letters at once.
    """
    one, two, three, once, twice, four, eight = numbers
    for at in range(many):
        found[at] = mix_letter(units[at], one, two)
    for at in range(many - 1):
        found[at] = np.uint32(found[at] * once + found[at + 1])
    for at in range(many - 3):
        found[at] = np.uint32(found[at] * twice + found[at + 2])
    for at in range(many - WINDOW + 1):
        found[at] = finish_hash(np.uint32(found[at] * eight + found[at + 4] * four + found[at + 8]), two, three)


@compiled
def hash_shingles(texts, tables, units, hashes, first, numbers):  # type: ignore[no-untyped-def]
    """Fills units and hashes with the letters of texts and the 32-bit hashes of their shingles, one text after another
    from the same places on, first (texts + 1,) with these, and numbers (texts, 7) as `read_text` does.

    texts: see `unescape.unescaped`.
    """
    raw, bounds, escapes = texts
    row = np.empty(np.append(0, np.diff(bounds)).max() + BEFORE, np.uint8)
    for text in range(len(numbers)):
        begun = first[text]
        plain = raw[bounds[text] : bounds[text + 1]]
        many = read_text(plain, escapes[text], tables, units[begun:], row, numbers[text])
        hash_windows(units[begun:], many, HIGH, hashes[begun:])
        first[text + 1] = begun + many


class Signed(NamedTuple):
    """Room for the signatures of texts."""

    windows: np.ndarray  # (texts,) int64, shingles
    scale: np.ndarray  # (texts,) int8, one in 2^scale is sampled
    wear: np.ndarray  # (texts,) int32, of the surface
    values: np.ndarray  # uint64, the samples; for a hash each byte of the longest text and WINDOW more than is filled
    offsets: np.ndarray  # (texts + 1,) int32, where each text's sample begins; 0 at first


@compiled
def signed(texts, tables, sample, coarsest, found):  # type: ignore[no-untyped-def]
    """Fills `found`, a `Signed`, each sample ascending and each hash once; returns how many hashes there are.

    texts: see `unescape.unescaped`.
    """
    raw, bounds, escapes = texts
    count, scale, wear, values, offsets = found
    longest = 2 * np.append(0, np.diff(bounds)).max() + WINDOW
    units, hashes, lower = np.empty(longest, np.uint32), np.empty(longest, np.uint32), np.empty(longest, np.uint32)
    row = np.empty(longest, np.uint8)
    numbers, filled = np.zeros(7, np.int64), 0
    for text in range(len(count)):
        many = read_text(raw[bounds[text] : bounds[text + 1]], escapes[text], tables, units, row, numbers)
        wear[text] = numbers[1]
        # the shingles
        windows = max(many - WINDOW + 1, 0)
        bits = 0
        while bits < coarsest and windows >= sample << (bits + 1):
            bits += 1
        count[text], scale[text] = windows, bits
        most = np.uint32(0xFFFFFFFF) >> np.uint32(bits)
        hash_windows(units, many, HIGH, hashes)
        hash_windows(units, many, LOW, lower)
        begun = filled
        for place in range(windows):
            values[filled] = np.uint64(hashes[place]) << np.uint64(32) | np.uint64(lower[place])
            filled += hashes[place] <= most
        values[begun:filled] = np.sort(values[begun:filled])
        end, filled = filled, begun
        for place in range(begun, end):
            value = values[place]
            values[filled] = value
            filled += place == begun or value != values[filled - 1]
        offsets[text + 1] = filled
    return filled
