"""Cuts of a corpus in blocks, against a sort of all of it."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

from datamask.config import Quota, Select, resolve
from datamask.selection import groups
from datamask.selection.groups import Filling, PerGroup, ascending, descending, find_cut, value_of
from datamask.selection.problem.limits import add_census, make_ends, make_limits, take_census
from datamask.selection.problem.pool import budget_of


@pytest.fixture(params=[0, 20, groups.SORTED])
def sorted_at_most(request, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits by histograms, some of them, and all but the first 16 by sorting."""
    monkeypatch.setattr(groups, "SORTED", request.param)


AWKWARD = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1e308, -1e308, np.inf, -np.inf, np.pi, 2.0**-1060])


def numbers(seed: int) -> np.ndarray:
    """Of all magnitudes, or few of them, with many ties."""
    generator = np.random.default_rng(seed)
    kinds = [
        generator.standard_normal(500),
        generator.integers(0, 4, 500).astype(float),
        1 + 1e-15 * generator.integers(0, 9, 500),
        generator.choice(AWKWARD, 500),
        np.zeros(500),
    ]
    return kinds[seed % len(kinds)]


def test_keys_are_in_the_order_of_the_numbers():
    keys = ascending(AWKWARD)
    assert (np.argsort(keys, kind="stable") == np.argsort(AWKWARD, kind="stable")).all()
    assert keys[0] == keys[1]
    assert (descending(AWKWARD)[np.argsort(AWKWARD)][:-1] >= descending(AWKWARD)[np.argsort(AWKWARD)][1:]).all()
    assert [value_of(~key) for key in keys] == AWKWARD.tolist()
    assert [value_of(key) for key in descending(AWKWARD)] == AWKWARD.tolist()


@pytest.mark.usefixtures("sorted_at_most")
@pytest.mark.parametrize("seed", range(15))
def test_the_cut_is_where_a_sort_has_spent_the_budget(seed):
    generator = np.random.default_rng([seed, 1])
    values, weights = numbers(seed), generator.integers(1, 50, 500).astype(float)
    ends = np.sort(generator.integers(0, 501, 3))

    def blocks():
        yield from zip(np.split(descending(values), ends), np.split(weights, ends), strict=True)

    order = np.argsort(-values, kind="stable")
    spent = np.cumsum(weights[order])
    for budget in [1.0, *generator.uniform(1, spent[-1], 5), spent[-1]]:
        cut = find_cut(PerGroup(blocks), budget)
        place = int(np.searchsorted(spent, budget))
        assert cut is not None and value_of(cut.key) == values[order[place]]
        assert cut.before == weights[values > values[order[place]]].sum()
    assert find_cut(PerGroup(blocks), spent[-1] + 1) is None


@pytest.mark.usefixtures("sorted_at_most")
@pytest.mark.parametrize("seed", range(15))
def test_a_filling_is_the_front_of_a_stable_sort(seed):
    generator = np.random.default_rng([seed, 2])
    values, weights = numbers(seed), generator.integers(0, 9, 500)
    ends = np.sort(generator.integers(0, 501, 4))

    def blocks():
        yield from zip(np.split(ascending(values), ends), np.split(weights, ends), strict=True)

    order = np.argsort(values, kind="stable")
    spent = np.cumsum(weights[order])
    for room in [0, 1, *generator.integers(0, spent[-1], 5).tolist(), int(spent[-1]), int(spent[-1]) + 5]:
        expected = np.zeros(500, bool)
        expected[order[: int(np.searchsorted(spent, room, side="right"))]] = True
        filling = Filling(PerGroup(blocks), room)
        assert (np.concatenate([filling.take(*block) for block in blocks()]) == expected).all()


# ---------------------------------------------------------------- limits of a corpus in groups

LIMITED = [
    {"quotas": [Quota(column="domain", maximum={"1": 0.3}, minimum={"2": 0.2})]},
    {"length_tolerance": 0.1},
    {"quotas": [Quota(column="domain", as_pool=0.05)], "length_tolerance": 0.2},
    {},
]


def test_a_census_of_groups_keeps_values_of_documents_without_tokens():
    settings = resolve(Select(select_ratio=None, budget_tokens=20, quotas=[{"column": "domain", "maximum": {"a": 1}}]))
    tokens, domain = np.array([0.0, 10, 30, 0]), np.array(["empty", "a", "b", "empty"])
    parts = [take_census(settings, tokens[part], {"domain": domain[part]}) for part in (slice(2), slice(2, 4))]
    assert add_census(*parts).groups == take_census(settings, tokens, {"domain": domain}).groups


@pytest.mark.parametrize("limits", LIMITED)
@pytest.mark.parametrize("budget", [{"budget_documents": 60}, {"budget_tokens": 2000}])
def test_a_census_of_groups_gives_the_limits_of_all(limits, budget):
    generator = np.random.default_rng(5)
    tokens, domain = generator.integers(5, 90, 400).astype(float), generator.integers(0, 4, 400).astype(str)
    settings = resolve(Select(select_ratio=None, **budget, **limits))
    unit, size = budget_of(settings, 400, (tokens.sum(), tokens.min()))
    weights = np.ones(400) if unit == "documents" else tokens
    whole = make_limits(settings, weights, size, tokens, {"domain": domain})
    parts = np.array_split(np.arange(400), [30, 31, 250])
    census = reduce(add_census, (take_census(settings, tokens[part], {"domain": domain[part]}) for part in parts))
    ends = make_ends(settings, size, census)
    chosen = generator.random(400) < 0.2
    spent = [ends.of(tokens[part], ends.codes({"domain": domain[part]})).spent(chosen[part]) for part in parts]
    together, alone = reduce(add, spent), whole.spent(chosen)
    assert together.weight == alone.weight and (together.sums == alone.sums).all()
    assert ends.unspent == whole.unspent and whole.broken(together) == whole.violations(chosen)
    assert (ends.low == whole.low).all() and (ends.high == whole.high).all()
    assert ends.names == whole.names
    if whole:
        multipliers = generator.standard_normal(len(whole.names))
        charge = ends.of(tokens, ends.codes({"domain": domain})).charge(multipliers)
        assert np.allclose(charge, whole.charge(multipliers), rtol=1e-12)
        assert ends.held(0.3, multipliers) == pytest.approx(whole.held(0.3, multipliers))
