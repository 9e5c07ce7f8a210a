"""Texts held while pairs are decided: few at a time, and the same decisions however few."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamask.filter import held_texts
from datamask.filter.duplicate_candidates import CANDIDATE
from datamask.filter.held_texts import HeldTexts, windows_of_pairs
from datamask.filter.verify_pairs import DuplicateRules, decide
from datamask.maps import records_of
from tests.filter.array_forms import codes_of, windows
from tests.filter.test_stage import WORDS, noisy


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(13, 30)), max_size=40, unique=True),
    st.lists(st.integers(1, 9), min_size=31, max_size=31),
    st.integers(1, 60),
)
def test_every_pair_is_in_one_window_and_a_window_has_room(pairs, letters, room):
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    sizes = np.array(letters)
    found = list(windows_of_pairs(one, other, lambda documents: sizes[documents], room))
    assert sorted(np.concatenate([np.zeros(0, np.int64), *found]).tolist()) == list(range(len(pairs)))
    for places in found:
        held = sizes[np.union1d(one[places], other[places])].sum()
        assert len(places) and (held <= room or len(places) == 1)


def test_small_groups_are_read_once_whatever_their_order():
    order = np.random.default_rng(1).permutation(400)
    one, other = order[::2], order[1::2]
    found = windows_of_pairs(one, other, lambda documents: np.ones(len(documents), np.int64), 20)
    assert [len(places) for places in found] == [10] * 20


class Library:
    """Texts that are read by document, and how many letters were read."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        codes, ends = codes_of(pa.array(texts, pa.large_string()))
        self.letters = windows(codes, ends).count
        self.read = 0

    def __call__(self, documents: np.ndarray):
        self.read += int(self.letters[documents].sum())
        yield documents, pa.array([self.texts[document] for document in documents.tolist()], pa.large_string())


def chain(seed: int, count: int) -> tuple[list[str], np.ndarray]:
    """Documents of which each continues the one before; copies of some with words changed, cut, and put around."""
    draw = random.Random(seed)
    words = draw.choices(WORDS, k=10 * count + 100)
    texts = [" ".join(words[10 * n : 10 * n + 100]) for n in range(count)]
    for n in range(0, count, 3):
        texts.append(draw.choice([noisy(texts[n], 0.05, n), texts[n][: len(texts[n]) // 2], "Home. " + texts[n] * 2]))
    pairs = {(n, n + step) for n in range(count) for step in (1, 2, 9) if n + step < count}
    pairs |= {(n, count + n // 3) for n in range(0, count, 3)} | {(n + 1, count + n // 3) for n in range(0, count, 3)}
    one, other = np.array(sorted(pairs)).T
    own = np.array([draw.choice([0.0, 0.3, 0.7, 1.0]) for _ in one], np.float32)
    return texts, records_of(CANDIDATE, one=one, other=other, own=own)


@pytest.mark.parametrize("seed", range(3))
def test_a_group_that_hangs_together_is_decided_in_little_room_as_in_much(monkeypatch, seed):
    texts, pairs = chain(seed, 90)
    quality = dict(enumerate(np.random.default_rng(seed).normal(size=len(texts)).astype(np.float32)))
    found, read = [], []
    for room in (1 << 24, 6000):
        monkeypatch.setattr(held_texts, "HELD", room)
        library = Library(texts)
        held = HeldTexts(library, np.arange(len(texts)), library.letters)
        most = 0
        take = held.hold

        def hold(documents, library=library, take=take, room=room):
            nonlocal most
            take(documents)
            most = max(most, int(library.letters[np.unique(documents)].sum()))

        held.hold = hold
        found.append(decide(held, pairs, 5, quality, 1.0, DuplicateRules(0.5, 0.8)))
        read.append(library.read)
        assert most <= room
    assert found[0].tolist() == found[1].tolist() and len(found[0]) > 20
    assert read[1] < 5 * read[0]  # a text is read again only where the graph leads back to it
