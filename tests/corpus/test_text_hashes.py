"""The compiled loop's hashes are the library's, whatever the texts hold."""

from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from datamask.text.code_points import LEADING, tables
from datamask.text.nfkc import nfkc
from datamask.text.text_hashes import BLOCK_BYTES, normalise, text_hash, text_hashes


def hashes(texts: list[str]) -> list[bytes]:
    return text_hashes(pa.array(texts, pa.string()))


def same(texts: list[str]) -> None:
    assert hashes(texts) == [text_hash(text) for text in texts]
    points, ends = nfkc(texts)
    found = [part.tobytes().decode("utf-32-le", "surrogatepass") for part in np.split(points, ends)[:-1]]
    assert found == [unicodedata.normalize("NFKC", text) for text in texts]


def test_every_code_point_alone_and_beside_others() -> None:
    for first, step in ((0x80, 1), (0x3000, 7), (0x10000, 7)):
        codes = range(first, 0x3000 if step == 1 else 0x33000, step)
        texts = [
            f"{chr(code)} a{chr(code)} B{chr(code)}\u0301 é{chr(code)}{chr(code)}"
            for code in codes
            if not 0xD800 <= code < 0xE000
        ]
        same(texts)


@pytest.mark.parametrize("seed", range(3))
def test_random_texts(seed: int) -> None:
    generator = np.random.default_rng(seed)
    kind = tables("NFC").kind
    marked = [chr(code) for code in np.flatnonzero(kind >= 2) if not 0xD800 <= code < 0xE000]
    letters = [
        *"abcABCßſéÉọÓệ \n\u00a0\u2003İıΣςĳǆ",
        "𠀀",
        "\U0002f800",
        "\U000e0100",
        "한",
        "\u1100",
        "\u1161",
        "ো",
        "ৌ",
    ]
    texts = []
    for _ in range(4000):
        pool = letters + list(generator.choice(marked, 6))
        texts.append("".join(generator.choice(pool, generator.integers(0, 9))))
    same(texts)


def test_marks_after_every_composed_letter() -> None:
    composed = [chr(code) for code in range(0xC0, 0x2000) if len(unicodedata.normalize("NFD", chr(code))) > 1]
    marks = ["\u0301", "\u0323", "\u0316", "\u0345", "\u094d", "\u05b0", "\u0651"]
    texts = [letter + mark for letter in composed for mark in marks]
    same(texts)


def test_nulls_slices_blocks_and_nothing() -> None:
    texts = ["One  text.", None, "", " \t ", "x" * (BLOCK_BYTES + 5), "ONE text. "]
    array = pa.array(texts, pa.string())
    expected = [text_hash(text or "") for text in texts]
    assert text_hashes(array) == expected and expected[0] == expected[5]
    assert text_hashes(array.slice(2, 3)) == expected[2:5]
    assert text_hashes(pa.array([], pa.string())) == []


def test_lone_surrogates_stay() -> None:
    points, ends = nfkc(["a\ud800…", "", "½"])
    assert points.tolist() == [97, 0xD800, 46, 46, 46, 49, 0x2044, 50] and ends.tolist() == [5, 5, 8]


def test_what_the_tables_say() -> None:
    found = tables("NFC")
    assert chr(found.becomes[ord("A"), 0]) == "a" and normalise("ẞ") == "ss"
    assert [chr(one) for one in found.becomes[ord("ẞ")]] == ["s", "s", "\0"]
    assert (found.kind[slice(*LEADING)] == 5).all()
