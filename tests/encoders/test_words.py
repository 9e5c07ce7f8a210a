"""Tokenised word by word: the same ids as the library gives for the whole texts, whatever they hold."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from datamask.models.tokens import DocumentTokenizer
from datamask.text import word_tokens
from datamask.text.word_tokens import WordTokenizer, split_words, splits_into_words
from tests.encoders.conftest import fit_tokenizer, sentences

TRICKY = [
    "",
    " ",
    "a\x1eb \x1e x\x1e",
    "H\u0331 h\u0331 J\u030c T\u0308e W\u030a",  # capitals whose small letters have a joined form of their own
    "a=\u0338b <\u0338 c>\u0338",  # signs that a mark turns into another
    "\u212a\u2126 ΑΣ ΑΣ. İI ǅ ﬁ ½ ™",
    "x\u00a0y\u2003z\u3000w\u0085v\u200bu\u180et\x1cs\x1fr",  # spaces that are none to ASCII
    "don't (stop)_now-or,never;42.5e-3 __init__ C++",
    "中文字符没有空格。ภาษาไทย\nनमस्ते",
    "tab\tfeed\x0ctube\x0bcr\rend",
    "\x00\x00nul\x00",
    "a capital before the next text's ÉTÉ: A",
    "É \x7f DEL ~ ğ Ğ",
]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return fit_tokenizer([*sentences(300), *TRICKY * 3], 700)


def whole(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def same(tokenizer: Tokenizer, found: WordTokenizer, texts: list[str]) -> None:
    expected = whole(tokenizer, texts)
    ids, lengths = found.ids(texts)
    assert lengths.tolist() == found.count(texts).tolist() == [len(one) for one in expected]
    assert ids.tolist() == [token for one in expected for token in one]


def test_tricky_texts(trained: Tokenizer) -> None:
    assert splits_into_words(trained)
    same(trained, WordTokenizer(trained), TRICKY)
    same(trained, WordTokenizer(trained), ["".join(TRICKY), " ".join(TRICKY), *TRICKY])


MIXED = st.text(
    st.one_of(
        st.characters(blacklist_categories=["Cs"]),
        st.sampled_from("aAhHtTjJ_9 \t\n.,-<=>|\x1e\x00\u0301\u0338\u0331\u030c\u0085\u00a0ΣσİI中"),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MIXED, max_size=6), st.booleans())
def test_any_texts(trained: Tokenizer, texts: list[str], again: bool) -> None:
    found = WordTokenizer(trained)
    if again:
        found.count(texts[::-1])
    same(trained, found, texts)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.sampled_from("theriv bank.,-=_9AÉ"), max_size=90), max_size=8))
def test_merges_are_those_of_the_library(trained: Tokenizer, texts: list[str]) -> None:
    words, _ = split_words(texts)
    merges = word_tokens._merges_of(trained)
    assert merges is not None
    ids, lengths = word_tokens._merged(words, merges)
    told = [encoding.ids for encoding in trained.encode_batch(words.to_pylist(), add_special_tokens=False)]
    for word, length in zip(words.to_pylist(), lengths.tolist(), strict=True):
        assert (length < 0) == (len(word.encode()) > 64 or not word.isascii() or "A" in word)
    kept = [one for one, length in zip(told, lengths.tolist(), strict=True) if length >= 0]
    assert ids.tolist() == [token for one in kept for token in one]
    assert lengths[lengths >= 0].tolist() == [len(one) for one in kept]


def test_letters_beyond_ascii_are_those_of_the_library(trained: Tokenizer) -> None:
    codes = [code for code in range(0x80, 0x20000, 3) if unicodedata.category(chr(code))[0] in "LM"]
    letters = list(map(chr, codes))
    marks = [letter for letter in letters if unicodedata.combining(letter)]
    made = [f"a{one}{other}" for one, other in zip(letters, letters[::-1], strict=True)]
    made += [f"{letter}{mark}b" for letter, mark in zip(letters, marks * len(letters), strict=False)]
    made += ["".join(letters[first : first + 9]) for first in range(0, len(letters), 9)]
    same(trained, WordTokenizer(trained), made)


@pytest.mark.parametrize("other", ["unigram", "dropout"])
def test_another_model_is_left_to_the_library(trained: Tokenizer, other: str) -> None:
    changed = Tokenizer.from_str(trained.to_str())
    if other == "dropout":
        changed.model.dropout = 1e-9
    else:
        changed.model = models.Unigram([(char, -1.0) for char in sorted(pre_tokenizers.ByteLevel.alphabet())])
    assert splits_into_words(changed)
    found = WordTokenizer(changed)
    assert found._merges is None
    same(changed, found, TRICKY)


def test_what_was_forgotten_is_learned_again(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_tokens, "REMEMBERED", 20)
    monkeypatch.setattr(word_tokens, "TOGETHER", 7)
    found = WordTokenizer(trained)
    texts = [text.replace("e", "é") for text in sentences(200)]
    for first in range(0, 200, 10):
        same(trained, found, texts[first : first + 10])
        assert len(found._remembered) <= 20 + len(split_words(texts[first : first + 10])[0].unique())


def test_many_threads(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_tokens, "REMEMBERED", 30)
    found = WordTokenizer(trained)
    texts = [sentences(40, longest=20 + i) for i in range(40)]
    expected = [[len(one) for one in whole(trained, part)] for part in texts]
    with ThreadPoolExecutor(8) as pool:
        assert [counts.tolist() for counts in pool.map(found.count, texts)] == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_words_of_no_text_belong_to_the_next(kind: pa.DataType) -> None:
    split, bounds = split_words(pa.array(["One two", "", None, " ", "x=1"], kind))
    assert split.to_pylist() == ["one", "two", "x", "=", "1"] and bounds.tolist() == [0, 2, 2, 2, 2, 5]


@pytest.mark.parametrize("change", ["normalizer", "pre_tokenizer", "added"])
def test_other_tokenizers_see_whole_texts(trained: Tokenizer, change: str) -> None:
    other = Tokenizer.from_str(trained.to_str())
    if change == "normalizer":
        other.normalizer = normalizers.Prepend("x")
    elif change == "pre_tokenizer":
        other.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        other.add_tokens(["two words"])
    assert not splits_into_words(other)
    texts = ["a two words b", "water  and boats"]
    assert DocumentTokenizer(other).count(texts).tolist() == [len(one) for one in whole(other, texts)]
    assert not splits_into_words(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))


def test_the_saved_encoder_is_of_this_kind(trained: Tokenizer) -> None:
    assert np.array_equal(DocumentTokenizer(trained).count(TRICKY), [len(one) for one in whole(trained, TRICKY)])
