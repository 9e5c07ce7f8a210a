"""Samples that documents share, against sets."""

from __future__ import annotations

import numpy as np
import pytest

from datamask.filter import duplicate_candidates as candidates
from datamask.filter.duplicate_candidates import COMMON, CORPUS, FEW, Samples, most_groups, outside_templates
from datamask.filter.postings import WIDE, Shared, run_starts, shared_of


def postings(seed: int, documents: int, shingles: int) -> np.ndarray:
    """Each document holds some of few shingles, each once; document 3 none; by shingle, then in an order of chance."""
    generator = np.random.default_rng(seed)
    held = [(document, shingle) for document in range(documents) for shingle in range(shingles) if document != 3]
    chosen = [held[place] for place in generator.permutation(len(held))[: len(held) // 3]]
    found = np.empty(len(chosen), WIDE)
    found["document"] = [document for document, _ in chosen]
    values = np.random.default_rng(0).integers(0, 2**63, shingles, np.uint64) * np.uint64(2)
    found["hash"] = values[[shingle for _, shingle in chosen]]
    return found[np.argsort(found["hash"], kind="stable")]


def sets(found: np.ndarray) -> dict[int, set[int]]:
    return {int(d): set(found["hash"][found["document"] == d].tolist()) for d in np.unique(found["document"])}


@pytest.mark.parametrize("seed", range(6))
def test_what_pairs_have_in_common_is_what_sets_say(seed: int) -> None:
    found = postings(seed, 12, 40)
    held = sets(found)
    one, other = np.array([(a, b) for a in range(14) for b in range(14)]).T  # 12 and 13 are nobody's
    some = [found[np.isin(found["document"], np.arange(12)[which::2])] for which in (0, 1)]
    for first, second in ((found, found), (some[0], some[1])):
        samples, others = Samples(first), Samples.in_runs(second[np.argsort(second["document"], kind="stable")])
        common = samples.common(one, others, other)
        shared = samples.commons(one, others, other, common)
        for pair, (a, b) in enumerate(zip(one.tolist(), other.tolist(), strict=True)):
            mine, theirs = (sets(of).get(document, set()) for of, document in ((first, a), (second, b)))
            both = mine & theirs
            assert common[pair] == len(both)
            assert set(shared["hash"][shared["pair"] == pair].tolist()) == both
    asked = np.concatenate([np.arange(14), np.arange(14)[::-1]])
    given, ends = Samples(found).of(asked)
    for place, document in enumerate(asked.tolist()):
        own = given[ends[place] : ends[place + 1]]
        assert (own["document"] == document).all()
        assert set(own["hash"].tolist()) == held.get(document, set())
    assert len(Samples(found[:0]).of(np.arange(3))[0]) == len(Samples.in_runs(found[:0]).of(np.arange(3))[0]) == 0
    assert Samples(found[:0]).common(one, Samples(found), other).sum() == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [FEW, 12, 100])
def test_a_shingle_of_few_groups_or_of_few_alike_belongs_to_no_template(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "most_groups", lambda documents: most)
    documents = 12 + 12 * (seed % 3)
    found, generator = postings(seed, documents, 40), np.random.default_rng(seed)
    group = np.arange(documents)
    group[[5, 6]] = group[[1, 1]]
    ends = np.array([(a, b) for a in range(documents) for b in range(a) if generator.random() < 0.3]).T
    samples = Samples(found)
    common = samples.commons(ends[0], samples, ends[1], samples.common(ends[0], samples, ends[1]))
    few = outside_templates(common, found, group)
    for place, (value, _, one, other) in enumerate(common.tolist()):
        holders = {int(group[document]) for document in found["document"][found["hash"] == value]}
        mine = common[common["hash"] == value]
        families = []
        for end in (group[one], group[other]):
            pairs = [(group[a], group[b]) for a, b in zip(mine["one"], mine["other"], strict=True)]
            families.append(len({int(end), *(int(sum(pair) - end) for pair in pairs if end in pair)}))
        assert few[place] == (len(holders) <= most and max(families) <= FEW)
    assert len(outside_templates(common[:0], found[:0], group)) == 0
    assert common.dtype == COMMON


def test_the_bound_grows_as_documents_do_in_steps() -> None:
    assert [most_groups(documents) for documents in (0, 1, CORPUS, 10 * CORPUS)] == [FEW, FEW, FEW, 10 * FEW]
    assert most_groups(1_000_000) == most_groups(1_010_000) == FEW * 1_000_000 // CORPUS
    bounds = [most_groups(documents) for documents in range(1, 2_000_000, 997)]
    assert bounds == sorted(bounds)


def test_a_partition_keeps_what_is_seen_twice_longest_document_first() -> None:
    found = postings(1, 12, 40)
    found = np.concatenate([found, np.array([(9, 2)], WIDE)])  # seen once
    found["document"] = found["document"] * 2 + (found["hash"] % 7 == 0)
    windows = np.array([5, 9, 9, 1, 7, 7, 7, 2, 3, 9, 1, 4])
    shared: Shared = shared_of(found, windows)
    expected = []
    for value in np.unique(found["hash"]).tolist():
        holders = [(int(p["document"]) >> 1, bool(p["document"] & 1)) for p in found if p["hash"] == value]
        if len(holders) > 1:
            expected += [(value, *each) for each in sorted(holders, key=lambda each: (-windows[each[0]], each[0]))]
    assert list(zip(shared.hash.tolist(), shared.document.tolist(), shared.key.tolist(), strict=True)) == expected
    starts = run_starts(shared.hash)
    assert (np.unique(shared.hash, return_index=True)[1] == starts).all()
    assert len(shared_of(found[:0], windows).hash) == 0
