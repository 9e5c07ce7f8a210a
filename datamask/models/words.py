"""Token ids by words: a tokenizer that splits text into words first gives a word the same tokens wherever it stands, so
each distinct word of some texts is tokenised once, and remembered.

words = WordTokenizer(tokenizer)          # if splits_into_words(tokenizer)
words.count(["one text", "another"])      # int64 [2]
"""

from __future__ import annotations

import json
import string
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

SEPARATOR = "\x1e"  # between words tokenised together: a token of its own, and in next to no word
TOGETHER = 1000  # words tokenised as one text: the library's record of a text costs more than a word's tokens
REMEMBERED = 300_000  # words, and eight times as many tokens: some 50 MB

# Kinds of byte. The tokenizer splits between white space and all else, and between a letter and a sign. What is beyond
# ASCII stays with its neighbours: it may be either, or a mark that the normalizer joins to the letter before it.
SPACE, LETTER, SIGN, BEYOND = 0, 1, 2, 4
KINDS = np.full(256, SIGN, np.uint8)
KINDS[[ord(letter) for letter in string.ascii_letters + string.digits + "_"]] = LETTER
KINDS[[ord(space) for space in "\t\n\v\f\r "]] = SPACE
KINDS[128:] = BEYOND
LOWER = np.arange(256, dtype=np.uint8)
LOWER[ord("A") : ord("Z") + 1] += 32


def splits_into_words(tokenizer: Tokenizer) -> bool:
    """True for a tokenizer of the static encoder's kind: NFKC, lower case, then words or runs of signs."""
    described = json.loads(tokenizer.to_str())
    return (
        _steps(described["normalizer"], "normalizers") == ["NFKC", "Lowercase"]
        and _steps(described["pre_tokenizer"], "pretokenizers") == ["Whitespace", "ByteLevel"]
        and not described["added_tokens"]
        and len(tokenizer.encode(SEPARATOR, add_special_tokens=False).ids) == 1
    )


def _steps(part: dict | None, sequence: str) -> list[str]:
    """The types of a tokenizer's normalizers or pre-tokenizers, in order."""
    if part is None:
        return []
    return [step["type"] for step in (part[sequence] if part["type"] == "Sequence" else [part])]


class _Found(NamedTuple):
    """The words of some texts, one after the other."""

    firsts: np.ndarray  # int64 [words]: where a word's ids begin in `known`
    lengths: np.ndarray  # int64 [words]: tokens of each
    texts: np.ndarray  # int64 [texts + 1]: where each text's words begin
    known: np.ndarray  # int32 [tokens of the words remembered]


class WordTokenizer:
    """Token ids of texts; safe to call from any thread. The tokenizer must be one that `splits_into_words`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        (self._separator,) = tokenizer.encode(SEPARATOR, add_special_tokens=False).ids
        self._lock = threading.Lock()
        self._forget()

    def count(self, texts: Sequence[str]) -> np.ndarray:
        """int64 [texts]: tokens of each.

        :raises UnicodeEncodeError: a text holds a lone surrogate.
        """
        return self._sums(self._find(texts))

    def ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """All tokens of each text: ids int32 [tokens], lengths int64 [texts].

        :raises UnicodeEncodeError: a text holds a lone surrogate.
        """
        found = self._find(texts)
        shifts = found.firsts - (np.cumsum(found.lengths) - found.lengths)
        ids = found.known[np.repeat(shifts, found.lengths) + np.arange(found.lengths.sum())]
        return ids, self._sums(found)

    def ids_of_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of words that `split_words` found, all different: ids int32 [tokens], lengths int64 [words].

        Nothing is remembered.
        """
        return self._tokens(words)

    @staticmethod
    def _sums(found: _Found) -> np.ndarray:
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(found.lengths)])
        return np.diff(ends[found.texts])

    def _find(self, texts: Sequence[str]) -> _Found:
        split, bounds = split_words(texts)
        coded = split.dictionary_encode()
        words = coded.dictionary.to_pylist()
        with self._lock:
            if len(self._places) > REMEMBERED or len(self._ids) > 8 * REMEMBERED:
                self._forget()
            self._learn([word for word in words if word not in self._places])
            places = np.fromiter(map(self._places.__getitem__, words), np.int64, count=len(words))
            ends, known = self._ends, self._ids
        number = places[coded.indices.to_numpy()]
        return _Found(ends[number], ends[number + 1] - ends[number], bounds, known)

    # ---------------------------------------------------------------- what is remembered

    def _forget(self) -> None:
        self._places: dict[str, int] = {}  # the words met, by number
        self._ids = np.zeros(0, np.int32)  # their tokens, one after the other
        self._ends = np.zeros(1, np.int64)  # where a word's tokens begin, and the last one's end

    def _learn(self, words: list[str]) -> None:
        if not words:
            return
        ids, lengths = self._tokens(words)
        self._places.update(zip(words, range(len(self._places), len(self._places) + len(words)), strict=True))
        self._ids = np.concatenate([self._ids, ids])
        self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(lengths)])

    def _tokens(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        groups = [list(words[first : first + TOGETHER]) for first in range(0, len(words), TOGETHER)]
        joined = self._encode([f" {SEPARATOR} ".join(group) for group in groups])
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for group, together in zip(groups, joined, strict=True):
            separators = np.flatnonzero(together == self._separator)
            if len(separators) == len(group) - 1:
                ids.append(np.delete(together, separators))
                lengths.append(np.diff(separators, prepend=-1, append=len(together)) - 1)
            else:  # a word holds the separator
                alone = self._encode(group)
                ids.extend(alone)
                lengths.append(np.array([len(one) for one in alone]))
        return np.concatenate(ids), np.concatenate(lengths)

    def _encode(self, texts: list[str]) -> list[np.ndarray]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]


def split_words(texts: Sequence[str]) -> tuple[pa.LargeStringArray, np.ndarray]:
    """The words and runs of signs of all texts, lower-cased, and where each text's begin, int64 [texts + 1].

    Cut only where the tokenizer cuts too; lower-cased only before ASCII, for a mark after a capital may join it to a
    letter that the small one has not (H with a line below).

    :raises UnicodeEncodeError: a text holds a lone surrogate.
    """
    whole = pa.array(texts, pa.large_string())
    _, offsets, data = whole.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(texts) + 1)
    raw = np.frombuffer(data, np.uint8, bounds[-1]) if data else np.zeros(0, np.uint8)
    kinds = KINDS[raw]
    kept = kinds != SPACE
    begins = kept.copy()
    begins[1:] &= ~kept[:-1] | ((kinds[1:] | kinds[:-1]) == (LETTER | SIGN))
    firsts = bounds[:-1][np.diff(bounds) > 0]
    begins[firsts] = kept[firsts]
    lower = LOWER[raw]
    before = np.flatnonzero(kinds[1:] == BEYOND)
    lower[before] = raw[before]
    starts = np.flatnonzero(begins)
    places = np.append(np.cumsum(kept)[starts] - 1, kept.sum())
    words = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(places), pa.py_buffer(lower[kept]))
    return words, np.searchsorted(starts, bounds)
