"""Gopher's measures of repeated n-grams of words.

Rae et al. 2021 (arXiv 2112.11446), table A1, computed as datatrove does (gopher_repetition_filter.py).
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, set_of, slot_of
from datamask.text.rule_words import RuleWords

TOP = (2, 3, 4)
DUPLICATED = (5, 6, 7, 8, 9, 10)
LEAST, MOST = TOP[0], DUPLICATED[-1]

_PLACE = np.random.default_rng(0x6772616D).integers(1 << 62, size=MOST, dtype=np.uint64) * 2 + 1  # any odd numbers do


def repeated_ngrams(words: RuleWords) -> np.ndarray:
    """(documents, MOST + 1) int64, a column for each n: characters in the most frequent n-gram for n of TOP, with the
    spaces between words; for n of DUPLICATED in n-grams that repeat an earlier one, without, counted from left to
    right, each repeat skipped over."""
    found = np.zeros((len(words.first) - 1, MOST + 1), np.int64)
    count_repeats(words.first, words.length, words.hashes, _PLACE, found)
    return found


@compiled
def count_repeats(first, lengths, hashes, places, found):  # type: ignore[no-untyped-def]
    """Fills found with `repeated_ngrams`.

    places: (MOST,) odd factors of an n-gram's words.
    """
    for document in range(len(found)):
        low, size = first[document], first[document + 1] - first[document]
        keys = hashes[low : low + size] * places[0]
        letters = np.zeros(size + 1, np.int64)
        letters[1:] = np.cumsum(lengths[low : low + size])
        for n in range(LEAST, min(MOST, size) + 1):
            keys = keys[: size - n + 1]
            for at in range(len(keys)):
                keys[at] += hashes[low + at + n - 1] * places[n - 1]
            if n in TOP:
                found[document, n] = of_most_frequent(keys, letters, n)
            else:
                found[document, n] = of_repeats(keys, letters, n)


@compiled
def of_most_frequent(keys, letters, n):  # type: ignore[no-untyped-def]
    """Characters of all occurrences of the most frequent n-gram; of equally frequent ones, the first."""
    table, taken = set_of(keys)
    slots, times = np.empty(len(keys), np.int64), np.zeros(len(table), np.int64)
    for at in range(len(keys)):
        slots[at] = slot_of(table, taken, keys[at])
        times[slots[at]] += 1
    best = np.argmax(times[slots])
    return (letters[best + n] - letters[best] + n - 1) * times[slots[best]]


@compiled
def of_repeats(keys, letters, n):  # type: ignore[no-untyped-def]
    """Characters of the n-grams that were seen before, where a repeat is skipped as a whole."""
    table, taken = empty_set(len(keys))
    total = free = 0
    for at in range(len(keys)):
        if at >= free:
            slot = slot_of(table, taken, keys[at])
            if taken[slot]:
                total += letters[at + n] - letters[at]
                free = at + n
            table[slot], taken[slot] = keys[at], True
    return total
