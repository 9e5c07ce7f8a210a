"""The relaxation and its certificate against exhaustive search; the solvers' order; budgets, quotas and lengths."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datamask import select
from datamask.config import Select
from datamask.errors import ConfigError
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.pool import Pool
from datamask.selection.solvers import relaxation

METRICS = ["pairwise", "DiSF", "Facility"]


def clustered(seed: int, count: int, width: int, groups: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    label = generator.integers(0, groups, count)
    features = 1.5 * generator.standard_normal((groups, width))[label] + generator.standard_normal((count, width))
    return features.astype(np.float32), generator.random(count) + 0.3 * label, label


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("lamb", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_no_selection_exceeds_the_bound(metric, lamb, seed):
    features, quality, _ = clustered(seed, 12, 6)
    if seed == 3:  # adversarial: pairs of equal documents, one of the pair far better
        features[6:] = features[:6]
        quality[6:] = 10 * quality[:6]
    problem = make_problem(Pool(features, quality), Select(algorithm=metric, lamb=lamb, budget_documents=4))
    masks = torch.zeros(495, 12, dtype=torch.bool)
    for row, chosen in enumerate(combinations(range(12), 4)):
        masks[row, list(chosen)] = True
    best = float(problem.objective.values(masks).max())
    found = select(features, quality, algorithm=metric, lamb=lamb, budget_documents=4)
    assert found.objective <= best + 1e-9
    assert best <= found.upper_bound + 1e-6
    assert found.objective >= best - 0.1 * (1 + abs(best))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("lamb", [0.1, 0.5, 0.9])
def test_above_the_baselines_and_near_the_bound(metric, lamb):
    features, quality, _ = clustered(1, 600 if metric == "Facility" else 1500, 16)
    found, *others = (
        select(features, quality, algorithm=metric, lamb=lamb, solver=solver)
        for solver in ("relaxation", "direct", "top-quality", "random")
    )
    assert found.objective >= max(other.objective for other in others) - 1e-12
    assert found.gap < (0.1 if metric == "Facility" else 0.01)
    assert found.upper_bound >= found.objective - 1e-7


def test_same_seed_same_mask_and_any_input_type():
    features, quality, _ = clustered(2, 300, 8)
    first = select(features, quality)
    again = select(torch.from_numpy(features), torch.from_numpy(quality))
    assert np.array_equal(first.selected, again.selected)
    scaled = select(features.astype(np.float64) * 7, quality)
    assert (scaled.selected != first.selected).sum() <= 4


def test_several_metrics_and_quality_columns():
    features, quality, _ = clustered(3, 400, 8)
    both = np.stack([quality, -quality], axis=1)
    found = select(features, both, quality_weights=[3, 1], algorithm={"DiSF": 1, "Pair_simi": 0.5})
    assert set(found.terms) == {"quality_0", "quality_1", "disf", "pairwise"}
    weights = {"quality_0": 0.375, "quality_1": 0.125, "disf": 1 / 3, "pairwise": 1 / 6}
    assert found.objective == pytest.approx(sum(weights[name] * value for name, value in found.terms.items()), rel=1e-9)
    assert found.objective <= found.upper_bound + 1e-7


@pytest.mark.parametrize("metric", METRICS)
def test_token_budget_holds_to_one_document(metric):
    features, quality, _ = clustered(4, 300, 8)
    tokens = np.random.default_rng(0).integers(20, 3000, 300)
    free = select(features, quality, algorithm=metric, budget_documents=30)
    budget = 24_000
    assert abs(tokens[free.selected].sum() - budget) > tokens.max()  # so the budget is what makes the difference
    for solver in ("relaxation", "top-quality", "random", "direct"):
        found = select(features, quality, tokens=tokens, algorithm=metric, budget_tokens=budget, solver=solver)
        spent = tokens[found.selected].sum()
        assert budget - tokens.max() < spent <= budget
        if found.upper_bound is not None:
            assert found.objective <= found.upper_bound + 1e-7


@pytest.mark.parametrize("solver", ["relaxation", "top-quality", "random", "direct"])
def test_quotas_hold(solver):
    features, quality, label = clustered(5, 600, 8)
    domain = np.array([f"d{value}" for value in label])
    groups = {"domain": domain}
    quota = {"column": "domain", "minimum": {"d0": 0.4}, "maximum": {"d4": 0.1}}
    free = select(features, quality, solver=solver, select_ratio=0.2)
    assert (domain[free.selected] == "d0").sum() < 48
    held = select(features, quality, groups=groups, quotas=[quota], solver=solver, select_ratio=0.2)
    assert held.selected.sum() == 120
    assert (domain[held.selected] == "d0").sum() >= 48
    assert (domain[held.selected] == "d4").sum() <= 12
    if held.upper_bound is not None:
        assert held.objective <= held.upper_bound + 1e-7
        assert held.gap < 0.1
    same = select(
        features, quality, groups=groups, quotas=[{"column": "domain", "as_pool": 0.0}], solver=solver, select_ratio=0.2
    )
    for name in set(domain):
        assert abs((domain[same.selected] == name).sum() - 120 * (domain == name).mean()) <= 1


@pytest.mark.parametrize("solver", ["relaxation", "top-quality"])
def test_two_columns_of_quotas_and_tokens(solver):
    features, quality, label = clustered(6, 600, 8)
    generator = np.random.default_rng(1)
    groups = {
        "domain": [f"d{value}" for value in label],
        "language": generator.choice(["en", "de", "sw"], 600, p=[0.8, 0.15, 0.05]),
    }
    quotas = [{"column": "domain", "maximum": {"d4": 0.15}}, {"column": "language", "minimum": {"sw": 0.1, "de": 0.3}}]
    found = select(features, quality, groups=groups, quotas=quotas, solver=solver, budget_documents=100)
    language = groups["language"][found.selected]
    assert found.selected.sum() == 100
    assert (language == "sw").sum() >= 10 and (language == "de").sum() >= 30
    assert (np.array(groups["domain"])[found.selected] == "d4").sum() <= 15
    tokens = generator.integers(50, 900, 600)
    found = select(
        features, quality, tokens=tokens, groups=groups, quotas=quotas[:1], solver=solver, budget_tokens=50_000
    )
    share = tokens[found.selected & (label == 4)].sum()
    assert share <= 0.15 * 50_000 + tokens.max()


@pytest.mark.parametrize("solver", ["relaxation", "top-quality", "random"])
def test_length_bound_holds(solver):
    features, quality, _ = clustered(7, 800, 8)
    tokens = np.random.default_rng(2).integers(20, 2000, 800)
    quality = quality + tokens / 1000  # a scorer that prefers long documents
    asked = {"tokens": tokens, "algorithm": "pairwise", "select_ratio": 0.1}
    free = select(features, quality, solver="relaxation", **asked)
    assert tokens[free.selected].mean() > 1.1 * tokens.mean()
    found = select(features, quality, solver=solver, length_tolerance=0.05, **asked)
    assert found.selected.sum() == 80
    assert abs(tokens[found.selected].mean() / tokens.mean() - 1) <= 0.05 + 2000 / 80 / tokens.mean()
    if found.upper_bound is not None:
        assert found.objective <= found.upper_bound + 1e-7


@hypothesis_settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(3, 40), limited=st.booleans(), tokens=st.booleans())
def test_projection_and_response_are_optimal(seed, count, limited, tokens):
    generator = np.random.default_rng(seed)
    values = {"tokens": generator.integers(1, 50, count)} if tokens else {}
    groups = {"g": generator.choice(list("ab"), count)}
    quotas = [{"column": "g", "as_pool": 0.3}] if limited else []
    budget = (
        {"budget_tokens": int(values["tokens"].sum() * 0.6)} if tokens else {"budget_documents": max(1, count // 2)}
    )
    pool = Pool(generator.standard_normal((count, 3)), generator.random(count), groups=groups, **values)
    problem = make_problem(pool, Select(select_ratio=None, quotas=quotas, **budget))
    feasible = Feasible(problem.limits)
    z = torch.from_numpy(generator.standard_normal(count) * 2)
    p = feasible.project(z)
    assert float(feasible.weights @ p) == pytest.approx(problem.size, rel=1e-6)
    price = torch.from_numpy(generator.standard_normal(count))
    best, bound = feasible.respond(price)
    value = float((feasible.weights * price) @ best)
    assert value <= bound + 1e-6 * (1 + abs(bound))
    unspent = float(feasible.weights.max()) if tokens else 0.0  # a budget in tokens is spent until nothing more fits
    assert bound <= value + 0.02 * float(feasible.weights.sum()) + 2 * unspent * float(price.abs().max())
    # no feasible point is nearer to z, or has a greater response, than the ones found
    other = feasible.project(torch.from_numpy(generator.standard_normal(count)))
    distance = lambda point: float(feasible.weights @ (point - z).square())  # noqa: E731
    assert distance(p) <= distance(other) + 1e-4 * (1 + distance(other))
    assert float((feasible.weights * price) @ other) <= bound + 1e-6 * (1 + abs(bound))


def test_facility_location_beside_another_metric_is_refused():
    features, quality, _ = clustered(0, 40, 16, 6)
    asked = {"algorithm": {"Facility": 0.5, "Pair_simi": 0.5}, "select_ratio": 0.2}
    with pytest.raises(
        ConfigError, match="relaxation cannot hold metrics facility and pairwise together; these can: policy-gradient"
    ):
        select(features, quality, **asked)
    assert select(features, quality, solver="policy-gradient", n_epochs=5, **asked).selected.sum() == 8


@pytest.mark.parametrize("seed", range(6))
def test_prices_are_those_of_the_selection_that_is_returned(seed, monkeypatch):
    """Greedy's where greedy's is the better one: the gradient at the mask, computed here once more."""
    swapped, first = relaxation._or_greedy, torch.arange(40) < 4

    def worse(given, terms, draft):
        return swapped(given, terms, replace(draft, selected=first))

    if seed % 2:
        monkeypatch.setattr(relaxation, "_or_greedy", worse)
    features, quality, _ = clustered(seed, 40, 16, 6)
    given = make_problem(Pool(features, quality), Select(algorithm="DiSF", budget_documents=4, lamb=0.2))
    chosen = solve_problem(given)
    assert not np.array_equal(chosen.selected, first.numpy())
    (term,) = given.objective.diversity
    z = term.metric.prepare(given.pool.rows(slice(None), torch.float64)).numpy()
    kernel = (z @ z.T) ** 2 - z**2 @ (z**2).T
    gradient = given.objective.linear.numpy() / given.size
    gradient = gradient - 2 * term.scale * term.metric.unit / given.size**2 * kernel @ chosen.selected
    assert chosen.price == pytest.approx(gradient, rel=1e-3, abs=1e-4)
