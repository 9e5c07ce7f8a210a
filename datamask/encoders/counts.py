"""What stands in a sample of texts: distinct words, and tokens, counted per text as sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse
from tokenizers import Tokenizer

from datamask.text.word_tokens import WordTokenizer, split_words

CHARACTERS_PER_TOKEN = 4  # of a text's beginning that is counted; somewhat less than there are in English
TEXTS = 1024  # split at a time


@dataclass(frozen=True)
class WordSample:
    """The words of some texts."""

    distinct: pa.LargeStringArray  # [words]
    words: scipy.sparse.csr_array  # float32 [texts, words]: how often each stands in each text

    @classmethod
    def of(cls, texts: Sequence[str], max_length: int) -> WordSample:
        """The words of the beginnings of texts, about `max_length` tokens of each."""
        reach = max_length * CHARACTERS_PER_TOKEN
        parts, ends = [], [np.zeros(1, np.int64)]
        for first in range(0, len(texts), TEXTS):
            split, bounds = split_words([text[:reach] for text in texts[first : first + TEXTS]])
            parts.append(split)
            ends.append(ends[-1][-1] + bounds[1:])
        coded = pa.chunked_array(parts, pa.large_string()).dictionary_encode().combine_chunks()
        words = sparse_counts(coded.indices.to_numpy(), np.concatenate(ends), len(coded.dictionary))
        return cls(coded.dictionary, words)

    @property
    def bytes(self) -> np.ndarray:
        """float32 [words]: the length of each in UTF-8."""
        return np.asarray(pc.binary_length(self.distinct)).astype(np.float32)

    @cached_property
    def sizes(self) -> np.ndarray:
        """float32 [texts]: bytes of each text's words."""
        found: np.ndarray = self.words @ self.bytes
        return found


def count_tokens(sample: WordSample, tokenizer: Tokenizer) -> scipy.sparse.csr_array:
    """float32 [texts, vocabulary]: how often each token stands in each text. Each distinct word is tokenised once."""
    ids, lengths = WordTokenizer(tokenizer).ids_of_words(sample.distinct)
    ends = np.append(0, np.cumsum(lengths))
    spelled = sparse_counts(ids, ends, tokenizer.get_vocab_size(with_added_tokens=True))
    counts = sample.words @ spelled
    counts.sort_indices()
    return counts


def sparse_counts(columns: np.ndarray, ends: np.ndarray, width: int) -> scipy.sparse.csr_array:
    """float32 [rows, width]: how often each column stands between a row's ends."""
    matrix = scipy.sparse.csr_array(
        (np.ones(len(columns), np.float32), columns.astype(np.int32), ends), shape=(len(ends) - 1, width)
    )
    matrix.sum_duplicates()
    return matrix


def with_values(matrix: scipy.sparse.csr_array, values: np.ndarray) -> scipy.sparse.csr_array:
    """The matrix with other values at the same places."""
    return scipy.sparse.csr_array((values.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def scale_rows(matrix: scipy.sparse.csr_array, factors: np.ndarray) -> scipy.sparse.csr_array:
    """The matrix with each row times its factor."""
    return with_values(matrix, matrix.data * np.repeat(factors, np.diff(matrix.indptr)))
