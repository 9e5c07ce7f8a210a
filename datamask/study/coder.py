"""The judges that train nothing: what targets cost in bits, coded by PPMd after it has read a choice; and by a choice's
pairs of words alone (`Ngrams`).

    read = code_targets(cut_texts(texts, 4_600_000), targets)  # about 1.5 s for 6.5 MB of choice and 8 targets
    read["arc_easy"].bits_per_byte, mean_bits(read)

PPMd (prediction by partial matching, variant H of D. Shkarin, "PPM: one step to practicality", DCC 2002; `pyppmd`) is
a model of the next byte given the last few that learns while it reads. A choice is read once. The coder cannot be
copied, but a process can: each target is coded in a child made by `fork`, which knows the choice and no other target.
Where there is no fork, the choice is read again for each target: the same numbers, as many times slower.

A child learns from a target's items as it codes them, so that an item's bits are given the choice and the items
before it; the items come in one order for all choices. Bits are counted in whole bytes of output: an item's are right
to 8 bits, the errors cancel along a target, whose sum is right to 16.
"""

from __future__ import annotations

import os
import re
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from pyppmd import Ppmd7Encoder

from datamask.errors import DatamaskError, InputError
from datamask.maps import places_of
from datamask.study.targets import BETWEEN, Target

ORDER = 6  # bytes of context
MEMORY_A_BYTE = 64  # of text read, at most; measured: 6 to 9 at order 6, under 30 at order 12; untouched memory is free
_LEAST_MEMORY, _MOST_MEMORY = 1 << 24, (1 << 32) - 64  # bytes; PPMd forgets everything where it has less than it needs
_MOST_TEXT = _MOST_MEMORY // 20
_CHUNK = 1 << 20
BUCKETS = 10_000
_WORDS = re.compile(rb"[0-9A-Za-z_\x80-\xff]+|[^0-9A-Za-z_\x80-\xff\s]+")
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CodedItems:
    """What a target's items cost after a choice. All (items,) arrays; answers are nan-free zeros in plain text."""

    target: str
    bits: npt.NDArray[np.float64]  # of the whole item
    bytes: npt.NDArray[np.int64]
    answer_bits: npt.NDArray[np.float64]  # of the answer alone, given the question
    answer_bytes: npt.NDArray[np.int64]

    @property
    def bits_per_byte(self) -> float:
        return float(self.bits.sum() / self.bytes.sum())

    @property
    def answer_bits_per_byte(self) -> float:
        """nan where there are no answers."""
        total = self.answer_bytes.sum()
        return float(self.answer_bits.sum() / total) if total else float("nan")


def code_targets(
    choice: bytes, targets: Sequence[Target], order: int = ORDER, fork: bool | None = None
) -> dict[str, CodedItems]:
    """Each target's cost after reading `choice` (see `targets.cut_texts`), by the targets' names, in their order.

    :param order: of the model, 2 to 64 bytes.
    :param fork: read the choice once and fork for each target; by default where the platform can.
    :raises InputError: no targets, or a choice of more text than PPMd can hold (over 200 MB).
    """
    if not targets:
        raise InputError("no targets to judge by; name files from outside the pool")
    longest = max(target.bytes + len(BETWEEN) * len(target.items) for target in targets)
    if len(choice) + longest > _MOST_TEXT:
        raise InputError(f"the coder holds {_MOST_TEXT:,} bytes of text at most; judge choices of fewer bytes")
    can = hasattr(os, "fork") if fork is None else fork
    encoder = _reader(choice, order, longest) if can else None
    found = {}
    for target in targets:
        if encoder is None:
            counts = _cost(_reader(choice, order, longest), target)
        else:
            counts = _in_child(encoder, target)
        table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
        found[target.name] = CodedItems(
            target=target.name,
            bits=np.asarray(8.0 * table.sum(axis=1)),
            bytes=np.array([len(BETWEEN) + len(item.whole) for item in target.items]),
            answer_bits=np.asarray(8.0 * table[:, 1]),
            answer_bytes=np.array([len(item.answer) for item in target.items]),
        )
    return found


class Coder:
    name, kind = "coder", "counts"
    parameters, epochs = 0, 1.0

    def __init__(self, order: int = ORDER) -> None:
        self.order = order

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, CodedItems]:
        return code_targets(choice, targets, self.order)


def mean_bits(read: Mapping[str, CodedItems]) -> float:
    """Bits a byte, the mean of the targets, each alike."""
    return float(np.mean([coded.bits_per_byte for coded in read.values()]))


def _reader(choice: bytes, order: int, room: int) -> Ppmd7Encoder:
    """An encoder that has read the choice and has memory for `room` bytes more."""
    memory = min(max(_LEAST_MEMORY, MEMORY_A_BYTE * (len(choice) + room)), _MOST_MEMORY)
    encoder = Ppmd7Encoder(order, memory)
    for start in range(0, len(choice), _CHUNK):
        encoder.encode(choice[start : start + _CHUNK])
    return encoder


def _cost(encoder: Ppmd7Encoder, target: Target) -> list[int]:
    """Bytes of output of each item: what is given, then the answer."""
    counts: list[int] = []
    for item in target.items:
        counts.append(len(encoder.encode(BETWEEN + item.given)))
        counts.append(len(encoder.encode(item.answer)) if item.answer else 0)
    return counts


def _in_child(encoder: Ppmd7Encoder, target: Target) -> list[int]:
    """`_cost` in a copy of this process, so that this one's encoder stays as it is.

    The child does nothing but encode, write to a pipe and leave: what other threads of the parent held is not touched.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # "multi-threaded, use of fork() may lead to deadlocks"
        child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(np.asarray(_cost(encoder, target), dtype=np.int64).tobytes())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or len(told) != 16 * len(target.items):
        raise DatamaskError(
            f"the coder's process for target {target.name} ended with status {status}; is memory short?"
        )
    return list(np.frombuffer(told, dtype=np.int64))


# ---------------------------------------------------------------- the judge of words alone


def words_of(text: bytes) -> Integers:
    """The buckets of a text's words and signs, in their order, (n,)."""
    return np.array([word_hash(word) for word in _WORDS.findall(text.lower())], dtype=np.int64) % BUCKETS


@lru_cache(1 << 20)
def word_hash(word: bytes) -> int:
    """32 bits, the same on every machine and in every run."""
    return zlib.crc32(word)


class WordPairs:
    """What was counted in a text: its words, and its pairs of words."""

    def __init__(self, text: bytes) -> None:
        words = words_of(text)
        counts = np.bincount(words, minlength=BUCKETS) + 1.0  # a bucket never seen still has a probability
        self._word = counts / counts.sum()
        self._keys, self._counts = np.unique(words[:-1] * BUCKETS + words[1:], return_counts=True)
        first = self._keys // BUCKETS
        self._kinds = np.bincount(first, minlength=BUCKETS)  # t(v)
        self._after = np.bincount(first, weights=self._counts, minlength=BUCKETS) + self._kinds  # n(v) + t(v)

    def bits(self, words: Integers) -> float:
        """What words in a row cost; the first of them by itself."""
        if not len(words):
            return 0.0
        return float(-np.log2(self._word[words[0]]) - np.log2(self.given(words[:-1], words[1:])).sum())

    def given(self, before: Integers, words: Integers) -> Floats:
        """(n,): the probability of each word after the one before it."""
        seen = np.append(self._counts, 0)[places_of(before * BUCKETS + words, self._keys)]
        kinds, after = self._kinds[before], self._after[before]
        return np.where(kinds, (seen + kinds * self._word[words]) / np.maximum(after, 1), self._word[words])


class Ngrams:
    """What a target's words cost, each given the one before it, by a choice's counts.

    Words are hashed into BUCKETS. A word costs its cross-entropy under the choice's pairs, interpolated with its words
    by method C of Witten and Bell ("The zero-frequency problem", IEEE Transactions on Information Theory 37, 1991):
    after the word v, w has the probability (n(v, w) + t(v) P(w)) / (n(v) + t(v)), where n counts and t(v) is how many
    different words were seen after v; P is the words' own distribution with one added to every bucket, as in DSIR
    (arXiv 2302.03169). DSIR's KL reduction, which adds words and pairs up in one bag, does not see words out of order:
    half of its cost is the words', which no order changes, and the hashed pairs of a shuffled text fall into buckets as
    full as before. The cross-entropy of a model of pairs does, and is what Moore and Lewis choose text by (ACL 2010).
    """

    name, kind = "n-grams", "counts"
    parameters, epochs = 0, 1.0

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, CodedItems]:
        """:raises InputError: no targets."""
        if not targets:
            raise InputError("no targets to judge by; name files from outside the pool")
        pairs, found = WordPairs(choice), {}
        for target in targets:
            zeros = np.zeros(len(target.items))
            found[target.name] = CodedItems(
                target=target.name,
                bits=np.array([pairs.bits(words_of(item.whole)) for item in target.items]),
                bytes=np.array([len(BETWEEN) + len(item.whole) for item in target.items]),
                answer_bits=zeros,
                answer_bytes=zeros.astype(np.int64),
            )
        return found
