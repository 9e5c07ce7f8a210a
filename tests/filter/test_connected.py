"""What pairs connect, range by range, against all of them at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datamask.filter import connected
from datamask.filter.connected import ConnectedDocuments, deal_pairs, groups_of_pairs


def pairs_of(seed: int, documents: int) -> tuple[np.ndarray, np.ndarray]:
    """A few pairs, or many; chains up, and by chance; stars; rungs from end to end; none."""
    generator = np.random.default_rng(seed)
    row, mixed = np.arange(documents - 1), generator.permutation(documents)
    both = [
        generator.integers(0, documents, (documents // 3, 2)),
        generator.integers(0, documents, (2 * documents, 2)),
        np.stack([row, row + 1], axis=1)[::-1],
        np.stack([mixed[:-1], mixed[1:]], axis=1),
        np.stack([row, np.full(documents - 1, documents - 1)], axis=1),
        np.stack([np.full(documents - 1, 0), row + 1], axis=1),
        np.stack([row, documents - 1 - row], axis=1)[: documents // 2],
        np.zeros((0, 2), np.int64),
    ][seed % 8]
    both = both[both[:, 0] != both[:, 1]]
    return both[:, 0], both[:, 1]


def lowest_by_spreading(one: np.ndarray, other: np.ndarray, documents: int) -> np.ndarray:
    """(documents,) the lowest document that each is connected with: handed along the pairs until nothing changes."""
    found = np.arange(documents)
    while True:
        before = found.copy()
        np.minimum.at(found, one, found[other])
        np.minimum.at(found, other, found[one])
        if (found == before).all():
            return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("count", "room"), [(20, 1), (300, 37), (300, 150), (300, 299), (300, 300), (300, 10**6)])
def test_documents_are_connected_whatever_the_ranges_and_what_pairs_come_first(
    seed: int, count: int, room: int, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(connected, "RANGE", room)
    monkeypatch.setattr(connected, "MANY", 1 << seed)
    one, other = pairs_of(seed, count)
    expected, named = lowest_by_spreading(one, other, count), np.unique([one, other])
    urls = [str(tmp_path / f"pairs-{part}") for part in range(1 + seed % 4)]
    order = np.random.default_rng(seed).permutation(len(one))
    for url, some in zip(urls, np.array_split(order, len(urls)), strict=True):
        deal_pairs(url, one[some], other[some], count)
    found = ConnectedDocuments(str(tmp_path / "scratch"), urls, count)
    documents, lowest = (np.concatenate(each) for each in zip(*found.by_range(), strict=True))
    assert documents.tolist() == named.tolist() and found.count == len(named)
    assert lowest.tolist() == expected[named].tolist()
    column = np.concatenate([*found.column(lambda first, last: -np.arange(first, last), lambda lowest: lowest + 1)])
    alone = np.isin(np.arange(count), named, invert=True)
    assert column.tolist() == np.where(alone, -np.arange(count), expected + 1).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_numbered_as_their_lowest_documents_are(seed: int) -> None:
    one, other = pairs_of(seed, 50)
    found = groups_of_pairs(one, other)
    assert found.documents.tolist() == np.unique([one, other]).tolist()
    assert found.lowest().tolist() == lowest_by_spreading(one, other, 50)[found.documents].tolist()
    assert found.group.tolist() == np.unique(found.lowest(), return_inverse=True)[1].tolist()


def test_no_documents_are_in_no_pairs(tmp_path: Path) -> None:
    deal_pairs(str(tmp_path / "pairs"), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    found = ConnectedDocuments(str(tmp_path / "scratch"), [str(tmp_path / "pairs")], 0)
    assert found.count == 0 and np.concatenate([*found.column(np.arange)]).tolist() == []
