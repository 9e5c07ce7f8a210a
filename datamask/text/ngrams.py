"""Hashed word uni- and bigrams of texts, a sparse row of counts a text.

    counts = count_ngrams(["One text.", "another one"])      # (2, 10,000) scipy.sparse.csr_array

A word is a run of letters, digits and marks, in lower case (NFKC). In scripts without spaces between words (Han, Kana,
Thai, Lao, Khmer, Burmese, Tibetan, …) every character stands for a word, so that the bigrams are those of characters.
Uni- and bigrams share the buckets, as in DSIR (arXiv 2302.03169), which has 10,000 of them too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, vstack

from datamask.text.properties import LAST, categories, small_letters, spaceless
from datamask.text.utf8 import blocks, strings

BUCKETS = 10_000
BLOCK = 1 << 20  # characters hashed at a time
SEPARATOR, WORD, ALONE = 0, 1, 2  # kinds of character
ALPHABETS = 0x530  # before it Latin, Greek and Cyrillic
ALSO = "〆゙゚ー"  # marks of Han and kana that Unicode gives to no script
BASE = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)


def count_ngrams(texts: Iterable[str] | pa.Array, buckets: int = BUCKETS) -> csr_array:
    """(texts, buckets) float32: how often each bucket's uni- and bigrams stand in each text; no words: an empty row."""
    parts = [counted(*block, buckets) for block in hashed_words(texts)]
    return vstack(parts, format="csr") if parts else csr_array((0, buckets), dtype=np.float32)


def counted(single: np.ndarray, pair: np.ndarray, document: np.ndarray, texts: int, buckets: int) -> csr_array:
    """The counts of a block of `hashed_words`."""
    from datamask.text.word_hashes import count_words  # Numba

    starts = np.zeros(texts + 1, np.int32)
    columns, values = np.empty(2 * len(single), np.int32), np.empty(2 * len(single), np.float32)
    filled = count_words(single, pair, document, texts, buckets, starts, columns, values)
    return csr_array((values[:filled].copy(), columns[:filled].copy(), starts), shape=(texts, buckets))


def hashed_words(texts: Iterable[str] | pa.Array) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """A block of texts at a time: uint64 hashes of their words and of each word with the next, the text (within the
    block) that each word is of, and how many texts there are."""
    from datamask.text.word_hashes import hash_words  # Numba

    lower, kind = _tables()
    for block in blocks(texts, BLOCK):
        normal = [_nfkc(text or "") for text in strings(block)]
        points, ends = np.frombuffer(b"".join(normal), np.uint32), np.cumsum([len(text) // 4 for text in normal])
        single, pair = np.empty(len(points), np.uint64), np.empty(len(points), np.uint64)
        document = np.empty(len(points), np.int64)
        words = hash_words(points, ends, lower, kind, (BASE, FIRST, SECOND), single, pair, document)
        yield single[:words].copy(), pair[: max(words - 1, 0)].copy(), document[:words].copy(), len(block)


@cache
def letters() -> np.ndarray:
    """Hashes of the words of one letter or digit in Latin, Greek and Cyrillic, ascending: (n,) uint64."""
    _, kind = _tables()
    words = [chr(point) for point in range(ALPHABETS) if kind[point] == WORD]
    return np.unique(np.concatenate([single for single, _, _, _ in hashed_words(words)]))


def _nfkc(text: str) -> bytes:
    """The text in Unicode's form NFKC, four bytes a code point."""
    return unicodedata.normalize("NFKC", text).encode("utf-32-le", "surrogatepass")


def word_bounds(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Where in the NFKC-normalised text each of its words starts and ends."""
    _, kind = _tables()
    kinds = kind[np.minimum(np.frombuffer(_nfkc(text), np.uint32), LAST)]
    inside = kinds != SEPARATOR
    joined = np.zeros(len(kinds) + 1, bool)  # between a character and the one before it
    joined[1:-1] = (kinds[1:] == WORD) & (kinds[:-1] == WORD)
    return np.flatnonzero(inside & ~joined[:-1]), np.flatnonzero(inside & ~joined[1:]) + 1


@cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Of each code point: its lower case, and its kind."""
    lower, kind = np.arange(LAST + 1, dtype=np.uint32), np.full(LAST + 1, SEPARATOR, np.uint8)
    word = np.isin(categories().astype("U1"), ["L", "N", "M"])
    lower[:LAST][word] = small_letters()[word]
    kind[:LAST][word] = np.where(spaceless()[word], ALONE, WORD)
    kind[list(map(ord, ALSO))] = ALONE
    return lower, kind
