"""Byte-pair encoding (Sennrich, Haddow & Birch 2016) learned from counted words: what `tokenizers` learns.

    model = train(units, counts, vocabulary)     # tokenizers.models.BPE

That trainer takes texts, and takes three quarters of its time to cut them into the words that are counted here already.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import models

from datamask.models.word_tokens import byte_letters

LEAST = 2  # times that a pair must stand in the words
LONGEST = 32  # letters: of a token, one fewer
ALPHABET = "".join(sorted(byte_letters()))  # tokens 0 to 255


def train(units: Sequence[str], counts: np.ndarray, vocabulary: int) -> models.BPE:
    """The model of at most so many tokens, the 256 letters among them.

    :param units: words, spelled in `byte_letters`; equal ones count together
    :param counts: int64 [units]
    """
    from datamask.encoders.bpe_loops import learn

    joined = "".join(units)
    number = np.zeros(max(map(ord, ALPHABET)) + 1, np.int32)
    number[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))
    symbols = number[np.frombuffer(joined.encode("utf-32-le"), np.uint32)]
    starts = np.append(0, np.cumsum([len(unit) for unit in units])).astype(np.int64)
    lefts, rights = learn(symbols, starts, np.asarray(counts, np.int64), vocabulary, LEAST, LONGEST)
    known = dict.fromkeys(ALPHABET)
    spelled = list(known)
    merges: dict[tuple[str, str], None] = {}
    for left, right in zip(lefts.tolist(), rights.tolist(), strict=True):
        pair = (spelled[left], spelled[right])
        if (token := "".join(pair)) not in known:
            known[token] = None
            spelled.append(token)
        merges.pop(pair, None)  # the last of its ranks counts
        merges[pair] = None
    return models.BPE({token: place for place, token in enumerate(spelled)}, list(merges))
