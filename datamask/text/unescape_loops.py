"""What a text says behind an encoding, for comparison only: tags are left out, and each escape becomes its character.

Read are HTML's tags and entities, the escapes of JSON and of programming languages, percent-encoding, quoted-printable,
UTF-8 that was read as Windows-1252, and Latin ligatures; several of these one over another as well.
"""

from __future__ import annotations

from functools import cache
from html.entities import html5

import numpy as np

from datamask.compiling import compiled

PASSES = 4  # encodings that may lie one over another
LONGEST_TAG, LONGEST_NAME = 400, 32  # bytes
CP1252 = np.array([ord(bytes([b]).decode("cp1252", "ignore") or chr(b)) for b in range(0x80, 0xA0)], np.int64)
LIGATURES = np.array(
    [list(word.ljust(3, "\0").encode()) for word in ["ff", "fi", "fl", "ffi", "ffl", "st", "st"]], np.uint8
)
PRIME, BASIS = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)  # of FNV-1a
SPECIAL = np.zeros(256, np.bool_)
SPECIAL[[*b"<&\\%=", 0xC3, 0xEF]] = True
NOTHING = (0, 0, 0)  # bytes of an escape, and the code points that it stands for
NO_MOJIBAKE = (0x700, 0x900)  # what a capital before a quotation mark looks like is taken for a capital


@cache
def entities() -> tuple[np.ndarray, np.ndarray]:
    """HTML's named characters: (N,) uint64 hashes of the names, ascending; (N, 2) the code points of each, or 0."""
    found = {}
    for name, value in html5.items():
        if name.endswith(";"):
            hash_ = int(BASIS)
            for byte in name[:-1].encode():
                hash_ = (hash_ ^ byte) * int(PRIME) % (1 << 64)
            found[hash_] = [ord(value[0]), ord(value[1]) if len(value) > 1 else 0]
    names = sorted(found)
    return np.array(names, np.uint64), np.array([found[name] for name in names], np.int64)


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
def write_point(code, made, at):  # type: ignore[no-untyped-def]
    """Writes a code point in UTF-8; returns where the next goes."""
    if code < 0x80:
        made[at] = code
        return at + 1
    if code < 0x800:
        made[at], made[at + 1] = 0xC0 | code >> 6, 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        made[at], made[at + 1], made[at + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
        return at + 3
    made[at], made[at + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 0x3F
    made[at + 2], made[at + 3] = 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F
    return at + 4


@compiled
def digits(raw, at, end, base):  # type: ignore[no-untyped-def]
    """(the number that the digits from `at` to `end` write, −1 if one of them is none; how many these are)."""
    value = np.int64(0)
    for place in range(at, end):
        byte = np.int64(raw[place])
        digit = byte - 48 if byte <= 57 else (byte | 32) - 87
        if byte < 48 or digit < 0 or digit >= base or (byte > 57 and digit < 10):
            return np.int64(-1)
        value = value * base + digit
    return value if end > at and end <= len(raw) else np.int64(-1)


@compiled
def is_letter(byte):  # type: ignore[no-untyped-def]
    """Whether an ASCII byte is a letter."""
    return 97 <= (byte | 32) <= 122


@compiled
def tag_meaning(raw, at, end):  # type: ignore[no-untyped-def]
    """A tag: a new line where it begins a paragraph, a row or a heading, else nothing."""
    name = at + 1 + (at + 1 < end and raw[at + 1] == 47)  # /
    if name >= end:
        return NOTHING
    if raw[name] == 33 and name + 8 <= end and raw[name + 1] == 91:  # <![CDATA[, <![endif]
        return (9, 0, 0) if at + 9 == end or raw[at + 9] & 0xC0 != 0x80 else NOTHING  # nothing within a character
    after = name
    while after < end and (is_letter(raw[after]) or 48 <= raw[after] <= 57 or raw[after] == 45):
        after += 1
    if raw[name] != 33 and raw[name] != 63 and not is_letter(raw[name]):
        return NOTHING
    if after == end or not (raw[name] in (33, 63) or raw[after] in (9, 10, 13, 32, 47, 58, 62)):
        return NOTHING
    if raw[after] == 58 and after + 1 < end and raw[after + 1] == 47:  # an address
        return NOTHING
    place = after
    while place < min(end, at + LONGEST_TAG) and raw[place] != 62 and raw[place] != 60:
        place += 1
    if place == end or raw[place] != 62:
        return NOTHING
    first, second = raw[name] | 32, raw[name + 1] | 32
    line = first == 112 and after == name + 1  # p
    line |= (first == 98 and second == 114) or (first == 108 and second == 105) or (first == 116 and second == 114)
    line |= (first == 100 and second == 105) or (first == 104 and 48 <= raw[name + 1] <= 57)  # div, h1
    return place + 1 - at, 10 * line, 0


@compiled
def entity(raw, at, end, names, values):  # type: ignore[no-untyped-def]
    """A named or numbered character of HTML."""
    stop = at + 1
    while stop < min(end, at + LONGEST_NAME) and raw[stop] != 59 and raw[stop] != 38 and raw[stop] > 32:
        stop += 1
    if stop >= end or raw[stop] != 59:
        return NOTHING
    if raw[at + 1] == 35:  #
        hexadecimal = raw[at + 2] | 32 == 120
        code = digits(raw, at + 3, stop, 16) if hexadecimal else digits(raw, at + 2, stop, 10)
        if 0x80 <= code < 0xA0:
            code = CP1252[code - 0x80]
        return (stop + 1 - at, code, 0) if is_character(code) else NOTHING
    hash_ = BASIS
    for place in range(at + 1, stop):
        hash_ = (hash_ ^ np.uint64(raw[place])) * PRIME
    found = np.searchsorted(names, hash_)
    if found == len(names) or names[found] != hash_:
        return NOTHING
    return stop + 1 - at, values[found, 0], values[found, 1]


@compiled
def is_character(code):  # type: ignore[no-untyped-def]
    """Whether a number is a character's."""
    return 0 < code < 0xD800 or 0xE000 <= code <= 0x10FFFF


@compiled
def backslash(raw, at, end):  # type: ignore[no-untyped-def]
    """An escape of JSON, C, Python or Rust."""
    if at + 1 >= end:
        return NOTHING
    letter = raw[at + 1]
    if letter in (110, 114, 116):  # n, r, t
        return 2, 32 if letter == 116 else 10, 0
    if letter in (34, 39, 47, 92):
        return 2, np.int64(letter), 0
    size, code = 0, np.int64(-1)
    if letter == 117 and at + 2 < end and raw[at + 2] == 123:  # u{…}
        stop = at + 3
        while stop < min(end, at + 10) and raw[stop] != 125:
            stop += 1
        size, code = stop + 1 - at, digits(raw, at + 3, stop, 16)
    elif letter == 117 and at + 6 <= end:
        size, code = 6, digits(raw, at + 2, at + 6, 16)
        if 0xD800 <= code < 0xDC00 and at + 12 <= end and raw[at + 6] == 92:
            low = digits(raw, at + 8, at + 12, 16)
            if 0xDC00 <= low < 0xE000:
                size, code = 12, 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
    elif letter == 85 and at + 10 <= end:
        size, code = 10, digits(raw, at + 2, at + 10, 16)
    elif letter == 120 and at + 4 <= end:
        size, code = 4, digits(raw, at + 2, at + 4, 16)
    elif 48 <= letter <= 51 and at + 4 <= end:
        size, code = 4, digits(raw, at + 1, at + 4, 8)
    return (size, code, 0) if is_character(code) else NOTHING


@compiled
def byte_of(code):  # type: ignore[no-untyped-def]
    """The byte that Windows-1252, or ISO 8859-1, shows as this character; 0 if none of a character's later ones."""
    if code < 0xC0:
        return np.int64(code) if code >= 0x80 else np.int64(0)
    for place in range(len(CP1252)):
        if CP1252[place] == code:
            return np.int64(place + 0x80)
    return np.int64(0)


@compiled
def mojibake(raw, at, end):  # type: ignore[no-untyped-def]
    """A character of two to four bytes in UTF-8 of which each was read as one."""
    first = np.int64(raw[at + 1]) + 0x40
    if not 0xC2 <= first <= 0xF4:
        return NOTHING
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    code, place, spaced = first & (0x3F >> more), at + 2, False
    for step in range(more):
        if place >= end:
            return NOTHING
        shown, size = code_point(raw, place)
        byte = byte_of(shown)
        if byte == 0:
            return NOTHING
        spaced = (spaced or step == 0) and byte in (0xA0, 0xAB, 0xBB)  # a French quotation's end
        code, place = code << 6 | byte & 0x3F, place + size
    if (spaced and more == 2) or NO_MOJIBAKE[0] <= code < NO_MOJIBAKE[1] or code < 0x80 << (4 * (more - 1)):
        return NOTHING
    return (place - at, code, 0) if is_character(code) else NOTHING


@compiled
def escape(raw, at, end, names, values):  # type: ignore[no-untyped-def]
    """(bytes, code point, another or 0) of the escape that begins `at`; NOTHING if none does."""
    byte = raw[at]
    if byte == 60:
        return tag_meaning(raw, at, end)
    if byte == 38:
        return entity(raw, at, end, names, values)
    if byte == 92:
        return backslash(raw, at, end)
    if byte == 0xC3:
        return mojibake(raw, at, end)
    if byte == 61 and at > 0 and raw[at - 1] != 61 and at + 1 < end and raw[at + 1] in (10, 13):
        return (3 if raw[at + 1] == 13 and at + 2 < end and raw[at + 2] == 10 else 2), 0, 0
    if byte not in (37, 61) or at + 3 > end:
        return NOTHING
    code = digits(raw, at + 1, at + 3, 16)
    usual = code >= 0x80 or code in (9, 10, 13, 32, 61)  # what quoted-printable escapes
    if code in (9, 10, 13) or (code >= 32 and (usual or byte == 37)):
        return 3, code, 0
    return NOTHING


@compiled
def replace_escapes(raw, names, values, made):  # type: ignore[no-untyped-def]
    """Fills `made` with a text in UTF-8, each escape replaced by what it stands for; (bytes, escapes).

    A text without escapes and ligatures is not copied: then the bytes are −1.
    """
    filled, escapes, at, copied, end = 0, 0, 0, 0, len(raw)
    while at < end:
        byte = raw[at]
        if not SPECIAL[byte]:
            at += 1
            continue
        size, code, more = NOTHING
        if byte != 0xEF:
            size, code, more = escape(raw, at, end, names, values)
        elif raw[at + 1] == 0xAC and raw[at + 2] <= 0x86:
            size = 3
        if size:
            made[filled : filled + at - copied] = raw[copied:at]
            filled += at - copied
            if byte == 0xEF:
                for letter in LIGATURES[raw[at + 2] - 0x80]:
                    made[filled] = letter
                    filled += letter != 0
            else:
                filled = write_point(code, made, filled) if code else filled
                filled = write_point(more, made, filled) if more else filled
                escapes += 1
            copied = at + size
        at += max(size, 1)
    if not copied:
        return -1, 0
    made[filled : filled + end - copied] = raw[copied:]
    return filled + end - copied, escapes


@compiled
def unescaped(raw, names, values, made, other):  # type: ignore[no-untyped-def]
    """(text, escapes): a text in UTF-8 without escapes, and how many these were.

    made, other: room for twice the text's bytes each, of which one holds what is returned if anything was replaced.
    """
    total = 0
    for _ in range(PASSES):
        filled, found = replace_escapes(raw, names, values, made)
        total += found
        if filled >= 0:
            raw = made[:filled]
            made, other = other, made
        if not found:
            break
    return raw, total
