"""Samples laid out for who shares them, against numpy and plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamask.filter.duplicate_candidates import NEIGHBOURS, PairCodes, Samples, meetings, pairs_that_met
from datamask.filter.postings import (
    KEYS,
    WIDE,
    SeenDocuments,
    Shared,
    different,
    postings_of,
    sampled,
    shared_of,
)
from datamask.filter.signatures import COARSEST, sample_bound
from datamask.maps import partition_of, read_dealt, records_of, write_dealt


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=60), st.integers(1, 20))
def test_the_different_values_of_each_hash_are_counted(values: list[tuple[int, int]], often: int) -> None:
    hashes = np.array([first << 62 | last for last, first in values] * often, np.uint64)
    along = (np.arange(len(hashes)) * 7 % 13).astype(np.uint32)
    each, many = different(hashes, along)
    assert each.tolist() == np.unique(hashes).tolist()
    assert many.tolist() == [len(set(along[hashes == value].tolist())) for value in each]


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 5))
def test_hashes_by_document_keep_their_order(numbers: list[int], apart: int) -> None:
    documents, hashes = np.array(numbers, np.uint32) * apart + 3, np.arange(len(numbers), dtype=np.uint64)
    samples = Samples(records_of(WIDE, document=documents, hash=hashes), apart)
    each, bounds, found = samples._documents, samples._bounds, samples._hashes
    expected = {d: hashes[documents == d].tolist() for d in sorted(set(documents.tolist()))}
    got = {d: found[a:b].tolist() for d, (a, b) in zip(each.tolist(), bounds.tolist(), strict=True)}
    assert got == expected and list(got) == list(expected)


@pytest.mark.parametrize("kind", [np.dtype("<i8"), np.dtype([("a", "<u8"), ("b", "<u4")]), np.dtype([("a", "i1")])])
def test_records_are_dealt_by_part_in_their_order(kind: np.dtype, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    records = generator.integers(0, 255, 1000 * kind.itemsize, np.uint8).view(kind)
    part = generator.integers(0, 7, 1000, np.int32)
    part[part == 4] = 5  # an empty one
    write_dealt(str(tmp_path / "dealt"), records, part, 7)
    found, bounds = read_dealt(str(tmp_path / "dealt"), kind, 0, 7)
    assert found.tobytes() == records[np.argsort(part, kind="stable")].tobytes()
    assert bounds.tolist() == np.searchsorted(np.sort(part), np.arange(8)).tolist()


def test_postings_name_documents_keys_and_partitions_in_order() -> None:
    generator = np.random.default_rng(5)
    lengths = np.array([0, 3, KEYS + 4, 0, 1])
    hashes = generator.integers(0, 2**64, lengths.sum(), np.uint64)
    found = postings_of(lengths, hashes)
    rank = np.concatenate([np.arange(length) for length in lengths])
    assert (found["document"] == np.repeat(np.arange(5), lengths) * 2 + (rank < KEYS)).all()
    assert (found["hash"] == (hashes << np.uint64(32) | hashes >> np.uint64(32))).all()
    assert (np.diff(partition_of(np.sort(found["hash"]), 7)) >= 0).all()
    scales = sampled(lengths, hashes)
    for scale in range(COARSEST + 1):
        within = hashes <= sample_bound(np.array([scale]))[0]
        assert scales[:, scale].tolist() == [sum(part) for part in np.split(within, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize("beyond", [0, 2**40 - 400])
@pytest.mark.parametrize("seed", range(4))
def test_documents_meet_the_first_of_a_shingle_and_those_next_before_them(seed: int, beyond: int) -> None:
    generator, parts = np.random.default_rng(seed), 5 + beyond // 2**17
    sizes = [2, 3, NEIGHBOURS, NEIGHBOURS + 1, NEIGHBOURS + 2, 3 * NEIGHBOURS, 200]
    document = np.concatenate([generator.permutation(300)[:size] for size in sizes]) + beyond
    key = generator.random(len(document)) < 0.2
    key[: sizes[0]] = False
    shared = Shared(np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes), document, key)
    expected, begin = [], 0
    for size in sizes:
        for place in range(size):
            for other in range(place):
                near = other < NEIGHBOURS or place - other <= NEIGHBOURS
                if near and (key[begin + place] or key[begin + other]):
                    expected.append(sorted((document[begin + place], document[begin + other])))
        begin += size
    codes, part = meetings(shared, parts)
    found = [PairCodes(int(own), parts).ends(code) for code, own in zip(codes, part, strict=True)]
    assert sorted([int(one), int(other)] for one, other in found) == sorted(expected)
    assert part.tolist() == [one % parts for one, _ in found]
    again = [PairCodes(int(own), parts).of(*pair) for own, pair in zip(part, found, strict=True)]
    assert again == codes.tolist()
    nothing = Shared(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, bool))
    assert len(meetings(nothing, parts)[0]) == 0


def test_numbers_of_40_bits_keep_their_flags_and_what_is_known_of_them() -> None:
    last = 2**40 - 1
    found = np.array([(7, 2 * last), (7, 2 * last - 1), (7, 4), (9, 6)], WIDE)
    shared = shared_of(found, np.broadcast_to(np.int64(50), last + 1))
    assert shared.document.tolist() == [2, last - 1, last] and shared.key.tolist() == [False, True, False]
    pairs = PairCodes(last % 2**23, 2**23)
    codes = pairs.of(np.array([last, last]), np.array([last, last]))
    scale, sampled = np.broadcast_to(np.int8(0), last + 1), np.broadcast_to(np.uint16(9), (last + 1, 1))
    assert pairs.ends(pairs_that_met(codes, pairs, SeenDocuments(scale, sampled))) == (last, last)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_have_met_that_share_two_keys_or_one_where_there_is_no_room(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scale = generator.integers(0, 3, 20, np.int8)
    sampled = np.sort(generator.integers(0, 9, (20, COARSEST + 1), np.uint16), axis=1)[:, ::-1].copy()
    one, other = np.sort(np.array([generator.permutation(20)[:2] for _ in range(150)]), axis=1).T
    pairs = PairCodes(0, 1)
    codes = pairs.of(one, other)
    expected = []
    for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
        a, b = map(int, pairs.ends(code))
        both = max(scale[a], scale[b])
        if count > 1 or min(sampled[a, both], sampled[b, both]) < KEYS // 2:
            expected.append(int(code))
    assert pairs_that_met(codes, pairs, SeenDocuments(scale, sampled)).tolist() == expected
    assert len(pairs_that_met(codes[:0], pairs, SeenDocuments(scale, sampled))) == 0
