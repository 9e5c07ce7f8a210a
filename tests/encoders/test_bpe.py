"""Merges learned from counted words are those that the trainer of `tokenizers` learns from the texts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from datamask.encoders import bpe, static
from datamask.encoders.counts import WordSample

ODD = [
    "Für HÖHE H\u0331 EÜgv Straße ΣΟΦΟΣ İstanbul don’t “quoted” naïve_x x²y ﬁne …end a\u0301b",
    "這是一個測試 ภาษาไทยไม่มีช่องว่าง मानक हिन्दी 한국어 문장 العربية עברית",
    "print(f'{x!r}') a+=b; 3.14 1,000 \u200bzero\u00a0width \u2028line \U0001f600\U0001f600 _under_ ___ --- '''",
    "e\u0301\u0302 \u0301alone x\u0327\u0301 Å\u0301 \u212b K\u212a \u1e9e \u01c4\u01c5",
]


def by_the_library(texts: list[str], vocabulary: int, tokenizer: Tokenizer) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=bpe.LEAST,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=bpe.LONGEST,
        show_progress=False,
    )
    tokenizer.model = models.BPE()
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@pytest.mark.parametrize("seed", range(40))
def test_they_are_the_librarys(seed: int) -> None:
    """Few letters, so that pairs are equally frequent, overlap, and one token is made in several ways."""
    generator = np.random.default_rng(seed)
    letters = list("abcdef")[: generator.integers(1, 6)]
    words = ["".join(generator.choice(letters, generator.integers(1, 50))) for _ in range(generator.integers(1, 60))]
    counts, vocabulary = generator.integers(1, 9, len(words)), int(generator.integers(200, 700))
    alone = Tokenizer(models.BPE())
    alone.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [" ".join([word] * count) for word, count in zip(words, counts.tolist(), strict=True)]
    expected = json.loads(by_the_library(texts, vocabulary, alone).to_str())["model"]
    assert json.loads(Tokenizer(bpe.train(words, counts, vocabulary)).to_str())["model"] == expected


def test_no_word_is_none() -> None:
    assert Tokenizer(bpe.train([], np.zeros(0, np.int64), 300)).get_vocab_size() == 256


@pytest.mark.parametrize("texts", [[text] * 3 for text in ODD] + [ODD * 5, ["one two three"]])
def test_words_are_cut_and_spelled_as_the_tokenizer_does(texts: list[str]) -> None:
    sample, groups = WordSample.of(texts, 512), np.zeros(len(texts), np.int64)
    fitted = static.fit_tokenizer(sample, groups, 400)
    times = static._occurrences(sample, groups).tolist()
    repeated = ["".join((word + " ") * n for word, n in zip(sample.distinct.to_pylist(), times, strict=True))]
    assert fitted.to_str() == by_the_library(repeated, 400, Tokenizer.from_str(fitted.to_str())).to_str()
