"""Small pools, each against every selection there is (benchmarks/fuzz_select.py does it by the thousand)."""

from __future__ import annotations

import fuzz_select
import numpy as np
import pytest

QUICK = 20, 30, 100, 120, 150, 170, 190  # ten pools of these take a second; of others up to 40
FUZZED = [pytest.param(first, marks=pytest.mark.slow if first not in QUICK else []) for first in range(0, 240, 10)]


@pytest.mark.parametrize("first", FUZZED)
def test_small_pools(first):
    for seed in range(first, first + 10):
        rng = np.random.default_rng([seed, 1])
        found = fuzz_select.judge(fuzz_select.make(seed), rng if rng.random() < 0.2 else None)
        assert not found, (seed, found)


@pytest.mark.parametrize("seed", [pytest.param(1_000_155, marks=pytest.mark.slow), 1_000_182, 2_000_154, 7_007_605])
def test_found_before(seed):
    """Limits in tokens that few selections hold, or none, of documents of one token too; features in a narrow cone."""
    assert not fuzz_select.judge(fuzz_select.make(seed, covered=False))


@pytest.mark.parametrize("seed", [11_103_213, 11_103_999, 61_001_982])
def test_found_before_of_mixed_seeds(seed):
    """A bound below its own mask by rounding: a term whose scale is large; a Newton step where nothing is in part."""
    assert not fuzz_select.judge(fuzz_select.make(seed))


@pytest.mark.parametrize("seed", [9_000_029, 9_000_041, 9_100_011, 9_100_182, 9_100_393])
def test_found_before_of_coverage(seed):
    """Bounds of atoms in float32 below what is possible; budgets that repeats left unspent, or were told they could."""
    assert not fuzz_select.judge(fuzz_select.make(seed, covered=True))


def test_a_lie_is_seen():
    """The judge can fail: a bound that is too low, and a value that is not the definition's."""
    from dataclasses import replace

    instance = fuzz_select.make(4)
    honest = instance.run()
    assert not fuzz_select.judge(instance)
    low = replace(honest, upper_bound=honest.objective - 0.1, objective=honest.objective + 0.01)
    instance.run = lambda order=None: low  # type: ignore[method-assign]
    assert {problem.partition(":")[0] for problem in fuzz_select.judge(instance)} >= {"own bound", "value"}


@pytest.mark.parametrize("common", [0.3, 0.7, 0.95, 0.999])
@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF"])
def test_narrow_cones_end_below_their_bound(common, algorithm):
    """Real encoders' features lie in a cone: objective as defined, no mask above the bound."""
    rng = np.random.default_rng(0)
    plain = fuzz_select.unit(rng.standard_normal((1500, 48)))
    axis = fuzz_select.unit(rng.standard_normal((1, 48)))
    features = (common * axis + np.sqrt(1 - common**2) * plain).astype(np.float32)
    quality = rng.random((1500, 1))
    asked = {"algorithm": algorithm, "select_ratio": 0.1}
    instance = fuzz_select.Instance(features, quality, np.ones(1500), {}, asked)
    found = instance.run()
    truth = fuzz_select.Definition.__new__(fuzz_select.Definition)
    truth.instance, truth.x = instance, fuzz_select.unit(features.astype(np.float64))
    masks = np.array([found.selected, *(rng.permutation(found.selected) for _ in range(20))]).astype(float)
    values = truth.values(found.scales, masks)
    assert values[0] == pytest.approx(found.objective, rel=1e-6, abs=1e-6)
    assert values.max() <= found.upper_bound


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", "Facility", {"Pair_simi": 0.5, "DiSF": 0.5}], ids=str)
@pytest.mark.parametrize("limited", [False, True])
def test_another_order_gives_the_same_documents(algorithm, limited):
    """A pool of many ties: half of the documents alike but for their quality's last digits."""
    rng = np.random.default_rng(1)
    count = 700
    features = rng.standard_normal((count, 12))[rng.integers(count // 2, size=count)].astype(np.float16)
    quality, tokens = rng.integers(0, 3, (count, 1)).astype(float), rng.integers(1, 500, count).astype(float)
    groups = {"domain": rng.choice(list("abc"), count), "half": rng.choice(["x", "y"], count)}
    quotas = {"quotas": [{"column": "domain", "as_pool": 0.05}, {"column": "half", "as_pool": 0.05}]}
    asked = {"algorithm": algorithm, "select_ratio": 0.1, **(quotas if limited else {})}
    instance = fuzz_select.Instance(features, quality, tokens, groups, asked)
    found, order = instance.run(), rng.permutation(count)
    again = instance.run(order)
    assert fuzz_select.same_documents(instance, found.selected, order[again.selected])
    assert again.objective == found.objective and again.upper_bound == found.upper_bound
