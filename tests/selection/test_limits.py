"""Budgets, quotas and length bounds hold to one document, with every solver that claims them; and are not ignored."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from datamask import select
from datamask.errors import ConfigError, DatamaskError
from datamask.selection.paper import baselines
from datamask.selection.problem.limits import TOLERANCE
from datamask.selection.solvers import SOLVERS, solver_class

COUNT = 300
HOLDS_ALL = [name for name in SOLVERS if {"tokens", "quotas", "length"} <= solver_class(name).holds]
GENERATOR = np.random.default_rng(0)
LABEL = GENERATOR.choice(5, COUNT, p=[0.08, 0.12, 0.2, 0.3, 0.3])
FEATURES = 1.5 * GENERATOR.standard_normal((5, 8))[LABEL] + GENERATOR.standard_normal((COUNT, 8))
TOKENS = np.round(np.exp(GENERATOR.normal(5.5, 0.8, COUNT))).astype(int)
QUALITY = GENERATOR.random(COUNT) + 0.2 * LABEL + 0.3 * np.log(TOKENS / TOKENS.mean())  # long ones seem better
DOMAIN = np.array([f"d{value}" for value in LABEL])
LANGUAGE = GENERATOR.choice(["en", "de", "sw"], COUNT, p=[0.8, 0.15, 0.05])
POOL = {"tokens": TOKENS, "groups": {"domain": DOMAIN, "language": LANGUAGE}}


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the random selections from which `direct` scores is mended to the limits, a quarter of a second each."""
    monkeypatch.setattr(baselines, "TRIALS", 8)


def chosen(solver: str, **asked: object) -> np.ndarray:
    found = select(FEATURES, QUALITY, **POOL, solver=solver, **{"n_epochs": 30, **asked})
    if found.upper_bound is not None:
        assert found.objective <= found.upper_bound + 1e-7
    return found.selected


@pytest.mark.parametrize("solver", SOLVERS)
def test_ratio_and_documents_to_the_document(solver):
    assert chosen(solver, select_ratio=0.1).sum() == 30
    assert chosen(solver, select_ratio=0.1112).sum() == 33
    assert chosen(solver, budget_documents=77).sum() == 77


@pytest.mark.parametrize("solver", HOLDS_ALL)
@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", "Facility"])
def test_tokens_to_the_document(solver, algorithm):
    budget = 12_345
    mask = chosen(solver, algorithm=algorithm, budget_tokens=budget)
    rest = TOKENS[~mask]
    assert budget - TOKENS[mask].sum() >= 0
    assert budget - TOKENS[mask].sum() < TOKENS.max() and mask.sum() != round(budget / TOKENS.mean())
    assert budget - TOKENS[mask].sum() < max(rest.min(), TOKENS[mask].max())


# what follows quality or chance follows no metric; gradients of Facility go through every pair for each multiplier
SHARES = [
    pytest.param(
        *case,
        marks=[pytest.mark.slow] * ("Pair_simi" not in case and case != (False, "relaxation", "Facility")),
    )
    for case in product((False, True), HOLDS_ALL, ("Pair_simi", "DiSF", "Facility"))
]


@pytest.mark.parametrize(("tokens", "solver", "algorithm"), SHARES)
def test_shares_of_a_column(tokens, solver, algorithm):
    budget = {"budget_tokens": 20_000} if tokens else {"budget_documents": 60}
    size, weight, one = (20_000, TOKENS, TOKENS.max()) if tokens else (60, np.ones(COUNT), 0)

    def shares(mask: np.ndarray) -> dict[str, float]:
        return {name: float(weight[mask & (DOMAIN == name)].sum()) for name in sorted(set(DOMAIN))}

    free = shares(chosen(solver, algorithm=algorithm, **budget))
    for quota, name, low, high in [
        ({"minimum": {"d0": 0.35}}, "d0", 0.35, 1),
        ({"maximum": {"d4": 0.02}}, "d4", 0, 0.02),
    ]:
        assert not low * size - one <= free[name] <= high * size + one  # ignored, the quota is missed
        held = shares(chosen(solver, algorithm=algorithm, quotas=[{"column": "domain", **quota}], **budget))
        assert low * size - one <= held[name] <= high * size + one
        assert size - one <= sum(held.values()) <= size
    asked = {name: float(weight[DOMAIN == name].sum() / weight.sum()) * size for name in free}
    assert solver == "random" or tokens or any(abs(free[name] - asked[name]) > max(one, 1) for name in free)
    held = shares(chosen(solver, algorithm=algorithm, quotas=[{"column": "domain", "as_pool": 0.0}], **budget))
    assert all(abs(held[name] - asked[name]) <= max(one, 1) for name in held)
    near = shares(chosen(solver, algorithm=algorithm, quotas=[{"column": "domain", "as_pool": 0.05}], **budget))
    assert all(abs(near[name] - asked[name]) <= 0.05 * size + max(one, 1) for name in near)


@pytest.mark.parametrize("solver", HOLDS_ALL)
def test_two_columns_and_length_at_once(solver):
    quotas = [
        {"column": "domain", "maximum": {"d4": 0.1, "d3": 0.3}},
        {"column": "language", "minimum": {"sw": 0.15, "de": 0.25}},
    ]
    mask = chosen(solver, quotas=quotas, length_tolerance=0.05, budget_documents=80)
    assert mask.sum() == 80
    assert (DOMAIN[mask] == "d4").sum() <= 8 and (DOMAIN[mask] == "d3").sum() <= 24
    assert (LANGUAGE[mask] == "sw").sum() >= 12 and (LANGUAGE[mask] == "de").sum() >= 20
    assert abs(TOKENS[mask].sum() - 80 * TOKENS.mean()) <= 0.05 * 80 * TOKENS.mean() + TOKENS.max()


@pytest.mark.parametrize("solver", HOLDS_ALL)
@pytest.mark.parametrize(
    ("algorithm", "tokens"),
    [
        ("Pair_simi", False),
        ("Facility", True),
        *(
            pytest.param(algorithm, tokens, marks=pytest.mark.slow)
            for algorithm, tokens in [("Pair_simi", True), ("DiSF", False), ("DiSF", True), ("Facility", False)]
        ),
    ],
)
def test_length(solver, algorithm, tokens):
    """The mean length of what is selected, to one document, within 5 % of the pool's."""
    budget = {"budget_tokens": 30_000} if tokens else {"budget_documents": 100}
    asked = TOKENS.mean()

    def within(mask: np.ndarray) -> bool:
        one = TOKENS.max() / mask.sum() if not tokens else asked / mask.sum()
        return abs(TOKENS[mask].mean() - asked) <= 0.05 * asked + one

    if solver in ("relaxation", "top-quality"):
        favoured = {"lamb": 0.9}
        assert not within(chosen(solver, algorithm=algorithm, **budget, **favoured))
    assert within(chosen(solver, algorithm=algorithm, length_tolerance=0.05, lamb=0.9, **budget))


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in HOLDS_ALL])
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"budget_tokens": 9000}, "a budget in tokens"),
        ({"quotas": [{"column": "domain", "as_pool": 0.1}]}, "quotas"),
        ({"length_tolerance": 0.1}, "length_tolerance"),
    ],
)
def test_the_others_refuse(solver, asked, says):
    with pytest.raises(ConfigError, match=f"solver {solver} cannot hold {says}; these can: relaxation"):
        chosen(solver, **asked)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["DiSF", "Pair_simi"])
def test_two_of_forty_thousand(algorithm):
    generator = np.random.default_rng(0)
    features, quality = generator.standard_normal((40_000, 3)).astype(np.float32), generator.random(40_000)
    found = select(features, quality, algorithm=algorithm, budget_documents=2)
    assert found.selected.sum() == 2 and found.objective <= found.upper_bound


def test_a_selection_of_nothing_is_refused():
    """One token, and of the only group with a document that short at most 0.6 of it: nothing may be taken."""
    features = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    asked = {"budget_tokens": 1, "quotas": [{"column": "domain", "maximum": {"c": 0.6}}]}
    with pytest.raises(DatamaskError, match="not one document|limit"):
        select(features, np.arange(4.0), tokens=[9, 2, 6, 1], groups={"domain": np.array(list("cccc"))}, **asked)


@pytest.mark.parametrize("limit", [{"length_tolerance": 0.05}, {"quotas": [{"column": "half", "as_pool": 0.1}]}])
def test_under_limits_a_budget_in_tokens_is_spent(limit: dict[str, object]) -> None:
    """What limits let a budget leave is worth more than what reduced prices say of it."""
    generator = np.random.default_rng(2)
    tokens = np.round(np.exp(generator.normal(6, 1, 2000)))
    features, quality = generator.standard_normal((2000, 8)), generator.random(2000)
    groups = {"half": np.where(quality > 0.5, "a", "b")}
    found = select(features, quality, tokens=tokens, token_ratio=0.1, lamb=1.0, groups=groups, **limit)
    assert tokens[found.selected].sum() > (1 - TOLERANCE / 20) * 0.1 * tokens.sum()


def test_a_bound_on_length_costs_little_over_six_decades_of_lengths() -> None:
    generator = np.random.default_rng(1)
    tokens = np.round(10 ** generator.uniform(0, 6, 3000))
    features, quality = generator.standard_normal((3000, 8)), generator.random(3000)
    found = select(features, quality, tokens=tokens, token_ratio=0.1, length_tolerance=0.05, algorithm="Pair_simi")
    assert found.gap < 0.01
    assert abs(tokens[found.selected].mean() / tokens.mean() - 1) < 0.05 + TOLERANCE
