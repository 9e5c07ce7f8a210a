"""What pairs connect, some pairs at a time, against all of them at once."""

from __future__ import annotations

import numpy as np
import pytest

from datamask.filter import duplicate_candidates as candidates
from datamask.filter.duplicate_candidates import (
    Components,
    PairedDocuments,
    groups_of_pairs,
    parts_of_groups,
    total_of_groups,
)


def pairs_of(seed: int, documents: int) -> tuple[np.ndarray, np.ndarray]:
    """A few pairs, or many; a chain; a star; none."""
    generator = np.random.default_rng(seed)
    both = [
        np.sort(generator.integers(0, documents, (documents // 3, 2)), axis=1),
        np.sort(generator.integers(0, documents, (2 * documents, 2)), axis=1),
        np.stack([np.arange(documents - 1), np.arange(1, documents)], axis=1)[::-1],
        np.stack([np.arange(documents - 1), np.full(documents - 1, documents - 1)], axis=1),
        np.zeros((0, 2), np.int64),
    ][seed % 5]
    both = both[both[:, 0] < both[:, 1]]
    return both[:, 0], both[:, 1]


@pytest.mark.parametrize("seed", range(10))
def test_documents_are_connected_whatever_pairs_come_first(seed):
    one, other = pairs_of(seed, 300)
    whole = groups_of_pairs(one, other)
    expected = np.arange(300)
    for number in range(int(whole.group.max(initial=-1)) + 1):
        members = whole.documents[whole.group == number]
        expected[members] = members.min()
    generator = np.random.default_rng(seed)
    for parts in (1, 4):
        found = Components(300)
        for some in np.array_split(generator.permutation(len(one)), parts):
            found.add(one[some], other[some])
        assert (found.lowest() == expected).all()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("room", [1, 50, 400, 10**6])
def test_a_group_is_in_one_part_and_parts_hold_the_room(seed, room):
    generator = np.random.default_rng([seed, 3])
    one, other = pairs_of(seed, 200)
    lengths = generator.integers(1, 90, 200)
    connected = Components(200)
    connected.add(one, other)
    lowest, part, first = connected.lowest(), np.zeros(200, np.int64), 0
    for some in np.array_split(np.arange(200), 3):
        total_of_groups(lowest, lengths[some], first, part)
        first += len(some)
    parts = parts_of_groups(lowest, part, room)
    assert set(part.tolist()) == set(range(parts))
    assert (part[one] == part[other]).all()
    for number in range(parts):
        groups = np.unique(lowest[part == number])
        held = np.array([lengths[lowest == group].sum() for group in groups])
        assert held[1:-1].sum() <= room  # a group that begins a part may reach into it, one that ends it beyond it


@pytest.mark.parametrize("documents", [0, 1, 63, 64, 65, 1000])
def test_paired_documents_are_numbered_among_themselves(documents: int, monkeypatch) -> None:
    generator = np.random.default_rng(documents)
    both = generator.integers(0, max(documents, 1), (documents // 4, 2))
    named, whole = np.unique(both), groups_of_pairs(*both.T)
    paired = PairedDocuments(documents, lambda: [both[::2], both[1::2]])
    lowest = [int(np.flatnonzero(whole.group == group)[0]) for group in whole.group]
    assert paired.lowest.tolist() == lowest
    monkeypatch.setattr(candidates, "BLOCK", 64)
    column = np.concatenate([*paired.spread(paired.lowest, np.arange, documents)])
    expected = np.arange(documents)
    expected[named] = documents + paired.lowest
    assert column.tolist() == expected.tolist()
    assert paired.count == len(named) and paired.places(named).tolist() == list(range(len(named)))
    for first in range(0, documents + 1, 37):
        last = min(first + 100, documents)
        assert paired.among(first, last).tolist() == np.isin(np.arange(first, last), named).tolist()
