"""The judge of words alone: what targets' hashed n-grams cost under a choice's, DSIR's KL reduction.

    read = Ngrams().read(cut(texts, 4_600_000), targets)
    read["arc_easy"].bits_per_byte

Words and pairs of words are hashed into BUCKETS (Xie et al., "Data Selection for Language Models via Importance
Resampling", arXiv 2302.03169, section 2: 10,000 buckets, unigrams and bigrams). A target's cost is the cross-entropy
of its n-grams under the choice's distribution, in bits for each byte of the target's text. It differs from
KL(target ‖ choice) by the target's own entropy, a constant: a difference of two choices is the difference of their KL
reductions, of which the paper reports a correlation of 0.82 with downstream results. It knows no order beyond pairs.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from datamask.errors import InputError
from datamask.study.coder import Coded
from datamask.study.targets import BETWEEN, Target

BUCKETS = 10_000
_WORDS = re.compile(rb"[0-9A-Za-z_\x80-\xff]+|[^0-9A-Za-z_\x80-\xff\s]+")
_MIX = np.uint64(0x9E3779B97F4A7C15)


def ngrams(text: bytes) -> npt.NDArray[np.int64]:
    """The buckets of a text's words and pairs of words, (n,) int64."""
    words = np.array([word_hash(word) for word in _WORDS.findall(text.lower())], dtype=np.uint64)
    pairs = (words[:-1] * _MIX + words[1:]) * _MIX
    return np.concatenate([words % BUCKETS, (pairs >> np.uint64(20)) % BUCKETS]).astype(np.int64)


@lru_cache(1 << 20)
def word_hash(word: bytes) -> int:
    """32 bits, the same on every machine and in every run."""
    return zlib.crc32(word)


class Ngrams:
    """A judge: see the module."""

    name, kind = "n-grams", "counts"

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, Coded]:
        """Each target's cost, by name.

        :raises InputError: no targets.
        """
        if not targets:
            raise InputError("no targets to judge by; name files from outside the pool")
        counts = np.bincount(ngrams(choice), minlength=BUCKETS) + 1.0  # a bucket never seen still has a cost
        cost = -np.log2(counts / counts.sum())
        return {target.name: _cost(target, cost) for target in targets}


def _cost(target: Target, cost: npt.NDArray[np.float64]) -> Coded:
    zeros = np.zeros(len(target.items))
    return Coded(
        target=target.name,
        bits=np.array([cost[ngrams(item.whole)].sum() for item in target.items]),
        bytes=np.array([len(BETWEEN) + len(item.whole) for item in target.items]),
        answer_bits=zeros,
        answer_bytes=zeros.astype(np.int64),
    )
