"""Which of two copies has words put in the place of others, by the corpus's counts without the copies' own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from datamask.filter.altered import CopyCounts
from datamask.quality import pool_model as pool
from tests.quality.test_content import grammar

TEXTS = 120


def altered(text: str, generator: random.Random, words: int) -> str:
    """The text with some of its words at the places of others."""
    made = text.split()
    for place in generator.sample(range(len(made)), words):
        made[place] = generator.choice(made)
    return " ".join(made)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    generator = random.Random(8)
    return [grammar(0, generator, 12) for _ in range(TEXTS)]


@pytest.fixture(scope="module")
def counts(texts: list[str]) -> CopyCounts:
    return CopyCounts(pool.fit_pool_model(texts, ["xa"] * TEXTS))


def test_the_intact_copy_is_the_likelier_one(texts: list[str], counts: CopyCounts) -> None:
    generator = random.Random(1)
    said = counts.altered([(text, altered(text, generator, 4)) for text in texts[:20]])
    assert sum(value > 0 for value in said) >= 18
    more = counts.natural([(text, altered(text, generator, 4)) for text in texts[:20]])
    assert sum(intact > other for intact, other in more) >= 18


def test_evidence_has_a_sign_and_says_nothing_of_equal_texts(texts: list[str], counts: CopyCounts) -> None:
    other = altered(texts[0], random.Random(2), 6)
    there, back, same = counts.altered([(texts[0], other), (other, texts[0]), (texts[0], texts[0])])
    assert there == -back != 0 and same == 0
    assert counts.altered([]) == []
    for one in ("", " ", "😀"):
        assert counts.altered([(one, one)]) == [0]
        assert np.isnan(counts.natural([(one, one)])).all()
        there, back = counts.altered([(texts[0], one), (one, texts[0])])
        assert there == -back


def test_pairs_asked_about_together_are_told_what_each_is_told_alone(texts: list[str], counts: CopyCounts) -> None:
    generator = random.Random(4)
    copies = [altered(text, generator, 5) for text in texts[:12]]
    copies[3] = texts[3] * 40  # longer than what the sample holds of a text
    pairs = [pair for text, copy in zip(texts, copies, strict=False) for pair in ((text, copy), (copy, texts[0]))]
    assert counts.altered(pairs) == [counts.altered([pair])[0] for pair in pairs]
    assert counts.natural(pairs) == [counts.natural([pair])[0] for pair in pairs]


def test_what_a_copy_was_counted_for_is_left_out(texts: list[str]) -> None:
    """Strangers that stand in an altered copy alone are known by it alone: to the evidence they are unknown."""
    base = texts[0]
    words = base.split()
    for n, place in enumerate(random.Random(3).sample(range(len(words)), 8)):
        words[place] = f"stranger{n}"
    copy = " ".join(words)
    [alone] = CopyCounts(pool.fit_pool_model(texts[1:], ["xa"] * (TEXTS - 1))).altered([(base, copy)])
    [with_it] = CopyCounts(pool.fit_pool_model([*texts[1:], copy], ["xa"] * TEXTS)).altered([(base, copy)])
    assert alone > 0
    assert with_it == pytest.approx(alone, rel=0.25)


def test_a_word_with_two_letters_in_the_wrong_order_is_told(texts: list[str], counts: CopyCounts) -> None:
    generator = random.Random(5)
    for text in texts[:20]:
        words = text.split()
        for place in generator.sample(range(len(words)), 3):
            words[place] = words[place][::-1]  # of two syllables and a consonant: no word of this language backwards
        assert counts.altered([(text, " ".join(words))])[0] > 0
