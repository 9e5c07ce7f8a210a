"""Token ids: the same as the library's on whole texts, whatever the texts hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from datamask.models import tokens
from datamask.models.batching import Batcher, plan_batches
from datamask.models.tokens import DocumentTokenizer, cut_windows
from tests.encoders.conftest import fit_tokenizer, sentences

ODD = {
    "empty": "",
    "white space": " \n\t ",
    "emoji": "😀🎉👩‍👩‍👧‍👦🇩🇪" * 50,
    "lone surrogate": "before \ud800 after \udfff",
    "NUL": "a\x00b\x00\x00c",
    "mixed scripts": "English русский 中文字符 ภาษาไทย العربية हिन्दी 日本語 한국어 ελληνικά",
    "combining": "e\u0301" * 300 + "\u200b\u202e\ufeff",
    "one word": "x" * 20_000,
    "unassigned": "\U000e0001\U0010ffff\ufffe",
}


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return fit_tokenizer(sentences(300), 600)


def test_the_static_tokenizer_knows_every_text(trained: Tokenizer) -> None:
    tokenizer = DocumentTokenizer(trained)
    counts = tokenizer.count(list(ODD.values()))
    assert len(counts) == len(ODD)
    for (name, text), count in zip(ODD.items(), counts, strict=True):
        assert (count > 0) == bool(text.strip()), name
    assert trained.token_to_id("[UNK]") is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(blacklist_categories=[]), max_size=200), max_size=8))
def test_any_unicode_has_tokens_and_counts_do_not_depend_on_neighbours(trained: Tokenizer, texts: list[str]) -> None:
    tokenizer = DocumentTokenizer(trained)
    counts = tokenizer.count(texts)
    assert counts.tolist() == [int(tokenizer.count([text])[0]) for text in texts]
    ids, lengths = tokenizer.all(texts)
    assert lengths.tolist() == counts.tolist() and len(ids) == counts.sum()


def test_the_beginning_is_enough(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = DocumentTokenizer(trained)
    texts = [*sentences(200, longest=400), "", "   " * 5000 + "late words here", " ".join(sentences(300))]
    whole, lengths = tokenizer.all(texts)
    ends = np.cumsum(lengths)
    read = 0
    tokenise = tokenizer._ids

    def watch(parts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        nonlocal read
        read += sum(map(len, parts))
        return tokenise(parts)

    monkeypatch.setattr(tokenizer, "_ids", watch)
    ids, kept = tokenizer.first(texts, 20)
    assert kept.tolist() == np.minimum(lengths, 20).tolist()
    expected = np.concatenate([whole[end - n : end - n + min(n, 20)] for end, n in zip(ends, lengths, strict=True)])
    assert np.array_equal(ids, expected)
    assert read < sum(map(len, texts)), "long texts are not read to their end"


def test_blocks_bound_what_is_tokenised_at_once(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*sentences(50), "", *sentences(50)]
    expected = DocumentTokenizer(trained).count(texts)
    monkeypatch.setattr(tokens, "BLOCK_CHARACTERS", 100)
    for column in (texts, pa.array(["before", *texts, "after"])[1:-1]):  # a list, or as a batch of rows has it
        assert np.array_equal(DocumentTokenizer(trained).count(column), expected)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 70), max_size=60), st.integers(1, 300), st.integers(70, 80))
def test_batches_hold_each_window_once_within_the_budget(sizes: list[int], budget: int, limit: int) -> None:
    lengths = np.array(sizes, np.int64)
    found = list(plan_batches(lengths, budget, limit))
    rows = np.concatenate([np.zeros(0, np.int64), *[rows for rows, _ in found]])
    assert sorted(rows.tolist()) == list(range(len(sizes)))
    for batch, width in found:
        assert width >= lengths[batch].max() and width <= limit
        assert len(batch) * width <= budget or len(batch) == 1


@pytest.mark.parametrize("side", ["left", "right"])
def test_batches_are_what_the_library_makes(tokenizer: PreTrainedTokenizerFast, side: str) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, padding_side=side, pad_token="[PAD]", unk_token="[UNK]"
    )
    texts = sentences(40)
    batcher = Batcher(tokenizer, 24)
    seen = 0
    for rows, ids, mask in batcher.batches(batcher.windows(texts), 200):
        wanted = tokenizer(
            [texts[i] for i in rows], truncation=True, max_length=24, padding="longest", return_tensors="pt"
        )
        width = wanted["input_ids"].shape[1]
        part = slice(ids.shape[1] - width, None) if side == "left" else slice(0, width)
        assert (ids[:, part] == wanted["input_ids"]).all() and (mask[:, part] == wanted["attention_mask"]).all()
        assert mask.sum() == wanted["attention_mask"].sum()
        seen += len(rows)
    assert seen == len(texts)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(4, 12), st.integers(0, 3))
def test_windows_cover_every_token_once(sizes: list[int], room: int, prompt_size: int) -> None:
    lengths = np.array(sizes, np.int64)
    prompt = np.full(prompt_size, -1, np.int32)
    ids = np.arange(lengths.sum(), dtype=np.int32)
    windows = cut_windows(ids, lengths, room, prompt)
    assert windows.documents == len(sizes) and set(windows.owners.tolist()) == set(range(len(sizes)))
    assert (windows.lengths <= room).all() and (np.diff(windows.owners) >= 0).all()
    assert np.array_equal(windows.ids[windows.ids >= 0], ids)
    parts = np.split(windows.ids, windows.starts[1:]) if len(windows.lengths) else []
    for owner, part in zip(windows.owners, parts, strict=True):
        first = int(lengths[:owner].sum())
        assert all(first <= i < first + lengths[owner] for i in part if i >= 0)
