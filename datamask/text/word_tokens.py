"""Token ids by words: a tokenizer that splits text into words first gives a word the same tokens wherever it stands, so
each distinct word of some texts is tokenised once.

words = WordTokenizer(tokenizer)          # if splits_into_words(tokenizer)
words.count(["one text", "another"])      # int64 [2]
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from datamask.text.utf8 import Texts, utf8
from datamask.text.word_loops import LOWER, Merges, fill_pair_table, find_words, merge_pairs

SEPARATOR = "\x1e"  # between words tokenised together: a token of its own, and in next to no word
MERGED = 64  # bytes of a word that is merged by the compiled loop: its time grows with the square
TOGETHER = 1000  # words tokenised as one text: the library's record of a text costs more than a word's tokens
REMEMBERED = 500_000  # words that the library tokenised, of about 250 bytes each


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


class WordTokenizer:
    """Token ids of texts; safe to call from any thread. The tokenizer must be one that `splits_into_words`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        (self._separator,) = tokenizer.encode(SEPARATOR, add_special_tokens=False).ids
        self._merges = _merges_of(tokenizer)
        self._remembered: dict[str, np.ndarray] = {}  # what the library said of words

    def count(self, texts: Texts) -> np.ndarray:
        """int64 [texts]: tokens of each.

        :raises UnicodeEncodeError: a text holds a lone surrogate.
        """
        words, firsts = split_words(texts)
        coded = words.dictionary_encode()
        _, lengths = self.ids_of_words(coded.dictionary)
        return _sums(lengths[coded.indices.to_numpy()], firsts)

    def ids(self, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
        """All tokens of each text: ids int32 [tokens], lengths int64 [texts].

        :raises UnicodeEncodeError: a text holds a lone surrogate.
        """
        words, firsts = split_words(texts)
        coded = words.dictionary_encode()
        ids, lengths = self.ids_of_words(coded.dictionary)
        listed = pa.LargeListArray.from_arrays(np.append(0, np.cumsum(lengths)), ids)
        return listed.take(coded.indices).flatten().to_numpy(), _sums(lengths[coded.indices.to_numpy()], firsts)

    def ids_of_words(self, words: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of words that `split_words` found, all different: ids int32 [tokens], lengths int64 [words].

        The compiled loop's where it can, else the library's.
        """
        mine, lengths = _merged(words, self._merges)
        merged = lengths >= 0
        told = self._told(words.filter(pa.array(~merged)).to_pylist())
        lengths[~merged] = [len(tokens) for tokens in told]
        ids, is_mine = np.empty(lengths.sum(), np.int32), np.repeat(merged, lengths)
        ids[is_mine] = mine
        ids[~is_mine] = np.concatenate([np.zeros(0, np.int32), *told])
        return ids, lengths

    def _told(self, words: Sequence[str]) -> list[np.ndarray]:
        """The tokens of each word as the library has them, which is asked for a word once."""
        if len(self._remembered) > REMEMBERED:
            self._remembered = {}
        known = self._remembered  # also when another thread begins a new one
        new = [word for word in words if word not in known]
        groups = [new[first : first + TOGETHER] for first in range(0, len(new), TOGETHER)]
        joined = self._encode([f" {SEPARATOR} ".join(group) for group in groups])
        for group, together in zip(groups, joined, strict=True):
            separators = np.flatnonzero(together == self._separator)
            if len(separators) == len(group) - 1:
                parts = np.split(np.delete(together, separators), separators - np.arange(len(separators)))
            else:  # a word holds the separator
                parts = self._encode(group)
            known.update(zip(group, parts, strict=True))
        return [known[word] for word in words]

    def _encode(self, texts: list[str]) -> list[np.ndarray]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]


def _merges_of(tokenizer: Tokenizer) -> Merges | None:
    """The byte-pair encoding of a tokenizer that `splits_into_words`, for words of ASCII: nothing in them to be split,
    nor to be normalized but to small letters. None: its model is another, or has settings of its own."""
    model = json.loads(tokenizer.to_str())["model"]
    own = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    if model["type"] != "BPE" or any(model.get(name) for name in own):
        return None
    vocabulary, merges = model["vocab"], model["merges"]
    of_byte = np.full(256, -1, np.int64)
    for byte, letter in enumerate(byte_letters()):
        if 0x20 < byte < 0x80 and LOWER[byte] == byte:
            of_byte[byte] = vocabulary.get(letter, -1)
    made = np.array([vocabulary[left + right] for left, right in merges], np.int64)
    parts = np.array([(vocabulary[left], vocabulary[right]) for left, right in merges], np.int32).reshape(-1, 2)
    pairs = np.full((1 << (4 * len(merges) + 1).bit_length(), 3), -1, np.int32)
    fill_pair_table(parts, pairs)
    return Merges(of_byte, pairs, made)


def _merged(words: pa.LargeStringArray, merges: Merges | None) -> tuple[np.ndarray, np.ndarray]:
    """The tokens int32 of the words that these merges can encode, one after the other, and the lengths int64 [words] of
    all: −1 of the others."""
    if merges is None:
        return np.zeros(0, np.int32), np.full(len(words), -1)
    _, places, data = words.buffers()
    ends = np.frombuffer(places, np.int64, len(words) + 1) if len(words) else np.zeros(1, np.int64)
    raw = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    ids, lengths = np.empty(len(raw), np.int32), np.empty(len(words), np.int64)
    filled = merge_pairs(raw, ends, merges, MERGED, ids, lengths)
    return ids[:filled], lengths


def _sums(lengths: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """int64 [texts]: the tokens of each, by those of its words. firsts: where each text's words begin."""
    return np.diff(np.append(0, np.cumsum(lengths))[firsts])


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
    count = find_words(raw, bounds, spelled, starts, firsts)
    starts = starts[: count + 1].copy()
    words = pa.LargeStringArray.from_buffers(count, pa.py_buffer(starts), pa.py_buffer(spelled[: starts[-1]]))
    return words, firsts
