"""Words that stand together in a site's menus, and in advertisements: lists by language, as sets of hashes.

One of these words says nothing: a sentence may hold any of them. What is counted is where several stand side by side,
see `measures.py`. A word of a script without spaces is one letter, so there the lists hold pairs of letters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from datamask.hash_sets import set_of
from datamask.quality.batch_words import BatchWords
from datamask.quality.inner_loops import PAIR, mix_hash, within
from datamask.quality.word_tables import SINGLE


@dataclass(frozen=True)
class Lexicon:
    """A list's words and its pairs of letters, each as `hash_sets.set_of` has them."""

    words: tuple[np.ndarray, np.ndarray]
    pairs: tuple[np.ndarray, np.ndarray]

    def held(self, words: BatchWords) -> np.ndarray:
        """(tokens,) bool: the tokens that are of the list."""
        found = within(*self.words, words.hashes)
        single = np.flatnonzero(words.kinds & SINGLE)
        single = single[single + 1 < len(words.start)]
        first = single[within(*self.pairs, mix_hash(words.hashes[single] * PAIR + words.hashes[single + 1]))]
        found[first] = found[first + 1] = True
        return found


@cache
def lexicon(kind: str) -> Lexicon:
    """Of "menus", "notices" or "adverts", from `lexicon.json`."""
    lists = json.loads(resources.files(__package__).joinpath("lexicon.json").read_text(encoding="utf-8"))[kind]
    lines = " ".join(line for of_language in lists.values() for line in of_language)
    words = BatchWords(sorted(set(lines.split())))
    size = np.diff(words.first)
    one, two = words.first[:-1][size == 1], words.first[:-1][size == 2]
    return Lexicon(set_of(words.hashes[one]), set_of(mix_hash(words.hashes[two] * PAIR + words.hashes[two + 1])))
