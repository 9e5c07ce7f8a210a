"""Limits of several kinds at once: against a linear programme, and against one limit after the other."""

import numpy as np
import pytest
import torch

from datamask.config import Select, resolve
from datamask.selection.engine.levels import Levels, clipped, logistic
from datamask.selection.problem.feasible import Feasible
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
@pytest.mark.parametrize(("link", "scale"), [(logistic, 4.0), (logistic, 40.0), (clipped, 2.0), (clipped, 30.0)])
def test_the_dual_is_as_low_as_one_after_the_other(link, scale, in_tokens, length):
    for seed in range(3):
        given, price = limits(seed, in_tokens, length)
        found = Levels(given).solve_quickly(scale * price, link)
        assert found is not None
        assert found.value <= Levels(given)._solve_in_turn(scale * price, link).value * (1 + 1e-9)
        levels = Levels(given)
        used = levels.used(levels.weights * found.p)
        grain = 1e-6 * given.size
        assert float(levels.weights @ found.p) == pytest.approx(given.size, abs=grain)
        assert (used <= levels.high + grain).all() and (used >= levels.low - grain).all()


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
