"""Signatures come of one compiled loop; what they are is told by arrays here, one text at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from datamask.filter.held_texts import HeldTexts
from datamask.filter.signatures import COARSEST, SAMPLE, sample_bound, sign_texts
from datamask.text.letters import WINDOW
from tests.filter.array_forms import codes_of, surface, windows

LETTERS = "abcXYZ  ..,!\n\n\r\t12ßİſéñ中文字かなカ한국አማהשָנָيَّة\u0301\u00a0𠀀😀ꟿ"


def drawn(generator: np.random.Generator, size: int) -> str:
    return "".join(generator.choice(list(LETTERS), size))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_as_by_arrays(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = [0, 1, 3, 5, 11, 12, 13, 300, 700, 5000, 40_000, 0]
    texts = pa.array([drawn(generator, size) for size in generator.permutation(sizes)] + [None, "", "word " * 900])
    found = sign_texts(pa.array(np.arange(len(texts))), texts)
    codes, ends = codes_of(texts)
    assert found["wear"].to_pylist() == [surface(text or "").wear for text in texts.to_pylist()]
    made = windows(codes, ends)
    assert found["windows"].to_pylist() == made.count.tolist()
    for row, (first, count) in enumerate(zip(made.first, made.count, strict=True)):
        scale = int(np.clip(np.floor(np.log2(max(count, 1) / SAMPLE)), 0, COARSEST))
        hashes = made.wide(np.arange(first, first + count))
        assert found["scale"][row].as_py() == scale
        assert found["sample"][row].as_py() == np.unique(hashes[hashes <= sample_bound(np.array([scale]))]).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_texts_held_for_comparison_as_by_arrays(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lines = [
        "A line that ends as a sentence does, of over forty letters.",
        "Menu",
        "",
        "Another, as long, without its end",
    ]
    texts = [drawn(generator, size) for size in generator.permutation([0, 1, 3, 11, 12, 13, 300, 5000])]
    texts += ["\n".join(generator.choice(lines, 9)) for _ in range(6)] + [
        lines[0] + '"',
        "word " * 900,
        lines[0] + '")',
        "> " + lines[0],
    ]
    column = pa.array(texts, pa.large_string())
    held = HeldTexts(lambda documents: [(documents, column)], np.arange(len(texts)), np.zeros(len(texts), np.int64))
    held.hold(np.arange(len(texts)))
    codes, ends = codes_of(column)
    made = windows(codes, ends)
    for row, (first, count) in enumerate(zip(made.first.tolist(), made.count.tolist(), strict=True)):
        hashes = made.hashes[first : first + count]
        assert held[row].text == texts[row]
        assert held[row].shingles[held[row].numbers].tolist() == hashes.tolist()
        assert held[row].shingles.tolist() == np.unique(hashes).tolist()
        assert held[row].units.tolist() == made.units[first : first + count + WINDOW - 1 if count else first].tolist()
        assert held[row].surface._replace(digest=0) == surface(texts[row])


def test_of_a_slice() -> None:
    texts = pa.array(["One text of some length.", None, "Another: it is longer than the first one.", "a"])
    whole = sign_texts(pa.array(np.arange(4)), texts)
    for first in range(4):
        part = sign_texts(pa.array(np.arange(first, 4)), texts.slice(first))
        assert part["sample"].to_pylist() == whole["sample"].to_pylist()[first:]


@pytest.mark.parametrize("texts", [[], [None], ["", ""]])
def test_of_nothing(texts: list[str | None]) -> None:
    found = sign_texts(pa.array(np.arange(len(texts))), pa.array(texts, pa.string()))
    assert found.num_rows == len(texts) and sum(found["windows"].to_pylist()) == 0
