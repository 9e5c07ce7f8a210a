"""The inner loops of `words`, compiled by Numba: texts into words, and words into the numbers they are known by.

A module of its own, so that importing `words` does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled

SPACE, BEYOND, WORD_OF_SIGNS = 0, 4, 3  # kinds of byte, as `words` has them; the last is LETTER | SIGN


@compiled
def split(raw, bounds, kinds, lower, spelled, starts, firsts):  # type: ignore[no-untyped-def]
    """Fills `spelled` with the words' bytes, `starts` with where each word begins there and the last one ends, and
    `firsts` (texts + 1,) with each text's first word. Returns the number of words.

    raw: uint8, the texts in UTF-8, one after the other; bounds: (texts + 1,) where each begins.
    """
    words, filled = 0, 0
    for text in range(len(bounds) - 1):
        firsts[text] = words
        before = np.uint8(SPACE)  # the kind of the byte before, within this text
        for at in range(bounds[text], bounds[text + 1]):
            byte = raw[at]
            kind = kinds[byte]
            if kind != SPACE:
                if before == SPACE or (kind | before) == WORD_OF_SIGNS:
                    starts[words] = filled
                    words += 1
                beyond = at + 1 < len(raw) and kinds[raw[at + 1]] == BEYOND
                spelled[filled] = byte if beyond else lower[byte]
                filled += 1
            before = kind
    firsts[len(bounds) - 1] = words
    starts[words] = filled
    return words


@compiled
def number(spelled, starts, words, slots, hashes, ends, letters, known, numbers):  # type: ignore[no-untyped-def]
    """Fills `numbers` with the number each of the `words` is known by; new ones are added. Returns how many are known.

    slots: int32, a power of two of them, open addressing; −1 is empty. Of known words: hashes, and where the bytes of
    each in `letters` end (ends[n + 1] is the end of word n). There must be room for all words, with slots to spare.
    """
    mask = len(slots) - 1
    for word in range(words):
        first, last = starts[word], starts[word + 1]
        size = last - first
        total = np.uint64(0xCBF29CE484222325)  # FNV-1a
        for at in range(first, last):
            total = (total ^ np.uint64(spelled[at])) * np.uint64(0x100000001B3)
        total ^= total >> np.uint64(32)
        slot = np.int64(total & np.uint64(mask))
        while True:
            held = slots[slot]
            if held < 0:
                slots[slot] = known
                hashes[known] = total
                letters[ends[known] : ends[known] + size] = spelled[first:last]
                ends[known + 1] = ends[known] + size
                numbers[word] = known
                known += 1
                break
            if hashes[held] == total and ends[held + 1] - ends[held] == size:
                same = True
                for k in range(size):
                    if letters[ends[held] + k] != spelled[first + k]:
                        same = False
                        break
                if same:
                    numbers[word] = held
                    break
            slot = (slot + 1) & mask
    return known


@compiled
def place_again(hashes, known, slots):  # type: ignore[no-untyped-def]
    """Fills empty slots, more than there were, with the known words."""
    mask = len(slots) - 1
    for word in range(known):
        slot = np.int64(hashes[word] & np.uint64(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = word


@compiled
def sums(numbers, firsts, ends, found):  # type: ignore[no-untyped-def]
    """Fills found (texts,) with the tokens of each text. ends: where a known word's tokens end, after a 0."""
    for text in range(len(found)):
        total = 0
        for word in range(firsts[text], firsts[text + 1]):
            total += ends[numbers[word] + 1] - ends[numbers[word]]
        found[text] = total


@compiled
def tokens(numbers, words, ends, known, found):  # type: ignore[no-untyped-def]
    """Fills `found` with the words' tokens, one after the other. known: the tokens of known words."""
    filled = 0
    for word in range(words):
        for at in range(ends[numbers[word]], ends[numbers[word] + 1]):
            found[filled] = known[at]
            filled += 1
