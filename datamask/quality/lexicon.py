"""Words that stand together in a site's menus, and in advertisements, and words of its notices: lists by language.

One of these words says nothing: a sentence may hold any of them. What is counted is where several stand side by side,
see `measures.py`. A word of a script without spaces is one letter, so there the lists hold pairs of letters.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, slot_of
from datamask.quality.word_counts import PAIR
from datamask.text.batch_words import REACH, BatchWords
from datamask.text.code_points import mix_hash
from datamask.text.word_tables import SINGLE

LISTS = {"menus": 1, "notices": 2, "adverts": 4}  # bits of a word that is of several


def find_listed(words: BatchWords) -> tuple[np.ndarray, np.ndarray]:
    """(tokens,) uint8: the LISTS that each token is of; (tokens,) int64: a number of the word or pair that it is."""
    found, entry = np.zeros(len(words.start), np.uint8), np.zeros(len(words.start), np.int64)
    look_up_lists(*lists_by_hash(), words.first, words.hashes, words.kinds, (found, entry))
    return found, entry


def beside_others(words: BatchWords, which: np.ndarray, entry: np.ndarray) -> np.ndarray:
    """(tokens,) bool: which of these are at most REACH away from the one before or after, and that is another word.

    :param which: (tokens,) bool. :param entry: of `find_listed`.
    """
    places, found = np.flatnonzero(which), np.zeros(len(which), bool)
    near = (np.diff(places) <= REACH) & (np.diff(words.document[places]) == 0) & (np.diff(entry[places]) != 0)
    found[places[1:][near]] = found[places[:-1][near]] = True
    return found


@cache
def lists_by_hash() -> tuple[np.ndarray, np.ndarray]:
    """The words of `lexicon.json` and its pairs of letters, as `hash_sets` has them; and their LISTS, 0 of a slot that
    holds none."""
    lists = json.loads(resources.files(__package__).joinpath("lexicon.json").read_text(encoding="utf-8"))
    words = {kind: " ".join(line for of_language in lists[kind].values() for line in of_language) for kind in LISTS}
    table, taken = empty_set(sum(len(joined.split()) for joined in words.values()))
    found = taken.astype(np.uint8)
    for kind, joined in words.items():
        tokens = BatchWords(joined.split())
        for first, size in zip(tokens.first.tolist(), np.diff(tokens.first).tolist(), strict=False):
            one, two = tokens.hashes[first : first + 1], tokens.hashes[first + 1 : first + 2]
            if size <= 2:
                [key] = one if size == 1 else mix_hash(one * PAIR + two)
                slot = slot_of(table, found, key)
                table[slot], found[slot] = key, found[slot] | LISTS[kind]
    return table, found


@compiled
def look_up_lists(table, lists, first, hashes, kinds, listed):  # type: ignore[no-untyped-def]
    """Adds to `listed`, two (tokens,) of zeros, what `find_listed` returns. table, lists: of `lists_by_hash`."""
    found, entry = listed
    for document in range(len(first) - 1):
        last = first[document + 1] - 1
        for at in range(first[document], last + 1):
            slot = slot_of(table, lists, hashes[at])
            if lists[slot]:
                found[at] |= lists[slot]
                entry[at] = slot
            if kinds[at] & SINGLE and at < last:
                slot = slot_of(table, lists, mix_hash(hashes[at] * PAIR + hashes[at + 1]))
                if lists[slot]:
                    for place in (at, at + 1):
                        found[place] |= lists[slot]
                        entry[place] = slot
