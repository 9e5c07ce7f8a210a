"""A batch of documents as words, whatever its lines look like: what the content score reads.

White space only separates words here. Line ends, empty lines, trailing spaces and tabs change nothing that is counted,
so two layouts of one text have the same numbers to the bit. Letters are folded to lower case, digits to one digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from datamask.quality.inner_loops import Tokens, find_figures, find_tokens
from datamask.quality.page_layout import code_points
from datamask.quality.word_tables import SINGLE, tables


class BatchWords:
    """The words and marks of a batch, in order; `first[d]` to `first[d + 1]` are document d's.

    Of each (tokens,): start and end among `points`, the kind of its first code point, whether it is a word, whether
    most of it is capitals, whether it closes a sentence or a clause, and the uint64 hashes of the folded word, of its
    first letters (`heads`) and of its last (`tails`).
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.points, self.starts, self.ends = code_points(texts)
        self.characters = np.zeros((len(texts), 5), np.int64)  # numbers of code points, see `inner_loops.find_tokens`
        room, marks = len(self.points), np.empty(len(self.points), np.int64)
        kinds = (np.int64, np.int64, np.uint8, bool, bool, bool, *[np.uint64] * 3)
        found = Tokens(*(np.empty(room, kind) for kind in kinds))
        packed = tables().packed
        tokens, angles = find_tokens(self.points, packed, self.ends, found, self.characters, marks)
        self.start, self.end, self.kinds, self.is_word, self.shouted, self.closes, *hashes = (
            values[:tokens].copy() for values in found
        )
        self.hashes, self.heads, self.tails = hashes
        self.marks = marks[:angles].copy()  # places of "<" and "&"
        self.first = np.append(np.searchsorted(self.start, self.starts), len(self.start))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def document(self) -> np.ndarray:
        """(tokens,) int64."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.first))

    def count(self, which: np.ndarray) -> np.ndarray:
        """(documents,) how many of its tokens are so. which: (tokens,) bool."""
        return np.bincount(self.document[which], minlength=len(self))

    @cached_property
    def figures(self) -> np.ndarray:
        """(tokens,) bool: which stand in a table, a formula, a head of mail: see `inner_loops.find_figures`."""
        found = np.empty(len(self.start), bool)
        find_figures(self.first, self.kinds, self.is_word, found)
        return found

    @cached_property
    def parted(self) -> np.ndarray:
        """(tokens,) bool: white space stands before it, or it or the one before it is a letter that is a word."""
        single = self.kinds & SINGLE != 0
        follows = np.append(-1, self.end[:-1])[: len(single)]
        before = np.append(False, single[:-1])[: len(single)]
        parted: np.ndarray = single | before | (self.start > follows)
        return parted
