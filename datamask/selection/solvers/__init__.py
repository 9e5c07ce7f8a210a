"""Solvers. Each is a module with one function `solve(problem, progress) -> Draft`, named in `SOLVERS`.

    problem: datamask.selection.problem.Problem: pool, settings, unit, size, weights, limits, objective
    progress: called with one history record ({"step": …, "objective": …}) as the solver goes

`solve` needs neither to evaluate its answer nor to check it: `datamask.select` does both, for all solvers alike.
A solver that cannot hold a quota, a length bound, a token budget or pruning says so here and is never called with one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from datamask.errors import ConfigError, nearest

if TYPE_CHECKING:
    from datamask.selection.problem import Problem
    from datamask.selection.result import Draft

Progress = Callable[[Mapping[str, float]], None]
Solve = Callable[["Problem", Progress], "Draft"]


@dataclass(frozen=True)
class SolverInfo:
    """`module` or `module:function` in this package, and what the solver holds besides its budget."""

    home: str
    holds: frozenset[str] = frozenset({"documents", "tokens", "quotas", "length"})


SOLVERS: dict[str, SolverInfo] = {
    "relaxation": SolverInfo("relaxation"),
    "policy-gradient": SolverInfo("policy_gradient", frozenset({"documents", "prune"})),
    "greedy": SolverInfo("greedy", frozenset({"documents"})),
    "top-quality": SolverInfo("baselines:top_quality"),
    "random": SolverInfo("baselines:random"),
    "semdedup": SolverInfo("semdedup", frozenset({"documents"})),
    "direct": SolverInfo("baselines:direct"),
}


def solver_for(problem: Problem) -> Solve:
    """The function of `settings.solver`.

    :raises ConfigError: unknown solver, or one that cannot hold what this problem asks.
    """
    name = problem.settings.solver
    if name not in SOLVERS:
        raise ConfigError(f"unknown solver {name!r}{nearest(name, SOLVERS)}; valid: {', '.join(SOLVERS)}")
    asked = {problem.unit: f"a budget in {problem.unit}"}
    if problem.limits.groupings:
        asked["quotas"] = "quotas"
    if problem.limits.length is not None:
        asked["length"] = "length_tolerance"
    if problem.settings.prune:
        asked["prune"] = "prune"
    missing = [words for what, words in asked.items() if what not in SOLVERS[name].holds]
    if missing:
        able = [other for other, info in SOLVERS.items() if set(asked) <= info.holds]
        raise ConfigError(f"solver {name} cannot hold {' and '.join(missing)}; these can: {', '.join(able) or 'none'}")
    module, _, function = SOLVERS[name].home.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function or "solve")
