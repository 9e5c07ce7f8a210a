"""The inner loops of `word_tokens`, compiled by Numba: texts into words, and words into tokens.

A module of its own, so that importing `word_tokens` does not wait for the compiler.
"""

from __future__ import annotations

import string
from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled

# Kinds of byte. The tokenizer splits between white space and all else, and between a letter and a sign. What is beyond
# ASCII stays with its neighbours: it may be either, or a mark that the normalizer joins to the letter before it.
SPACE, LETTER, SIGN, BEYOND = 0, 1, 2, 4
WORD_OF_SIGNS = LETTER | SIGN
KINDS = np.full(256, SIGN, np.uint8)
KINDS[[ord(letter) for letter in string.ascii_letters + string.digits + "_"]] = LETTER
KINDS[[ord(space) for space in "\t\n\v\f\r "]] = SPACE
KINDS[128:] = BEYOND
LOWER = np.arange(256, dtype=np.uint8)
LOWER[ord("A") : ord("Z") + 1] += 32


@compiled
def find_words(raw, bounds, spelled, starts, firsts):  # type: ignore[no-untyped-def]
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
            kind = KINDS[byte]
            if kind != SPACE:
                if before == SPACE or (kind | before) == WORD_OF_SIGNS:
                    starts[words] = filled
                    words += 1
                beyond = at + 1 < len(raw) and KINDS[raw[at + 1]] == BEYOND
                spelled[filled] = byte if beyond else LOWER[byte]
                filled += 1
            before = kind
    firsts[len(bounds) - 1] = words
    starts[words] = filled
    return words


class Merges(NamedTuple):
    """What byte-pair encoding knows."""

    of_byte: np.ndarray  # (256,) the token of each byte, or −1
    pairs: np.ndarray  # see `pair_slot`
    made: np.ndarray  # (merges,) the token that each makes


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
def fill_pair_table(merges, pairs):  # type: ignore[no-untyped-def]
    """Puts merges (n, 2) of tokens, in their order, into a table of pairs."""
    for rank in range(len(merges)):
        slot = pair_slot(merges[rank, 0], merges[rank, 1], pairs)
        if pairs[slot, 0] < 0:
            pairs[slot, 0], pairs[slot, 1], pairs[slot, 2] = merges[rank, 0], merges[rank, 1], rank


@compiled
def merge_pairs(letters, ends, merges, longest, ids, lengths):  # type: ignore[no-untyped-def]
    """Byte-pair encoding of words: while there is one, the first pair of the least rank becomes one token.

    Fills lengths (words,) with each word's tokens, and ids with them, one word's after the other's; a length of −1 is
    of a word that is longer than `longest` bytes or holds a byte that `of_byte` (256,) has no token for. Returns the
    number of tokens. letters, ends: the words' bytes, and where each begins and the last ends. merges: a `Merges`.
    """
    of_byte, pairs, made = merges
    filled = 0
    token, rank = np.empty(longest, np.int64), np.empty(longest, np.int64)
    none = np.int64(len(made))
    for word in range(len(lengths)):
        size = ends[word + 1] - ends[word]
        known = size <= longest
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
