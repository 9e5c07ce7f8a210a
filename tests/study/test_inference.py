"""Intervals, p values and components against simulation, scipy and brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from datamask.errors import InputError
from datamask.study.coder import CodedItems
from datamask.study.inference import Trial, agreement, holm


def coded(name: str, bits: np.ndarray, size: int = 100) -> CodedItems:
    zeros = np.zeros(len(bits))
    return CodedItems(name, np.asarray(bits, dtype=float), np.full(len(bits), size), zeros, zeros.astype(np.int64))


def readings(generator, arms, pools=1, draws=8, items=60, pool_sd=0.0, draw_sd=1.0, item_sd=20.0, own=0.0):
    """arm -> pool -> draw -> target: bits = item + pool + arm's effect + arm × pool + draw, two targets."""
    item = {name: 200 + item_sd * generator.normal(size=items) for name in "ab"}
    common = pool_sd * generator.normal(size=pools)
    found = {}
    for arm, effect in arms.items():
        count = draws if arm == "random" else 1
        found[arm] = [
            [
                {
                    n: coded(n, item[n] + common[pool] + effect + shift + own * generator.normal(size=items))
                    for n in "ab"
                }
                for shift in draw_sd * generator.normal(size=count)
            ]
            for pool in range(pools)
        ]
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_all_subsets(p):
    """p adjusted = the greatest, over all subsets with the hypothesis, of the subset's Bonferroni p."""
    expected = []
    for i in range(len(p)):
        sets = [[j for j in range(len(p)) if mask >> j & 1] for mask in range(1 << len(p)) if mask >> i & 1]
        expected.append(max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets))
    assert holm(p) == pytest.approx(expected)


@pytest.mark.parametrize("pools,others", [(1, 0), (5, 0), (3, 0), (3, 5), (2, 3)])
def test_an_interval_holds_the_truth_as_often_as_it_says(pools, others):
    generator = np.random.default_rng(0)
    held = []
    for seed in range(100):
        more = {f"arm {number}": float(number) for number in range(others)}
        found = readings(generator, {"random": 0.0, "x": 2.0, **more}, pools=pools, pool_sd=2.0, own=4.0)
        contrast = Trial(found, rounds=300, seed=seed).contrast("x", "random")
        held.append(contrast.low <= 0.02 <= contrast.high)
    assert 0.91 <= np.mean(held) <= 1.0


def test_the_interval_is_not_so_wide_that_it_holds_everything():
    generator = np.random.default_rng(1)
    lost = [
        Trial(readings(generator, {"random": 0.0, "x": 5.0}, pools=5), rounds=400).contrast("x", "random").says
        for _ in range(20)
    ]
    assert lost.count("worse") == 20


def test_with_many_pools_and_items_that_agree_it_is_the_t_test_over_pools():
    generator = np.random.default_rng(2)
    found = readings(generator, {"random": 0.0, "x": 1.0}, pools=12, draws=1, own=0.0)
    contrast = Trial(found, rounds=8_000).contrast("x", "random")
    trial = Trial(found)
    differences = np.array([a[0] - b[0] for a, b in zip(trial.means("x"), trial.means("random"))])
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert contrast.low == pytest.approx(expected.low, abs=0.02 * (expected.high - expected.low))
    assert contrast.high == pytest.approx(expected.high, abs=0.02 * (expected.high - expected.low))
    assert contrast.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.15)


def test_the_residuals_are_those_of_least_squares():
    """Dummies of arms and pools for the arms, of pools for the reference's draws: the rest, and its freedom."""
    generator = np.random.default_rng(6)
    found = readings(generator, {"random": 0.0, "x": 1.0, "y": 2.0, "z": 0.5}, pools=3, draws=4, pool_sd=3.0)
    trial = Trial(found, rounds=10)
    squares, freedom = 0.0, 0
    for names in (["random"], ["x", "y", "z"]):
        cells = [(arm, p, v) for arm in names for p, draws in enumerate(trial.means(arm)) for v in draws]
        dummies = np.array([[arm == n for n in names] + [p == q for q in range(3)] for arm, p, _ in cells], float)
        values = np.array([v for _, _, v in cells])
        solution, _, rank, _ = np.linalg.lstsq(dummies, values, rcond=None)
        squares += float(((values - dummies @ solution) ** 2).sum())
        freedom += len(values) - int(rank)
    residuals, told = trial._residuals
    assert told == freedom == 9 + 4
    assert np.mean(residuals**2) == pytest.approx(squares / freedom)


def test_more_arms_make_an_interval_over_few_pools_narrower():
    generator = np.random.default_rng(7)
    arms = dict.fromkeys(("random", "x", "y", "z", "u", "v"), 0.0)
    wide, narrow = [], []
    for _ in range(10):
        found = readings(generator, arms, pools=3, draws=1, item_sd=5.0)
        alone = {name: found[name] for name in ("random", "x")}
        wide.append(Trial(alone, rounds=200).contrast("x", "random").half_width)
        narrow.append(Trial(found, rounds=200).contrast("x", "random").half_width)
    assert np.mean(narrow) < 0.7 * np.mean(wide)


def test_the_items_spread_is_scipys_bootstrap_of_the_same_mean():
    generator = np.random.default_rng(3)
    bits, size = generator.uniform(100, 300, 80), generator.integers(50, 150, 80)
    zeros = np.zeros(80)
    one = CodedItems("a", bits, size, zeros, zeros.astype(np.int64))
    found = {"random": [[{"a": one}, {"a": one}]], "x": [[{"a": one}]]}
    expected = stats.bootstrap(
        (bits, size), lambda b, s, axis=-1: b.sum(axis) / s.sum(axis), paired=True, n_resamples=5_000, random_state=4
    ).standard_error
    assert Trial(found, rounds=5_000).components().item == pytest.approx(expected, rel=0.06)


def test_components_are_those_of_the_simulation():
    generator = np.random.default_rng(5)
    found = [
        Trial(readings(generator, {"random": 0, "x": 0}, pools=30, pool_sd=3.0, draw_sd=1.0), rounds=50).components()
        for _ in range(10)
    ]
    assert np.mean([c.pool for c in found]) == pytest.approx(0.03, rel=0.15)
    assert np.mean([c.draw for c in found]) == pytest.approx(0.01, rel=0.1)
    assert np.mean([c.item for c in found]) == pytest.approx(0.2 / np.sqrt(60) / np.sqrt(2), rel=0.15)


def test_paired_draws_are_told_apart_where_unpaired_ones_are_not():
    generator = np.random.default_rng(6)
    found = readings(generator, {"random": 0.0, "x": 0.0}, draw_sd=5.0)
    better = {n: [[{t: coded(t, c.bits - 1.0) for t, c in draw.items()} for draw in found["random"][0]]] for n in "x"}
    trial = Trial({**found, **better})
    assert trial.contrast("x", "random", paired=True).says == "better"
    assert trial.contrast("x", "random").says == "not told apart"


def test_own_targets_are_in_no_mean():
    found = readings(np.random.default_rng(7), {"random": 0.0, "x": 0.0})
    spoiled = {arm: [[{**draw, "b": coded("b", draw["b"].bits * (9 if arm == "x" else 1))} for draw in p] for p in by]
               for arm, by in found.items()}  # fmt: skip
    assert Trial(spoiled, own=["b"]).contrast("x", "random").difference == pytest.approx(
        Trial(found, own=["b"]).contrast("x", "random").difference
    )
    assert Trial(spoiled, own=["b"]).contrast("x", "random").targets["b"] > 1


def test_refusals():
    found = readings(np.random.default_rng(8), {"random": 0.0, "x": 0.0}, draws=1)
    with pytest.raises(InputError, match=r"one arm \(random\) cannot be compared"):
        Trial({"random": found["random"]})
    with pytest.raises(InputError, match="no arm 'y'; there are: random, x"):
        Trial(found).contrast("y", "random")
    with pytest.raises(InputError, match="have no spread; give several pools"):
        Trial(found).contrast("x", "random")
    with pytest.raises(InputError, match="not read on the same pools"):
        Trial({**found, "x": found["x"] * 2})
    with pytest.raises(InputError, match="every target is the pool's own"):
        Trial(found, own=["a", "b"])


def test_agreement_is_kendalls_tau_counted_by_hand():
    for order in permutations(range(4)):
        first = dict(zip("wxyz", range(4)))
        second = dict(zip("wxyz", order))
        pairs = [(a, b) for a in "wxyz" for b in "wxyz" if a < b]
        expected = sum(np.sign((first[a] - first[b]) * (second[a] - second[b])) for a, b in pairs) / 6
        assert agreement(first, {**second, "other": 0}) == pytest.approx(expected)
    assert np.isnan(agreement({"a": 1, "b": 2}, {"a": 1, "b": 2}))
