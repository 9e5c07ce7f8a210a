"""Select from arrays.

chosen = select(features, quality, select_ratio=0.1, lamb=0.5, algorithm="DiSF")
chosen = select(features, quality, tokens=tokens, groups={"domain": domain}, budget_tokens=10_000_000,
                quotas=[{"column": "domain", "maximum": {"news": 0.2}}])
features[chosen.selected]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
import torch

from datamask import extensions
from datamask.config import CoverageSettings, Quota, ResolvedSelect, Select, resolve
from datamask.devices import pick_device
from datamask.errors import ConfigError, DatamaskError, InputError, some
from datamask.selection.calibration import make_problem
from datamask.selection.cover.counting import read_words
from datamask.selection.problem.limits import idle_quotas
from datamask.selection.problem.pool import Pool, in_order_of_content
from datamask.selection.problem.problem import Draft, Problem, Selection
from datamask.selection.solvers import Report, check_solver, solver_class
from datamask.shares import tell_share

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import sparray, spmatrix

    Array = ArrayLike | torch.Tensor

GIVEN = "the texts given"  # in place of select.target's files
SINGLE = 1000  # documents that are tried alone at most, where a solver found nothing


class ArrayKeywords(TypedDict, total=False):
    """What `select` takes beside its arrays: the settings of the section `select`, and the words of the documents."""

    solver: str
    algorithm: str | Mapping[str, float] | None
    select_ratio: float | None
    token_ratio: float | None
    budget_documents: int | None
    budget_tokens: int | None
    repeat: int
    lamb: float | None
    coverage: CoverageSettings | Mapping[str, object]
    calibrate: bool
    scope: Literal["corpus", "shard"]
    seed: int
    device: str
    semantic_duplicates: float | None
    quotas: Sequence[Quota | Mapping[str, object]]
    length_tolerance: float | None
    n_epochs: int
    n_rollout: int
    partial: float
    max_lr: float
    min_lr: float
    init: Literal["same", "quality"]
    prune: float
    block_documents: int
    gradient: Literal["surrogate", "order"]
    published: bool
    texts: Iterable[str] | None
    """(N,) the documents' texts, for coverage of words."""
    atoms: sparray | spmatrix | None
    """(N, J) counts of the documents' hashed n-grams, instead of texts."""
    target: Iterable[str] | None
    """Texts to explain. The section `select` has files of such texts here."""


def select(
    features: Array,
    quality: Array,
    *,
    tokens: Array | None = None,
    groups: Mapping[str, Array] | None = None,
    quality_weights: Array | None = None,
    settings: Select | None = None,
    progress: Report | None = None,
    **keywords: Unpack[ArrayKeywords],
) -> Selection:
    """Which documents to keep.

    features: (N, d) float, numpy (memory-mapped too) or torch; need not have unit length, must be finite and not zero.
    quality: (N,) or (N, Q), larger is better; quality_weights: (Q,), none negative. tokens: (N,) positive.
    groups: column name -> (N,) values. progress: called with one record of the history after the other.
    settings: the section `select`. Keywords win over it; they are the settings, and the words of `ArrayKeywords`.

    :raises InputError: the arrays do not fit together, hold what is not a number, or cannot meet the budget or limits.
    :raises ConfigError: a setting is unknown, invalid, or asks a solver for what it cannot do.
    """
    changes: dict[str, Any] = {**keywords}
    texts, atoms, target = (changes.pop(name, None) for name in ("texts", "atoms", "target"))
    given = settings or Select()
    if target is not None and not given.target:
        changes["target"] = [GIVEN]
    has_words = texts is not None or atoms is not None or target is not None
    asked = resolve(given, changes, words=has_words, tokens=tokens is not None)
    device = pick_device(asked.device)
    words = read_words(texts, atoms, target, asked)
    counts = {"ngrams": words.ngrams, "target": words.counts}
    pool = Pool(features, quality, tokens, {} if groups is None else groups, quality_weights, device=device, **counts)
    for sentence in idle_quotas(asked, pool.groups):
        warnings.warn(sentence, stacklevel=2)
    if not len(words.leaked):
        return select_from(pool, asked, progress)
    warnings.warn(
        f"{len(words.leaked)} documents hold words in a row of the target and are left out (rows "
        f"{some(words.leaked, 10)}); coverage={{'leaks': True}} keeps them",
        stacklevel=2,
    )
    rest = np.setdiff1d(np.arange(len(pool)), words.leaked)
    if not len(rest):
        raise InputError("every document holds words in a row of the target; name a target from outside the pool")
    return select_from(pool.take(rest), asked, progress).placed(rest, len(pool))


def select_from(pool: Pool, settings: ResolvedSelect, progress: Report | None = None) -> Selection:
    """The selection from a pool, whatever the order of its documents."""
    order = in_order_of_content(pool, settings.seed)
    if order is None:
        return solve_problem(make_problem(pool, settings), progress)
    return solve_problem(make_problem(pool.take(order), settings), progress).placed(order, len(pool))


def solve_problem(problem: Problem, progress: Report | None = None) -> Selection:
    """The settings' solver run on a problem, its answer checked and evaluated exactly.

    :raises ConfigError: a metric or solver of the user's raises; names its file and line.
    """
    started = time.perf_counter()
    name = problem.settings.solver
    with extensions.named_in_errors(None if name in extensions.BUILT_IN["solver"] else f"solver {name}"):
        check_solver(problem.settings)
        draft = solver_class(name)().solve(problem, progress or (lambda record: tell_share(0.0)))
    for part in ("selected", "probability"):
        answer = getattr(draft, part) if isinstance(draft, Draft) else draft
        tensor = isinstance(draft, Draft) and isinstance(answer, torch.Tensor)
        gave = answer.shape if tensor else f"a {type(answer).__name__}"
        if gave != (len(problem),) or not answer.isfinite().all():
            raise ConfigError(
                f"solver {name} gave {gave}; solve(problem, progress) returns a Draft, whose {part} is a tensor of "
                f"shape ({len(problem)},), finite"
            )
    with extensions.named_in_errors():
        return finish(problem, draft, time.perf_counter() - started)


def finish(problem: Problem, draft: Draft, seconds: float) -> Selection:
    """A draft as the user gets it. A mask outside the budget or the limits is an error, never a result."""
    if not draft.selected.any() and draft.repeat is None:
        draft = replace(draft, selected=_one_document(problem, draft))
    selected = draft.selected.numpy().astype(bool)
    repeat = None if draft.repeat is None else draft.repeat.numpy().astype(np.int32)
    if repeat is None:
        broken = problem.limits.violations(selected)
    else:
        broken = problem.limits.violations_of_counts(repeat, problem.settings.repeat)
    if not selected.any():
        broken = [*broken, "not one document is within them"]
    if broken:
        solver, found = problem.settings.solver, "; ".join(broken[:3])
        raise DatamaskError(f"solver {solver} found no selection within the limits: {found}; loosen one of them")
    value = problem.objective.evaluate(draft.selected if draft.repeat is None else draft.repeat)
    if draft.upper_bound is not None and value.objective > draft.upper_bound + 1e-6 * max(1, abs(draft.upper_bound)):
        own = extensions.fingerprints_of("metric", problem.settings.metrics)
        own |= extensions.fingerprints_of("solver", [problem.settings.solver])
        if own:  # ours are held to it by tests
            raise ConfigError(
                f"{' and '.join(own)}: the choice scores {value.objective:.6g}, above its bound "
                f"{draft.upper_bound:.6g}; a metric's relaxed(mask) gives a concave function and its gradient"
            )
    price = torch.zeros(len(problem)) if draft.price is None else draft.price
    return Selection(
        **vars(value),
        selected=selected,
        probability=draft.probability.numpy().astype(np.float32),
        price=price.numpy().astype(np.float32),
        upper_bound=draft.upper_bound,
        seconds=seconds,
        solver=problem.settings.solver,
        asked=problem.settings.facts(),
        scales=problem.objective.scales,
        relaxed=draft.relaxed,
        history=tuple(draft.history),
        repeat=repeat,
    )


def _one_document(problem: Problem, draft: Draft) -> torch.Tensor:
    """(N,) bool: the best single document that is within the limits; none if there is none. For budgets so small that
    no search steps from nothing to something."""
    best, mask = -np.inf, draft.selected.clone()
    for row in np.argsort(problem.limits.weights, kind="stable")[:SINGLE].tolist():  # a longer one breaks the budget
        alone = torch.zeros_like(draft.selected)
        alone[row] = True
        if problem.limits.violations(alone.numpy().astype(bool)):
            continue
        if (value := problem.objective.evaluate(alone).objective) > best:
            best, mask = value, alone
    return mask
