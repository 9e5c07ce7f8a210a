"""The coder: its bits against pyppmd's compressed sizes, its equality with and without fork, what it refuses."""

from __future__ import annotations

import numpy as np
import pyppmd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.errors import DatamaskError, InputError
from datamask.study import Item, Target, code_targets, cut_texts, mean_bits
from datamask.study.targets import BETWEEN

WORDS = "the cat sat on a mat while seven old dogs slept near some warm red stones by water".split()


def text(seed: int, words: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def target(name: str = "t", items: int = 30, seed: int = 0) -> Target:
    return Target(name, tuple(Item(text(seed + n, 20).encode(), text(seed + n + 99, 5).encode()) for n in range(items)))


def compressed(data: bytes) -> int:
    encoder = pyppmd.Ppmd7Encoder(6, 1 << 26)
    return len(encoder.encode(data)) + len(encoder.flush())


@pytest.mark.parametrize("size", [0, 1, 5_000, 400_000])
def test_bits_are_what_one_stream_of_choice_and_target_costs_more_than_the_choice(size):
    choice = text(1, 100_000).encode()[:size]
    asked = target()
    stream = b"".join(BETWEEN + item.whole for item in asked.items)
    expected = compressed(choice + stream) - compressed(choice)
    assert code_targets(choice, [asked])["t"].bits.sum() / 8 == pytest.approx(expected, abs=2 + (size == 0) * 5)


def test_a_target_costs_the_same_whatever_is_coded_beside_it_and_without_fork():
    choice = text(1, 20_000).encode()
    many = [target("a", seed=1), target("b", seed=50), target("c", seed=500)]
    alone, beside, slowly = (
        code_targets(choice, many[2:]),
        code_targets(choice, many),
        code_targets(choice, many, fork=False),
    )
    np.testing.assert_array_equal(alone["c"].bits, beside["c"].bits)
    for name in "abc":
        np.testing.assert_array_equal(beside[name].bits, slowly[name].bits)
        np.testing.assert_array_equal(beside[name].answer_bits, slowly[name].answer_bits)


def test_the_slower_way_is_taken_where_the_platform_has_no_fork(monkeypatch):
    choice, asked = text(1, 2_000).encode(), [target()]
    expected = code_targets(choice, asked)["t"].bits
    monkeypatch.delattr("os.fork")
    np.testing.assert_array_equal(code_targets(choice, asked)["t"].bits, expected)


def test_a_choice_that_holds_the_target_makes_it_cheap_and_noise_makes_it_dear():
    asked = target()
    like = b"\n".join(item.whole for item in asked.items) * 3
    noise = np.random.default_rng(0).integers(0, 256, len(like), dtype=np.uint8).tobytes()
    assert mean_bits(code_targets(like, [asked])) < 1 < 1.3 < mean_bits(code_targets(noise, [asked]))


def test_answers_are_part_of_the_whole_and_are_nan_in_plain_text():
    read = code_targets(b"", [target(), Target("plain", tuple(Item(text(n, 30).encode()) for n in range(9)))])
    assert (read["t"].answer_bits <= read["t"].bits).all() and read["t"].answer_bytes.sum() > 0
    assert np.isnan(read["plain"].answer_bits_per_byte) and read["plain"].bits_per_byte > 0
    assert mean_bits({"t": read["t"]}) == read["t"].bits_per_byte


def test_order_of_the_model_matters_and_memory_never_runs_out():
    noise = np.random.default_rng(0).integers(97, 123, 300_000, dtype=np.uint8).tobytes()  # what needs most memory
    asked = Target("t", (Item(noise[:2_000]),))
    assert code_targets(noise, [asked], order=16)["t"].bits_per_byte < 1  # remembered, not forgotten half-way


def test_refusals_name_what_is_wrong(monkeypatch):
    with pytest.raises(InputError, match="no targets"):
        code_targets(b"x", [])
    monkeypatch.setattr("datamask.study.coder._MOST_TEXT", 10)
    with pytest.raises(InputError, match="10 bytes of text at most"):
        code_targets(b"x" * 20, [target()])


def test_a_child_that_dies_is_an_error_not_a_result(monkeypatch):
    def dies(encoder, asked):
        raise MemoryError

    monkeypatch.setattr("datamask.study.coder._cost", dies)
    with pytest.raises(DatamaskError, match="process for target t ended with status 1"):
        code_targets(b"x", [target()], fork=True)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=50), min_size=1, max_size=20), st.integers(0, 3), st.data())
def test_cut_gives_exactly_the_bytes_asked_for_or_says_what_there_is(texts, seed, data):
    there = sum(len(BETWEEN) + len(text.encode("utf-8", "replace")) for text in texts)
    limit = data.draw(st.integers(0, there))
    assert len(cut_texts(texts, limit, seed)) == limit
    assert cut_texts(texts, there, seed).startswith(cut_texts(texts, limit, seed))
    with pytest.raises(InputError, match=f"holds {there:,} bytes, fewer than the {there + 1:,}"):
        cut_texts(texts, there + 1, seed)
