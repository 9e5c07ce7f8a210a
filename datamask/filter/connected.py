"""Which documents pairs connect: by ranges of documents, so that whoever asks holds one range and its pairs, however
many documents there are.

    deal_pairs(url, one, other, documents)                  # maps, each of some pairs
    found = ConnectedDocuments(scratch, urls, documents)    # (documents in pairs, lowest each is connected with)
    for documents, lowest in found.by_range(): ...

The ranges are gone through twice, and speak to one another through files (time-forward processing: Chiang et al. 1995,
"External-memory graph algorithms", SODA). From the last to the first, the pairs whose higher document is in a range
connect some of its documents and lower ones; of each group the lowest goes on, in pairs with those of it that are in
lower ranges. From the first to the last, a range is told which document is the lowest of the groups that went on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from datamask.maps import deal_laid, gather, read_arrays, records_of, write_arrays, write_dealt
from datamask.text.letters import unique_sorted

RANGE = 1 << 22  # documents
MANY = 1 << 21  # pairs, from which what they connect stands for them
PAIR = np.dtype([("lower", "<i8"), ("higher", "<i8")])


@dataclass(frozen=True, eq=False)
class ConnectedGroups:
    """The documents of some pairs, and which of them are in one group."""

    documents: np.ndarray  # (G,) ascending
    group: np.ndarray  # (G,)

    def lowest(self) -> np.ndarray:
        """(G,) the lowest document of each one's group."""
        return self.documents[np.unique(self.group, return_index=True)[1]][self.group]


def groups_of_pairs(one: np.ndarray, other: np.ndarray) -> ConnectedGroups:
    """The documents of these pairs, those that pairs connect in one group; numbered as their lowest documents are."""
    documents, place = np.unique(np.concatenate([one, other]), return_inverse=True)
    edges = coo_array((np.ones(len(one), bool), (place[: len(one)], place[len(one) :])), shape=2 * documents.shape)
    group = connected_components(edges, directed=False)[1] if len(documents) else np.zeros(0, np.int32)
    return ConnectedGroups(documents, group)


def _connect(urls: Sequence[str], place: int) -> ConnectedGroups:
    """What a range's pairs connect. Of the lowest ranges there are many, most of them between the same documents."""
    held, count, kept = [np.zeros(0, PAIR)], 0, 0
    for url in urls:
        held.append(gather([url], PAIR, place))
        count += len(held[-1])
        if count > MANY + kept:
            found = groups_of_pairs(*_ends(held))
            held = [records_of(PAIR, lower=found.lowest(), higher=found.documents)]
            count = kept = len(found.documents)
    return groups_of_pairs(*_ends(held))


def _ends(pairs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([each["lower"] for each in pairs]), np.concatenate([each["higher"] for each in pairs])


def _ranges(documents: int) -> int:
    return max(-(-documents // RANGE), 1)


def deal_pairs(url: str, one: np.ndarray, other: np.ndarray, documents: int) -> None:
    """Publishes pairs of documents, (P,) numbers each, below `documents`, for `ConnectedDocuments`."""
    pairs = records_of(PAIR, lower=np.minimum(one, other), higher=np.maximum(one, other))
    write_dealt(url, pairs, pairs["higher"] // RANGE, _ranges(documents))


class ConnectedDocuments:
    """What some pairs connect.

    count: how many documents are in pairs.
    """

    def __init__(self, scratch: str, urls: Sequence[str], documents: int) -> None:
        """
        :param scratch: where names of files begin. :param urls: of `deal_pairs`. documents: that numbers are below.
        """
        self._scratch, self._documents, self._ranges = scratch, documents, _ranges(documents)
        urls, self.count = [*urls], 0
        for place in reversed(range(self._ranges)):
            groups, first = _connect(urls, place), place * RANGE
            found, lowest = groups.documents, groups.lowest()
            mine = found >= first
            urls.append(self._url("on", place))
            deal_pairs(urls[-1], lowest[~mine], found[~mine], documents)  # the lowest with itself
            far = unique_sorted(lowest[mine & (lowest < first)])
            write_dealt(self._url("asked", place), far, far // RANGE, self._ranges)
            write_arrays(self._url("own", place), documents=found[mine], lowest=lowest[mine])
            self.count += int(mine.sum())

    def _url(self, name: str, place: int) -> str:
        return f"{self._scratch}-{name}-{place}"

    def by_range(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(documents, lowest): of each range those in pairs, ascending, and the lowest that each is connected with."""
        told: list[str] = []
        for place in range(self._ranges):
            documents, lowest = read_arrays(self._url("own", place), "documents", "lowest")
            far, answers = lowest < place * RANGE, gather(told, PAIR, place)
            lowest[far] = answers["lower"][np.searchsorted(answers["higher"], lowest[far])]
            asked = [gather([self._url("asked", n)], np.int64, place) for n in range(place + 1, self._ranges)]
            wanted = np.concatenate([np.zeros(0, np.int64), *asked])
            answer = lowest[np.searchsorted(documents, wanted)]
            told.append(self._url("told", place))
            bounds = np.cumsum([0] * (place + 2) + [len(each) for each in asked])
            deal_laid(told[-1], records_of(PAIR, lower=answer, higher=wanted), bounds)
            yield documents, lowest

    def column(
        self, others: Callable[[int, int], np.ndarray], values: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> Iterator[np.ndarray]:
        """A column of all documents, a range at a time.

        :param others: the values of the documents from one to before another, as if none were in a pair.
        :param values: of documents in pairs, by the lowest that each is connected with; by default that one.
        """
        for place, (documents, lowest) in enumerate(self.by_range()):
            first = place * RANGE
            block = others(first, min(first + RANGE, self._documents))
            block[documents - first] = values(lowest)
            yield block
