"""Hashed words against plain Python."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.text import ngrams


def buckets_of(named: list[tuple[str, ...]], buckets: int = ngrams.BUCKETS) -> np.ndarray:
    """The bucket of each uni- or bigram, given as its words: (n,) int64."""
    found = np.empty(len(named), np.int64)
    for place, ngram in enumerate(named):
        single, pair, _, _ = next(ngrams.hashed_words([" ".join(ngram)]))
        found[place] = (pair if len(ngram) == 2 else single)[0] % np.uint64(buckets)
    return found


@settings(deadline=None)  # the first call is compiled
@given(st.lists(st.text("ab cdé.,\n'Z9", max_size=40), min_size=1, max_size=6))
def test_counts_are_those_of_a_plain_count(texts: list[str]) -> None:
    found = ngrams.count_ngrams(texts).toarray()
    for row, text in zip(found, texts, strict=True):
        words = re.findall(r"\w+", text.lower())
        plain = Counter([(word,) for word in words] + list(zip(words, words[1:], strict=False)))
        expected = np.zeros(ngrams.BUCKETS)
        if plain:
            np.add.at(expected, buckets_of(list(plain)), list(plain.values()))
        assert (row == expected).all()


def test_blocks_do_not_matter(monkeypatch) -> None:
    texts = [f"one two {number} three" for number in range(50)] + ["", "  ", "end"]
    whole = ngrams.count_ngrams(texts).toarray()
    monkeypatch.setattr(ngrams, "BLOCK", 30)
    assert (ngrams.count_ngrams(texts).toarray() == whole).all()
    column = pa.array(["before", *texts, "after"])[1:-1]  # as a batch of rows has it
    assert (ngrams.count_ngrams(column).toarray() == whole).all()


def words_of(text: str) -> list[str]:
    normal = unicodedata.normalize("NFKC", text)
    return [normal[a:b] for a, b in zip(*ngrams.word_bounds(text), strict=True)]


def test_words() -> None:
    assert words_of("Don't STOP, naïve!") == ["Don", "t", "STOP", "naïve"]
    assert words_of("日本語 ok") == ["日", "本", "語", "ok"]  # no spaces: characters
    assert words_of("हिन्दी है") == ["हिन्दी", "है"]  # marks belong to their word
    assert words_of("\ufb01ne \U0001f600") == ["fine"]


def test_texts_without_words_have_empty_rows() -> None:
    found = ngrams.count_ngrams(["", "...", "a"])
    assert found.sum(axis=1).tolist() == [0, 0, 1] and ngrams.count_ngrams([]).shape == (0, ngrams.BUCKETS)


def test_hashes_are_those_of_stored_atoms() -> None:
    """Files of atoms and saved prices outlive a version: a bucket stays what it was, in every script."""
    known = [("the",), ("the", "house"), ("éclair",), ("日",), ("日", "本"), ("1",), ("ไ",)]
    assert buckets_of(known).tolist() == [655, 98, 4515, 8109, 2773, 9666, 8335]
