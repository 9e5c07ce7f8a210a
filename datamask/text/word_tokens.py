"""Token ids by words: a tokenizer that splits text into words first gives a word the same tokens wherever it stands, so
each distinct word of some texts is tokenised once, and remembered.

words = WordTokenizer(tokenizer)          # if splits_into_words(tokenizer)
words.count(["one text", "another"])      # int64 [2]
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from datamask.text.utf8 import Texts, utf8
from datamask.text.word_letters import KINDS, LOWER, letters
from datamask.text.word_loops import (
    Merges,
    WordTable,
    find_words,
    learn_merges,
    lowered,
    merge_pairs,
    number_words,
    place_again,
    sum_tokens,
    tokens,
)

SEPARATOR = "\x1e"  # between words tokenised together: a token of its own, and in next to no word
MERGED = 64  # bytes of a word that is merged by the compiled loop: its time grows with the square
TOGETHER = 1000  # words tokenised as one text: the library's record of a text costs more than a word's tokens
REMEMBERED = 1_000_000  # words, and eight times as many tokens: 45 bytes a word and 4 a token


def byte_letters() -> list[str]:
    """The letters that stand for the 256 bytes in a byte-level tokenizer: themselves where they can be seen."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(others)) for byte in range(256)]


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

    numbers: np.ndarray  # int32 [words]: which of the known words each is
    texts: np.ndarray  # int64 [texts + 1]: where each text's words begin
    ends: np.ndarray  # int64 [known + 1]: where a known word's tokens begin, and the last one's end
    ids: np.ndarray  # int32 [tokens of the known words]

    def sums(self) -> np.ndarray:
        """int64 [texts]: tokens of each."""
        found = np.empty(len(self.texts) - 1, np.int64)
        sum_tokens(self.numbers, self.texts, self.ends, found)
        return found


class WordTokenizer:
    """Token ids of texts; safe to call from any thread. The tokenizer must be one that `splits_into_words`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        (self._separator,) = tokenizer.encode(SEPARATOR, add_special_tokens=False).ids
        self._merges = _Merges.of(tokenizer)
        self._lock = threading.Lock()
        self._forget()

    def count(self, texts: Texts) -> np.ndarray:
        """int64 [texts]: tokens of each.

        :raises UnicodeEncodeError: a text holds a lone surrogate.
        """
        return self._find(texts).sums()

    def ids(self, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
        """All tokens of each text: ids int32 [tokens], lengths int64 [texts].

        :raises UnicodeEncodeError: a text holds a lone surrogate.
        """
        found = self._find(texts)
        lengths = found.sums()
        ids = np.empty(lengths.sum(), np.int32)
        tokens(found.numbers, len(found.numbers), found.ends, found.ids, ids)
        return ids, lengths

    def ids_of_words(self, words: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of words that `split_words` found, all different: ids int32 [tokens], lengths int64 [words].

        The compiled loop's where it can, else the library's. Nothing is remembered.
        """
        if self._merges is None:
            return self._told(words.to_pylist())
        mine, lengths = self._merges.apply(words)
        others = np.flatnonzero(lengths < 0)
        told, sizes = self._told(words.take(pa.array(others)).to_pylist())
        own = np.flatnonzero(lengths >= 0)
        own_lengths = lengths[own]
        lengths[others] = sizes
        ends = np.cumsum(lengths)
        ids = np.empty(ends[-1] if len(ends) else 0, np.int32)
        for found, which, size in ((mine, own, own_lengths), (told, others, sizes)):
            shifts = ends[which] - np.cumsum(size)
            ids[np.repeat(shifts, size) + np.arange(len(found))] = found
        return ids, lengths

    def _find(self, texts: Texts) -> _Found:
        split, bounds = split_words(texts)
        with self._lock:
            if self._words.known > REMEMBERED or len(self._ids) > 8 * REMEMBERED:
                self._forget()
            before = self._words.known
            numbers = self._words.number(split)
            try:
                self._learn(self._words.since(before))
            except BaseException:
                self._forget()  # words without tokens
                raise
            return _Found(numbers, bounds, self._ends, self._ids)

    # ---------------------------------------------------------------- what is remembered

    def _forget(self) -> None:
        self._words = _KnownWords()
        self._ids = np.zeros(0, np.int32)  # their tokens, one after the other
        self._ends = np.zeros(1, np.int64)  # where a word's tokens begin, and the last one's end

    def _learn(self, words: pa.LargeStringArray) -> None:
        if not len(words):
            return
        ids, lengths = self.ids_of_words(words)
        self._ids = np.concatenate([self._ids, ids])
        self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(lengths)])

    def _told(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """What the library says."""
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


class _KnownWords:
    """Words, numbered in the order in which they were met: a hash table that the compiled loops look up."""

    def __init__(self) -> None:
        self.known = 0
        self._slots = np.full(1 << 12, -1, np.int32)
        self._hashes = np.zeros(0, np.uint64)
        self._ends = np.zeros(1, np.int64)
        self._letters = np.zeros(0, np.uint8)

    def number(self, words: pa.LargeStringArray) -> np.ndarray:
        """int32 [words]: the number of each; new ones are added."""
        _, places, data = words.buffers()
        starts = np.frombuffer(places, np.int64, len(words) + 1)
        spelled = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
        most = self.known + len(words)
        self._hashes, self._ends = _room(self._hashes, most), _room(self._ends, most + 1)
        self._letters = _room(self._letters, int(self._ends[self.known] + len(spelled)))
        if 2 * most > len(self._slots):
            self._slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
            place_again(self._hashes, self.known, self._slots)
        numbers = np.empty(len(words), np.int32)
        table = WordTable(self._slots, self._hashes, self._ends, self._letters)
        self.known = number_words(spelled, starts, len(words), table, self.known, numbers)
        return numbers

    def since(self, first: int) -> pa.LargeStringArray:
        """The words from number `first` on."""
        ends = self._ends[first : self.known + 1]
        letters = pa.py_buffer(self._letters[ends[0] : ends[-1]])
        return pa.LargeStringArray.from_buffers(self.known - first, pa.py_buffer(ends - ends[0]), letters)


class _Merges:
    """A tokenizer's byte-pair encoding, for words of ASCII or of `letters`: nothing in them to be split, nor to be
    normalized but to small letters."""

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        self._of_byte = np.full(256, -1, np.int64)
        for byte, letter in enumerate(byte_letters()):
            if byte > 0x20 and LOWER[byte] == byte:
                self._of_byte[byte] = vocabulary.get(letter, -1)
        self._made = np.array([vocabulary[left + right] for left, right in merges], np.int64)
        parts = np.array([(vocabulary[left], vocabulary[right]) for left, right in merges], np.int32).reshape(-1, 2)
        self._pairs = np.full((1 << (4 * len(merges) + 1).bit_length(), 3), -1, np.int32)
        learn_merges(parts, self._pairs)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> _Merges | None:
        """Those of a tokenizer that `splits_into_words`; None: its model is another, or has settings of its own."""
        model = json.loads(tokenizer.to_str())["model"]
        own = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
        if model["type"] != "BPE" or any(model.get(name) for name in own):
            return None
        return cls(model["vocab"], model["merges"])

    def apply(self, words: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens int32 of the words that it can encode, one after the other, and the lengths int64 [words] of all:
        −1 of the others."""
        _, places, data = words.buffers()
        ends = np.frombuffer(places, np.int64, len(words) + 1)
        raw = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
        spelled, bounds = np.empty(2 * len(raw), np.uint8), np.zeros(len(words) + 1, np.int64)
        able = np.empty(len(words), bool)
        lowered(raw, ends, KINDS, letters(), spelled, bounds, able)
        ids, lengths = np.empty(bounds[-1], np.int32), np.empty(len(words), np.int64)
        merges = Merges(self._of_byte, self._pairs, self._made)
        filled = merge_pairs(spelled, bounds, able, merges, MERGED, ids, lengths)
        return ids[:filled], lengths


def _room(array: np.ndarray, size: int) -> np.ndarray:
    """The array, or one at least twice as long with the same beginning, so that it has room for `size`."""
    if len(array) >= size:
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


def split_words(texts: Texts) -> tuple[pa.LargeStringArray, np.ndarray]:
    """The words and runs of signs of all texts, lower-cased, and where each text's begin, int64 [texts + 1].

    Cut only where the tokenizer cuts too; lower-cased only before ASCII, for a mark after a capital may join it to a
    letter that the small one has not (H with a line below).

    :raises UnicodeEncodeError: a text holds a lone surrogate.
    """
    raw, bounds = utf8(texts)
    raw, bounds = raw[bounds[0] : bounds[-1]], bounds - bounds[0]
    spelled, starts = np.empty(len(raw), np.uint8), np.empty(len(raw) + 1, np.int64)
    firsts = np.empty(len(bounds), np.int64)
    count = find_words(raw, bounds, KINDS, LOWER, spelled, starts, firsts)
    starts = starts[: count + 1].copy()
    words = pa.LargeStringArray.from_buffers(count, pa.py_buffer(starts), pa.py_buffer(spelled[: starts[-1]]))
    return words, firsts
