"""The statistics against independent computations: dense eigenvalues, all pairs, scipy, closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics.pairwise import cosine_similarity

from datamask.report import statistics as s
from datamask.report.losses import _hypergeometric
from datamask.study import ablation, sweep


def unit(n: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("n,d", [(40, 8), (8, 40), (1, 5)])
def test_vendi_score_is_the_entropy_of_the_full_kernels_eigenvalues(n: int, d: int) -> None:
    features = unit(n, d)
    values = np.linalg.eigvalsh(features @ features.T / n)
    expected = math.exp(stats.entropy(values[values > 1e-12]))
    assert s.vendi_score(features) == pytest.approx(expected, rel=1e-5)
    assert s.spectrum(features).sum() == pytest.approx(1, rel=1e-5)


def test_vendi_score_counts_distinct_directions() -> None:
    assert s.vendi_score(np.repeat(np.eye(5), 7, axis=0)) == pytest.approx(5)
    assert s.vendi_score(np.tile(unit(1, 6), (9, 1))) == pytest.approx(1, abs=1e-4)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_effective_number_lies_between_one_and_the_groups(counts: list[int]) -> None:
    groups = sum(count > 0 for count in counts)
    value = s.effective_number(counts)
    assert value == 0 if groups == 0 else 1 - 1e-9 <= value <= groups + 1e-9


def test_effective_number_of_equal_groups_is_their_number() -> None:
    assert s.effective_number([3] * 12) == pytest.approx(12)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(0, 1000))
def test_nearest_similarity_is_the_maximum_over_all_other_rows(n: int, seed: int) -> None:
    features = unit(n, 6, seed)
    dense = cosine_similarity(features)
    np.fill_diagonal(dense, -1)
    rows = np.random.default_rng(seed).permutation(n)[: max(1, n // 2)]
    assert s.nearest_similarity(features, rows) == pytest.approx(dense.max(axis=1)[rows], abs=1e-5)


def test_nearest_similarity_across_blocks_never_finds_the_document_itself() -> None:
    features = unit(16_500, 4).astype(np.float16)  # more rows than a block
    rows = np.array([0, 16_383, 16_384, 16_499])
    dense = features[rows].astype(np.float32) @ features.astype(np.float32).T
    dense[np.arange(4), rows] = -1
    assert s.nearest_similarity(features, rows) == pytest.approx(dense.max(axis=1), abs=1e-6)


def test_near_duplicate_share_counts_both_of_a_pair() -> None:
    features = np.vstack([np.eye(8), np.eye(8)[:2]])
    assert s.near_duplicate_share(s.nearest_similarity(features)) == pytest.approx(4 / 10)


def test_mean_pairwise_cosine_is_the_mean_of_the_matrix() -> None:
    features = unit(30, 7)
    assert s.mean_pairwise_cosine(features) == pytest.approx(cosine_similarity(features).mean())


def test_rank_correlation_ignores_what_is_missing() -> None:
    a = np.array([1.0, 2, 3, np.nan, 5])
    assert s.rank_correlation(a, np.exp(a)) == pytest.approx(1)
    assert math.isnan(s.rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=3, max_size=30))
def test_rank_correlation_agrees_with_scipy(values: list[tuple[int, int]]) -> None:
    a, b = zip(*values, strict=True)
    if len({*a}) > 1 and len({*b}) > 1:
        assert s.rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3000))
def test_the_chance_of_so_many_agrees_with_scipy(total: int, marked: float, drawn: float, least: int) -> None:
    of, out_of = round(marked * total), max(1, round(drawn * total))
    least = max(min(least, of, out_of), of + out_of - total, 0)
    expected = stats.hypergeom.sf(least - 1, total, of, out_of)
    assert _hypergeometric(least, total, of, out_of) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 9))
def test_percentile_of_agrees_with_scipy(values: list[int], value: int) -> None:
    ordered = np.sort(np.array(values, dtype=float))
    assert s.percentile_of(value, ordered) == pytest.approx(stats.percentileofscore(values, value, kind="mean"))


def test_length_ratio_coverage_overlap() -> None:
    assert s.length_ratio([30, 60], [10, 20]) == 3
    assert math.isnan(s.length_ratio([], [1]))
    assert s.coverage(["a", "a", None], ["a", "b", None]) == 0.5
    assert sweep.overlap([1, 2, 3], [3, 4]) == 0.25
    assert sweep.overlap([], []) == 1


def test_interval_is_students() -> None:
    values = [0.2, 0.5, 0.3, 0.9]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    found = ablation.interval(values)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert str(ablation.interval([0.5])) == "0.5"


CIRCLE = np.linspace(0, 1, 101)


def test_knee_of_known_fronts() -> None:
    assert sweep.knee([0, 0.4, 0.8, 0.9, 1], [1, 0.9, 0.8, 0.4, 0]) == 2  # a corner
    assert CIRCLE[sweep.knee(CIRCLE, np.sqrt(1 - CIRCLE**2))] == pytest.approx(math.sqrt(0.5), abs=0.01)
    assert sweep.knee([0, 0.25, 0.5, 0.75, 1], [1, 0.75, 0.5, 0.25, 0]) == 2  # a straight line: its middle
    assert sweep.knee([1], [0]) == 0


@given(st.floats(-50, 0), st.floats(1, 5), st.floats(0.1, 1000), st.floats(0.1, 1000))
def test_neither_the_ends_nor_the_scales_move_the_knee(depth: float, reach: float, a: float, b: float) -> None:
    x, y = CIRCLE, np.sqrt(1 - CIRCLE**2)
    knee = sweep.knee(x, y)
    with_ends = [*x, reach], [*y, depth]  # top-quality can be far worse than random in diversity
    assert sweep.knee(*with_ends) == knee
    moved = sweep.knee(3 + a * x, -2 + b * y, reference=(3, -2))
    assert a * abs(x[moved] - x[knee]) <= a * 0.011


def test_without_a_point_better_than_random_in_both_the_knee_loses_least() -> None:
    assert sweep.knee([-0.5, -0.1, 0.9], [1, 0.4, -3]) == 1


def test_convex_bounds_lie_on_or_below_every_chord() -> None:
    x = [0, 0.2, 0.5, 0.9, 1]
    bounds = [1.0, 0.9, 0.95, 0.6, 1.0]
    tight = sweep.convex(x, bounds)
    assert tight == pytest.approx([1.0, 0.9, 0.9 - 0.3 * 3 / 7, 0.6, 1.0])
    for i in range(1, len(x) - 1):
        assert tight[i] <= bounds[i]
        assert tight[i] <= np.interp(x[i], [x[i - 1], x[i + 1]], [tight[i - 1], tight[i + 1]]) + 1e-12


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=8))
def test_a_convex_function_that_its_bounds_hold_is_held_by_the_tightened_ones(slack: list[float]) -> None:
    x = np.linspace(0, 1, len(slack))
    lines = [(1, 0), (0.7, 0.8), (0, 1)]
    value = np.max([t * a + (1 - t) * b for a, b in lines for t in [x]], axis=0)
    assert (np.array(sweep.convex(x.tolist(), (value + np.abs(slack)).tolist())) >= value - 1e-12).all()
