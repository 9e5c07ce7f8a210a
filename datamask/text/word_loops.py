"""The inner loops of `words`, compiled by Numba: texts into words, and words into the numbers they are known by.

A module of its own, so that importing `words` does not wait for the compiler.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled
from datamask.text.utf8_loops import code_point, write_point
from datamask.text.word_letters import BEYOND, LETTER, MARKED, SIGN, SPACE, TABLE

WORD_OF_SIGNS = LETTER | SIGN  # kinds of byte


@compiled
def find_words(raw, bounds, kinds, lower, spelled, starts, firsts):  # type: ignore[no-untyped-def]
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


class WordTable(NamedTuple):
    """Known words: there must be room for all, with slots to spare."""

    slots: np.ndarray  # int32, a power of two of them, open addressing; −1 is empty
    hashes: np.ndarray
    ends: np.ndarray  # of each word's bytes in `letters`; ends[n + 1] is the end of word n
    letters: np.ndarray


class Merges(NamedTuple):
    """What byte-pair encoding knows."""

    of_byte: np.ndarray  # (256,) the token of each byte, or −1
    pairs: np.ndarray  # see `pair_slot`
    made: np.ndarray  # (merges,) the token that each makes


@compiled
def number_words(spelled, starts, words, table, known, numbers):  # type: ignore[no-untyped-def]
    """Fills `numbers` with the number each of the `words` is known by; new ones are added. Returns how many are known.

    table: a `WordTable`.
    """
    slots, hashes, ends, letters = table
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
def sum_tokens(numbers, firsts, ends, found):  # type: ignore[no-untyped-def]
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


@compiled
def pair_slot(left, right, pairs):  # type: ignore[no-untyped-def]
    """Where a pair of tokens stands in an open-addressing table (slots, 3) int32 of left, right and rank, or an empty
    slot, whose left is −1."""
    mask = len(pairs) - 1
    slot = (left * 0x9E3779B1 + right * 0x85EBCA6B) >> 7 & mask
    while pairs[slot, 0] >= 0 and (pairs[slot, 0] != left or pairs[slot, 1] != right):
        slot = (slot + 1) & mask
    return slot


@compiled
def learn_merges(merges, pairs):  # type: ignore[no-untyped-def]
    """Puts merges (n, 2) of tokens, in their order, into a table of pairs."""
    for rank in range(len(merges)):
        slot = pair_slot(merges[rank, 0], merges[rank, 1], pairs)
        if pairs[slot, 0] < 0:
            pairs[slot, 0], pairs[slot, 1], pairs[slot, 2] = merges[rank, 0], merges[rank, 1], rank


@compiled
def lowered(raw, ends, kinds, letters, spelled, bounds, able):  # type: ignore[no-untyped-def]
    """Fills `spelled` with the words' bytes in small letters, bounds (words + 1,) with where each begins there and the
    last ends, and able (words,): whether a word is of ASCII, or of `word_tokens.letters` and letters of ASCII.

    raw, ends: the words' bytes, small in ASCII, and where each begins. There must be room for twice the bytes.
    """
    filled = 0
    for word in range(len(able)):
        begun, good, beyond, signs, marked = filled, True, False, False, False
        at = ends[word]
        while at < ends[word + 1]:
            if raw[at] < 0x80:
                spelled[filled] = raw[at]
                signs |= kinds[raw[at]] != LETTER
                filled, at, marked = filled + 1, at + 1, False
                continue
            beyond = True
            code, size = code_point(raw, at)
            at += size
            letter = letters[code] if code < TABLE else np.uint32(0)
            mark = letter & np.uint32(MARKED) != 0
            if letter == 0 or (mark and (marked or filled == begun)):
                good = False
                break
            filled = write_point(np.int64(letter & np.uint32(MARKED - 1)), spelled, filled)
            marked = mark
        able[word] = good and not (beyond and signs)
        bounds[word + 1] = filled


@compiled
def merge_pairs(letters, ends, able, merges, longest, ids, lengths):  # type: ignore[no-untyped-def]
    """Byte-pair encoding of words: while there is one, the first pair of the least rank becomes one token.

    Fills lengths (words,) with each word's tokens, and ids with them, one word's after the other's; a length of −1 is
    of a word that is not `able` (words,), is longer than `longest` bytes or holds a byte that `of_byte` (256,) has no
    token for. Returns the number of tokens. letters, ends: the words' bytes, and where each begins and the last ends.
    merges: a `Merges`.
    """
    of_byte, pairs, made = merges
    filled = 0
    token, rank = np.empty(longest, np.int64), np.empty(longest, np.int64)
    none = np.int64(len(made))
    for word in range(len(lengths)):
        size = ends[word + 1] - ends[word]
        known = able[word] and size <= longest
        for at in range(min(size, longest) if known else 0):
            token[at] = of_byte[letters[ends[word] + at]]
            known &= token[at] >= 0
        lengths[word] = -1
        if not known:
            continue
        for at in range(size - 1):
            slot = pair_slot(token[at], token[at + 1], pairs)
            rank[at] = pairs[slot, 2] if pairs[slot, 0] >= 0 else none
        while size > 1:
            best = 0
            for at in range(1, size - 1):
                if rank[at] < rank[best]:
                    best = at
            if rank[best] == none:
                break
            token[best] = made[rank[best]]
            for at in range(best + 1, size - 1):
                token[at], rank[at] = token[at + 1], rank[at + 1]
            size -= 1
            for at in range(max(best - 1, 0), min(best + 1, size - 1)):
                slot = pair_slot(token[at], token[at + 1], pairs)
                rank[at] = pairs[slot, 2] if pairs[slot, 0] >= 0 else none
        for at in range(size):
            ids[filled + at] = token[at]
        lengths[word] = size
        filled += size
    return filled
