"""Equal hashes for texts that differ in case, white space and Unicode's spelling alone; other texts have others."""

from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from datamask.text.ngrams import count_ngrams
from datamask.text.text_hashes import normalise, text_hash, text_hashes


def hashes(texts: list[str]) -> list[bytes]:
    return text_hashes(pa.array(texts, pa.string()))


@pytest.mark.parametrize("seed", range(3))
def test_case_space_and_spelling_do_not_matter(seed: int) -> None:
    generator = np.random.default_rng(seed)
    letters = [*"abcABCßſéÉọÓệ \n\u00a0\u2003ΣςĳǆΆ", "𠀀", "한", "\u1100", "\u1161", "ো", "\u0323\u0301", "\u0651"]
    texts = ["".join(generator.choice(letters, generator.integers(0, 9))) for _ in range(4000)]
    expected = hashes(texts)
    assert expected == [text_hash(text) for text in texts]
    for form in ("NFC", "NFD"):
        assert hashes([unicodedata.normalize(form, text) for text in texts]) == expected
    assert hashes([f" {text.casefold()}\u3000\n".replace(" ", "\t ") for text in texts]) == expected
    assert len({*expected}) == len({normalise(text) for text in texts}) > 1000


def test_a_hash_stays_what_it_was() -> None:
    found = [one.hex() for one in hashes(["One  text.", "ẞ", "É 한 İ", ""])]
    assert found == [
        "9146a4af1b4e9e8415b3780551360e5b",
        "308271c2d79f500d1cd5392255b234eb",
        "d5b4971de4af0d5d66803acdb667d8ae",
        "cae66941d9efbd404e4d88758ea67670",
    ]


def test_nulls_slices_and_nothing() -> None:
    texts = ["One  text.", None, "", " \t ", "ONE text. "]
    array = pa.array(texts, pa.string())
    expected = [text_hash(text or "") for text in texts]
    assert text_hashes(array) == expected and expected[0] == expected[4]
    assert text_hashes(array.slice(2, 3)) == expected[2:5]
    assert text_hashes(pa.array([], pa.string())) == []


def test_words_are_those_of_the_compatible_spelling() -> None:
    found = count_ngrams(["a\ud800…", "", "ﬁne ½", "fine 1⁄2"]).toarray()
    assert found[0].any() and not found[1].any() and (found[2] == found[3]).all()
