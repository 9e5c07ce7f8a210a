"""Pairs of documents that may be duplicates: those whose samples share enough, found without comparing all pairs.

Every document is looked up by its eight smallest sampled shingles in all samples, as MinHash does with bands (Broder
1997); pairs that meet are estimated on their whole samples. What many documents share is a template (a licence's
text, a notice, a site's navigation), and sharing it says little: the estimate counts apart what few groups of copies
share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from datamask.filter.postings import KEYS, Documents, Shared, partitions_of
from datamask.storage import storage_errors

NEIGHBOURS = 16  # of a shingle's documents, each is paired with the longest and with those next in length
FEW = 6  # groups of copies: a shingle in more of them is a template's
OWN = 0.5  # of what two texts share, so much must be theirs and not a template's, unless they are alike at STRONG
STRONG = 0.8  # estimated Jaccard from which two documents are copies, whatever they share (datatrove's MinHash)
# below this estimate no pair passes the verification: an estimate from 48 shingles is off by 0.14 once in a hundred,
# and of Chinese and Japanese less is asked (`verify.UNSPACED`)
JACCARD_SLACK = 0.2
CONTAINMENT_SLACK = 0.2


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidates: (P,) each. `one` is seen before `other`."""

    one: np.ndarray  # int64: numbers of documents
    other: np.ndarray
    own: np.ndarray  # float32: of what they share, the share that is theirs and not a template's

    def __len__(self) -> int:
        return len(self.one)


def find_pairs(
    folder: str, partitions: int, documents: Documents, jaccard: float, containment: float, more: np.ndarray
) -> Pairs:
    """The pairs that are worth reading.

    :param folder: of the postings.
    :param jaccard, containment: what the verification asks for, at least.
    :param more: (M, 2) int64: further pairs to be estimated, e.g. of near embeddings.
    """
    codes = _meetings(folder, partitions, documents)
    if len(more):
        codes = np.union1d(codes, _code(more.min(axis=1), more.max(axis=1)))
    one, other = _ends(codes)
    free = other >= documents.fixed  # two of an earlier release are none of our business
    one, other = one[free], other[free]
    scale = np.maximum(documents.scale[one], documents.scale[other])
    sizes = [documents.sampled[side, scale].astype(np.int64) for side in (one, other)]
    common, _ = _common(folder, partitions, documents, one, other, None)
    smaller = np.maximum(np.minimum(*sizes), 1)
    estimate = common / np.maximum(sizes[0] + sizes[1] - common, 1)
    groups = _groups(len(documents), one, other, estimate >= STRONG)
    # few sampled shingles say little: let those through
    slack = np.sqrt(48 / np.clip(smaller, 6, 48))
    strong = estimate >= STRONG - JACCARD_SLACK * slack
    near = strong | (estimate >= jaccard - JACCARD_SLACK * slack)
    near |= common / smaller >= containment - CONTAINMENT_SLACK * slack
    one, other, common, strong = one[near], other[near], common[near], strong[near]
    _, few = _common(folder, partitions, documents, one, other, groups)
    own = (few / np.maximum(common, 1)).astype(np.float32)
    worth = strong | (own >= OWN)
    return Pairs(one[worth], other[worth], own[worth])


def _code(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return one.astype(np.uint64) << np.uint64(32) | other.astype(np.uint64)


def _ends(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (codes >> np.uint64(32)).astype(np.int64), (codes & np.uint64(0xFFFF_FFFF)).astype(np.int64)


def _meetings(folder: str, partitions: int, documents: Documents) -> np.ndarray:
    """Codes of pairs, ascending, that share two keys, or one where the samples have room for few in common."""
    files = [Path(folder) / f"pairs-{number}" for number in range(partitions)]
    for shared in partitions_of(folder, partitions, documents.windows):
        found = [_code(*pair) for pair in _neighbours(shared)]
        codes = np.concatenate(found) if found else np.zeros(0, np.uint64)
        target = codes % np.uint64(partitions)  # a pair's meetings come together again
        with storage_errors(folder, "write"):
            for number, path in enumerate(files):
                with path.open("ab") as file:
                    file.write(codes[target == number].tobytes())
    kept = []
    for path in files:
        code, count = np.unique(np.fromfile(path, np.uint64), return_counts=True)
        once = np.flatnonzero(count < 2)
        one, other = _ends(code[once])
        scale = np.maximum(documents.scale[one], documents.scale[other])
        room = np.minimum(documents.sampled[one, scale], documents.sampled[other, scale])
        count[once[room < KEYS // 2]] = 2
        kept.append(code[count >= 2])
        path.unlink()
    return np.sort(np.concatenate(kept))


def _neighbours(shared: Shared) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(lower numbers, higher numbers) of the documents paired for each shingle that is a key of one of the two."""
    starts = shared.starts()
    sizes = np.diff(np.append(starts, len(shared.shingle)))
    keyed = np.repeat(np.logical_or.reduceat(shared.key, starts), sizes) if len(starts) else shared.key
    place = np.arange(len(shared.shingle)) - np.repeat(starts, sizes)
    start = np.repeat(starts, sizes)

    def pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with_key = shared.key[first] | shared.key[second]
        a, b = shared.document[first[with_key]], shared.document[second[with_key]]
        return np.minimum(a, b), np.maximum(a, b)

    for step in range(NEIGHBOURS):  # with the longest
        second = np.flatnonzero(keyed & (place > step))
        yield pair(start[second] + step, second)
    crowded = np.flatnonzero(keyed & (place > NEIGHBOURS))
    for step in range(1, NEIGHBOURS + 1):  # with those just longer
        second = crowded[place[crowded] - step >= NEIGHBOURS]
        yield pair(second - step, second)


def _common(
    folder: str,
    partitions: int,
    documents: Documents,
    one: np.ndarray,
    other: np.ndarray,
    groups: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """(sampled shingles that each pair has in common, those of them in few groups of copies): (P,) int64."""
    common = np.zeros(len(one), np.int64)
    few = np.zeros(len(one), np.int64)
    for shared in partitions_of(folder, partitions, documents.windows):
        if not len(shared.shingle):
            continue
        count = np.int64(shared.shingle[-1]) + 1
        rare = _in_few(shared, groups) if groups is not None else None
        order = np.argsort(shared.document, kind="stable")  # by document, then shingle
        held = shared.document[order] * count + shared.shingle[order]
        first = np.searchsorted(shared.document[order], np.arange(len(documents) + 1))
        mine = np.diff(first)
        swap = mine[one] > mine[other]  # the shingles of the one with fewer are looked up
        small, large = np.where(swap, other, one), np.where(swap, one, other)
        for begin, end in _blocks(mine[small]):
            lengths = mine[small[begin:end]]
            pair = np.repeat(np.arange(begin, end), lengths)
            at = np.arange(len(pair)) + np.repeat(first[small[begin:end]] - (np.cumsum(lengths) - lengths), lengths)
            wanted = large[pair] * count + held[at] % count
            place = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            hit = held[place] == wanted
            common[begin:end] += np.bincount(pair[hit] - begin, minlength=end - begin)
            if rare is not None:
                hit &= rare[held[at] % count]
                few[begin:end] += np.bincount(pair[hit] - begin, minlength=end - begin)
    return common, few


def _blocks(lengths: np.ndarray, room: int = 1 << 20) -> Iterator[tuple[int, int]]:
    """Runs of pairs with about `room` shingles to look up."""
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + room, side="right")))
        yield begin, end
        begin = end


def _in_few(shared: Shared, groups: np.ndarray) -> np.ndarray:
    """Whether each shingle is in at most FEW groups of copies."""
    group = groups[shared.document]
    order = np.lexsort((group, shared.shingle))
    shingle, group = shared.shingle[order], group[order]
    new = np.ones(len(shingle), bool)
    new[1:] = (shingle[1:] != shingle[:-1]) | (group[1:] != group[:-1])
    return np.bincount(shingle[new]) <= FEW


def _groups(count: int, one: np.ndarray, other: np.ndarray, joined: np.ndarray) -> np.ndarray:
    """(N,) int32: number of the group of each document, where the joined pairs are in one."""
    edges = coo_array((np.ones(int(joined.sum()), bool), (one[joined], other[joined])), shape=(count, count))
    return connected_components(edges, directed=False)[1]
