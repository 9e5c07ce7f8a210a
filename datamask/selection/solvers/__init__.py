"""Solvers. Each is a small class that declares what it can hold and which metrics it can maximise, with one method.

    class Mine:
        holds = frozenset({"documents"})        # of: documents, tokens, quotas, length, prune, repeat
        requires = ("relaxed",)                 # attributes, one of which every metric must have; (): any metric
        agree_in = None                         # an attribute in which several metrics must agree

        def solve(self, problem, progress) -> Draft: ...

    problem: datamask.selection.problem.problem.Problem: pool, settings, unit, size, weights, limits, objective
    progress: called with one history record ({"step": …, "objective": …}) as the solver goes

A solver is never called with what it does not declare: `check_solver` refuses it, and names those that can (as skglm's
solvers do by `_datafit_required_attr`). `solve` needs neither to evaluate its answer nor to check it: `datamask.select`
does both, for all solvers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from datamask import extensions
from datamask.errors import ConfigError
from datamask.selection.metrics import metric_class

if TYPE_CHECKING:
    from datamask.config import ResolvedSelect
    from datamask.selection.problem.problem import Draft, Problem

Report = Callable[[Mapping[str, float]], None]
Held = Literal["documents", "tokens", "quotas", "length", "prune", "repeat"]
SOLVERS = tuple(extensions.BUILT_IN["solver"])
# What the default solver declares, and metrics that it can maximise: asked of before PyTorch is loaded.
RELAXATION: frozenset[Held] = frozenset({"documents", "tokens", "quotas", "length", "repeat"})
COVERAGE = frozenset({"coverage-embedding", "coverage-ngrams", "coverage-target"})


class Solver(Protocol):
    """What solves a problem, and what it can hold. Constructed without arguments."""

    holds: ClassVar[frozenset[Held]] = frozenset({"documents"})
    requires: ClassVar[tuple[str, ...]] = ()
    agree_in: ClassVar[str | None] = None

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """The selection: `Draft.selected` (N,) bool, within the budget and the limits, and what else is known."""


def solver_class(name: str) -> type[Solver]:
    """The class of a solver's name.

    :raises ConfigError: unknown name, or a solver of the user's that cannot be imported or lacks `solve`.
    """
    found = extensions.require("solver", name).load()
    for declared in ("holds", "requires", "agree_in"):  # what a user's class does not declare is as the protocol has it
        if not hasattr(found, declared):
            setattr(found, declared, getattr(Solver, declared))
    return found


def check_solver(settings: ResolvedSelect) -> None:
    """Whether the solver declares all that the settings ask of it; needs no corpus.

    :raises ConfigError: unknown solver or metric, or one that cannot do what is asked; names the solvers that can.
    """
    if not (lacks := _lacks(settings.solver, settings)):
        return
    able = [other for other in extensions.extension_names("solver") if can_solve(other, settings)]
    raise ConfigError(
        f"solver {settings.solver} cannot hold {' and '.join(lacks)}; these can: {', '.join(able) or 'none'}"
    )


def can_solve(name: str, settings: ResolvedSelect) -> bool:
    """Whether the solver of this name declares all that the settings ask of one."""
    return not _lacks(name, settings)


def _lacks(name: str, settings: ResolvedSelect) -> list[str]:
    """The demands of the settings that a solver cannot hold, in the settings' words."""
    known = name == "relaxation" and COVERAGE.issuperset(settings.metrics)
    holds = RELAXATION if known else solver_class(name).holds
    asked: dict[Held, tuple[bool, str]] = {
        "documents": (not settings.in_tokens, "a budget in documents"),
        "tokens": (settings.in_tokens, "a budget in tokens"),
        "quotas": (bool(settings.quotas), "quotas"),
        "length": (settings.length_tolerance is not None, "length_tolerance"),
        "prune": (settings.prune > 0, "prune"),
        "repeat": (settings.repeat > 1, "repeat above 1"),
    }
    lacks = [words for what, (needed, words) in asked.items() if needed and what not in holds]
    return lacks if known or settings.lamb == 1 else lacks + _metrics_lacking(solver_class(name), settings)


def _metrics_lacking(solver: type[Solver], settings: ResolvedSelect) -> list[str]:
    """The metrics that a solver cannot maximise, with what they would need."""
    if not solver.requires:
        return []
    classes = {name: metric_class(name) for name in settings.metrics}
    lacking = [name for name, each in classes.items() if not any(hasattr(each, need) for need in solver.requires)]
    if lacking:
        return [f"metric {', '.join(lacking)} (it has no {' or '.join(solver.requires)})"]
    agree_in = solver.agree_in
    if agree_in and len({getattr(each, agree_in, None) for each in classes.values()}) > 1:
        return [f"metrics {' and '.join(classes)} together"]
    return []
