"""Limits of several kinds at once: against a linear programme, and against other dual prices."""

import numpy as np
import pytest
import torch

from datamask.config import Select, resolve
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.levels import CLIPPED, LOGISTIC, Levels, link_at
from datamask.selection.problem.limits import make_limits


def limits(seed, in_tokens, length, count=900):
    rng = np.random.default_rng(seed)
    inner = rng.integers(9, size=count)
    groups = {"domain": (inner // 3).astype(str), "source": inner.astype(str)}  # one within the other
    tokens = np.round(10 ** rng.uniform(1, 4, count))
    quotas = [{"column": "domain", "as_pool": 0.03}, {"column": "source", "as_pool": 0.03}]
    asked = {"budget_tokens": int(0.1 * tokens.sum()), "select_ratio": None} if in_tokens else {"select_ratio": 0.1}
    settings = resolve(Select(quotas=quotas, length_tolerance=0.1 if length else None, **asked))
    weights, size = (tokens, float(settings.budget_tokens)) if in_tokens else (np.ones(count), 90.0)
    price = rng.standard_normal(count) + (inner == 4) - 0.2 * np.log(tokens)
    return make_limits(settings, weights, size, tokens, groups), torch.from_numpy(price)


@pytest.mark.parametrize("length", [False, True])
@pytest.mark.parametrize("in_tokens", [False, True])
@pytest.mark.parametrize(("link", "scale"), [(LOGISTIC, 4.0), (LOGISTIC, 40.0), (CLIPPED, 2.0), (CLIPPED, 30.0)])
def test_no_dual_prices_are_lower_and_the_limits_hold(link, scale, in_tokens, length):
    for seed in range(3):
        given, price = limits(seed, in_tokens, length)
        levels = Levels(given)
        found = levels.solve(scale * price, link, sure=False)
        assert found.found
        rows = np.vstack([np.ones(len(price)), given.rows.toarray()])
        low, high = np.append(given.size, given.floor), np.append(given.size, given.ceiling)

        def dual(x, rows=rows, price=price, levels=levels, low=low, high=high):
            integral = [link_at(each, link)[0] for each in scale * price.numpy() - x @ rows]
            return float(levels.weights.numpy() @ integral) + x.clip(0) @ high - (-x).clip(0) @ low

        x = np.append(found.level, found.multipliers)
        assert found.value == pytest.approx(dual(x), rel=1e-12)
        rng = np.random.default_rng(seed)
        for far in 10.0 ** -np.arange(12):  # it is convex: none near or far is lower
            assert dual(x + far * rng.standard_normal(len(x))) >= found.value * (1 - 1e-9)
        used = levels.limits.rows @ (levels.weights * found.p).numpy()
        grain = 1e-6 * given.size
        assert float(levels.weights @ found.p) == pytest.approx(given.size, abs=grain)
        assert (used <= given.ceiling + grain).all() and (used >= given.floor - grain).all()


@pytest.mark.parametrize("length", [False, True])
@pytest.mark.parametrize("in_tokens", [False, True])
def test_a_response_is_near_the_linear_programme(in_tokens, length):
    for seed in range(3):
        given, price = limits(seed, in_tokens, length)
        feasible = Feasible(given)
        _, bound = feasible.respond(price)
        best, level, multipliers = Levels(given).programme(price, given.unspent)
        most = float(feasible.weights @ (price * best))
        assert most - 1e-7 * abs(most) <= bound <= most + 2e-3 * float(feasible.weights @ (price.abs() * best))


@pytest.mark.parametrize("tolerance", [0.02, 0.2])
def test_a_bound_on_length_is_met_over_six_decades_of_lengths(tolerance: float) -> None:
    """A long document is charged a millionth of what a short one is."""
    rng = np.random.default_rng(1)
    tokens = np.round(10 ** rng.uniform(0, 6, 3000))
    settings = resolve(Select(budget_tokens=int(0.1 * tokens.sum()), length_tolerance=tolerance))
    given = make_limits(settings, tokens, float(settings.budget_tokens), tokens, {})
    levels = Levels(given)
    for scale in (10.0, 40.0, 80.0, 20.0, 5.0):  # each solve starts where the last one ended
        found = levels.solve(scale * torch.from_numpy(rng.standard_normal(3000)), LOGISTIC)
        used, grain = given.rows @ (levels.weights * found.p).numpy(), 1e-6 * given.size
        assert float(levels.weights @ found.p) == pytest.approx(given.size, abs=grain)
        assert (used <= given.ceiling + grain).all() and (used >= given.floor - grain).all()
