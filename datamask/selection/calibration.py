"""The problem that settings pose on a pool, and its calibration: the raw values of each term that score 0 and 1.

    problem = make_problem(pool, Select(select_ratio=0.1, lamb=0.5))

0 is the value of a random selection of the budget's size: the expected one in closed form, of coverage the median of
some, for those that a single very long document fills are worth far less. 1 is that of the term's own best selection,
of coverage its fractional optimum. To find it, a term is solved alone; so this module stands above metrics and solvers,
and none of them imports it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from datamask import extensions
from datamask.config import Select, resolve
from datamask.errors import ConfigError, nearest
from datamask.selection.cover.solve import best_alone, refuse
from datamask.selection.metrics import metric_class, metric_columns
from datamask.selection.metrics.base import Metric, MixtureMetric, MomentMetric, StateMetric
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits, make_limits
from datamask.selection.problem.pool import Pool, budget_of, quality_names
from datamask.selection.problem.problem import SAMPLE, Problem, Term, Terms
from datamask.selection.solvers.ascent import Multilinear
from datamask.selection.solvers.quadratic import Quadratic, prepare, row_type, swap_by_kernel, weighted_norms

# Documents on which a term's own best is solved, for moments that are vectors and for matrices. A pool of up to twice
# as many is solved whole.
BEST_OF_VECTORS, BEST_OF_MATRICES = 1024, 8192
FEWEST = 64  # documents that a sample's selection has at least
STEP, NOISE = 0.05, 1e-5  # of a mask, along which a gradient is tried; rounding of a value in float32, as a share of it
RANDOM_SETS = 16  # random selections drawn for a metric without a closed form
ITERATIONS = 8  # steps of the ascent; swaps do the rest
ACCURACY = 5e-3  # tolerance of a sample's own best, as a share of −D at the uniform p


def make_problem(pool: Pool, settings: Select) -> Problem:
    """The problem these settings pose on this pool.

    :raises InputError: the budget is more than the pool holds or not one document; a quota cannot be met.
    :raises ConfigError: a token budget, quota or length bound whose column the pool lacks.
    """
    resolved = resolve(settings, words=pool.ngrams is not None, tokens=pool.tokens is not None)
    tokens = pool.tokens
    unit, size = budget_of(resolved, len(pool), None if tokens is None else (float(tokens.sum()), float(tokens.min())))
    weights = np.ones(len(pool)) if unit == "documents" else tokens
    limits = make_limits(resolved, weights, size, pool.tokens, pool.groups)
    return Problem(pool, resolved, unit, size, torch.from_numpy(weights).to(pool.device), limits, make_terms)


def make_terms(problem: Problem, spans: Sequence[tuple[float, float]] | None = None) -> Terms:
    """The terms of quality and of diversity, calibrated but not yet weighted by λ.

    spans: each quality column's (zero, one), where the problem is a sample of a corpus; None: of the problem itself.

    :raises ConfigError: a metric reads a column that the pool does not have.
    """
    settings = problem.settings
    if spans is None:
        weights, quality = problem.limits.weights * settings.repeat, problem.pool.quality
        spans = [quality_span(weights, problem.size, column) for column in quality.T] if settings.calibrate else []
    columns, diversity = [], []
    for column, name in enumerate(quality_names(problem.pool.quality.shape[1])):
        zero, one = spans[column] if settings.calibrate else (0.0, 1.0)
        columns.append(Term(name, 0.0, zero, one, column=column))
    for name in settings.metrics:
        for read in metric_columns(name):
            if read not in problem.pool.groups:
                have = ", ".join(sorted(problem.pool.groups)) or "none"
                raise ConfigError(
                    f"metric {name!r} reads column {read!r}, which the pool does not have"
                    f"{nearest(read, problem.pool.groups)}; given as groups: {have}"
                )
        if name in extensions.BUILT_IN["metric"]:
            metric = metric_class(name)(problem.pool, problem.weights, problem.size)
        else:
            metric = _own_metric(problem, name)
        if hasattr(metric, "bind"):
            metric.bind(settings)
        zero, one = diversity_span(problem, metric) if settings.calibrate else (0.0, 1.0)
        diversity.append(Term(name, 0.0, zero, one, metric=metric))
    return columns, diversity


def _own_metric(problem: Problem, name: str) -> Metric:
    """A metric of the user's, tried on two masks and, if it has a relaxation, on a fractional one.

    :raises ConfigError: it cannot be constructed, raises, or gives something else than finite numbers for each.
    """
    count, device = len(problem), problem.pool.device
    plain = Limits(problem.limits.weights, problem.size)
    masks = np.stack([fill_in_order(plain, order) for order in (np.arange(count), np.arange(count)[::-1])])
    weights = problem.weights.clone()  # which it may change in place
    with extensions.named_in_errors(f"metric {name!r}"):
        metric = metric_class(name)(problem.pool, weights, problem.size)
        if isinstance(metric, MomentMetric | MixtureMetric):
            return metric
        answers: list[tuple[str, torch.Tensor, tuple[int, ...]]] = [
            ("value(masks)", metric.value(torch.from_numpy(masks).to(device)), (2,))
        ]
        if hasattr(metric, "relaxed"):
            share = min(1.0, problem.size / float(problem.weights.sum()))
            middle = torch.full((count,), share, dtype=torch.float64)
            step = STEP * min(share, 1 - share) * torch.from_numpy(masks[0] - 1.0 * masks[1])
            value, gradient = metric.relaxed(middle.clone())
            answers += [("relaxed(mask)", torch.as_tensor(value), ()), ("relaxed(mask)", gradient, (count,))]
            beside = [float(metric.relaxed(middle + step * sign)[0]) for sign in (1, -1)]
    for method, answer, shape in answers:
        found = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        if found != shape or not answer.isfinite().all():
            what = "what is not finite" if found == shape else found
            raise ConfigError(f"metric {name!r}: {method} gave {what}; expected a tensor of shape {shape}, finite")
    if hasattr(metric, "relaxed"):
        slope, noise = float(gradient.cpu().double() @ step), NOISE * max(1.0, abs(float(value)))
        over = [near - float(value) - sign * slope for near, sign in zip(beside, (1, -1), strict=True)]
        if max(over) > noise and min(over) < 0:  # a concave function is below its tangent on both sides, a convex above
            raise ConfigError(f"metric {name!r}: the gradient that relaxed(mask) gives is not that of its value")
    return metric


def quality_span(weights: np.ndarray, size: float, quality: np.ndarray) -> tuple[float, float]:
    """A quality column's weighted means over the whole pool (scores 0) and over the best documents that fill the budget
    (scores 1). weights, quality: (N,); size: the budget."""
    best = Feasible(Limits(weights, size)).fill_budget(torch.from_numpy(quality.copy()))
    return float(weights @ quality / weights.sum()), float(weights @ (best.numpy() * quality) / size)


def diversity_span(problem: Problem, metric: Metric) -> tuple[float, float]:
    """A metric's value at random selections of the budget's size, and the best value found for it alone."""
    if problem.settings.repeat == 1 and isinstance(metric, MomentMetric):
        return _random_moment(problem, metric), _best_moment(problem, metric)
    if problem.settings.repeat > 1 or isinstance(metric, MixtureMetric):
        return _by_state(problem, metric)
    calibrate = getattr(metric, "calibrate", None)
    if calibrate is not None:
        return calibrate(problem)
    return _by_trial(problem, metric)


def _random_moment(problem: Problem, metric: MomentMetric) -> float:
    """E[D] in closed form, over k of N documents drawn without replacement.

    Under a token budget each document is drawn independently with the budget's share as probability.
    """
    weights = problem.weights
    total, squares = _whole(problem, metric)
    copies, here = problem.copies, len(problem)
    count, size = here * copies, problem.size * copies
    others = float(total.double().square().sum()) - squares  # Σ_{i≠j} over the pool; scaled to the corpus next
    others *= copies * (count - 1) / max(here - 1, 1)
    squares *= copies
    share = problem.size / float(weights.sum())
    pairs = share * (size - 1) / max(count - 1, 1) if problem.unit == "documents" else share**2
    return -metric.unit * (share * squares + pairs * others) / size**2


def _whole(problem: Problem, metric: MomentMetric) -> tuple[torch.Tensor, float]:
    """Σ w_i v_i and Σ w_i² ‖v_i‖² over all documents, in blocks (no copy of the rows is kept)."""
    weights = problem.weights
    if problem.pool.is_small:
        squares = 0.0
        for part, rows in problem.pool.blocks(dtype=torch.float64):
            squares += float((weights[part].square() * metric.squares(metric.prepare(rows)).double()).sum())
        return metric.sum_over(problem.pool, weights), squares
    if metric.vector:
        return prepare(metric).moment(weights), float(weights.square().sum())
    total: torch.Tensor | None = None
    squares = 0.0
    for part, rows in problem.pool.blocks(dtype=metric.reads):
        z = metric.prepare(rows).float()
        squares += float((weights[part].square() * metric.squares(z).double()).sum())
        moment = metric.moment(z.to(row_type(metric, len(z))), weights[part]).float()
        total = moment if total is None else total.add_(moment)
    assert total is not None
    return total, squares


def best_on(metric: MomentMetric) -> int:
    """Documents on which the best value of this metric alone is solved."""
    return BEST_OF_VECTORS if metric.vector else BEST_OF_MATRICES


def _best_moment(problem: Problem, metric: MomentMetric) -> float:
    """An estimate of the greatest D of any selection: solved on the pool itself, or extrapolated from two samples.

    The cost −D of a random sample's best selection is close to a + b/size, where a is the similarity that documents of
    this pool have in common and b/size comes from the self-terms. So a sample and its half determine a and b, and with
    them the value at the pool's own size (benchmarks/calibration.py).
    """
    share, enough = problem.size / float(problem.weights.sum()), best_on(metric)
    whole = problem.copies == 1 and len(problem) <= 2 * enough
    count = min(len(problem), SAMPLE, 2 * enough if whole else max(enough, round(FEWEST / share)))
    size, best = best_among(problem, metric, problem.sample[:count])
    if whole:
        return best
    smaller, less = best_among(problem, metric, problem.sample[: count // 2])
    if smaller >= size or less >= best:
        return best
    beyond = (1 / size - 1 / (problem.size * problem.copies)) / (1 / smaller - 1 / size)
    return min(best + beyond * (best - less), 0.0)


def best_among(problem: Problem, metric: MomentMetric, rows: np.ndarray) -> tuple[float, float]:
    """The sample's share of the budget, in its unit, and the best D found for a selection of that size.

    rows: (n,) row numbers of the sample.
    """
    rows = np.sort(rows)
    weights = problem.limits.weights[rows]
    size = problem.size * float(weights.sum() / problem.limits.weights.sum())
    size = max(1.0, round(size)) if problem.unit == "documents" else size
    feasible = Feasible(Limits(weights, size))
    nothing = torch.zeros(len(rows), dtype=torch.float64)
    prepared = prepare(metric, rows=torch.from_numpy(rows))
    quadratic = Quadratic([prepared], [metric.unit / size**2], nothing, feasible)
    start = feasible.uniform()
    accuracy = ACCURACY * weighted_norms(quadratic.coefficients, quadratic.moments(start))
    found = Multilinear(quadratic, start, accuracy, ITERATIONS).run()
    mask, moments, _ = swap_by_kernel(quadratic, feasible.round(found.p, found.price), accuracy)
    if problem.pool.is_small:  # exact sums, so that the order of the rows changes no digit
        mass = torch.zeros(len(problem), dtype=torch.float64)
        mass[torch.from_numpy(rows)] = feasible.weights * mask
        moments = [metric.sum_over(problem.pool, mass)]
    return size, -weighted_norms(quadratic.coefficients, moments)


def _by_state(problem: Problem, metric: Metric) -> tuple[float, float]:
    """The median of random selections, which take every document once before any twice, and the metric's own fractional
    optimum."""
    refuse([metric])
    assert isinstance(metric, StateMetric)
    count, most, generator = len(problem), problem.settings.repeat, problem.generator(stream=11)
    plain, share = Limits(problem.limits.weights, problem.size), problem.limits.weights / problem.size
    every = plain.copies(np.tile(np.arange(count), most), most)
    values = []
    for _ in range(RANDOM_SETS):
        order = generator.permutation(count)
        chosen = fill_in_order(every, np.concatenate([order + count * turn for turn in range(most)]))
        values.append(metric.of_state(metric.state(chosen.reshape(most, -1).sum(axis=0) * share)))
    zero, limits = float(np.median(values)), plain.repeated(most) if most > 1 else plain
    return zero, max(best_alone(metric, Feasible(limits), zero), *values)


def _by_trial(problem: Problem, metric: Metric) -> tuple[float, float]:
    """For a metric that offers only values: the mean over random selections, and the best found by the cross-entropy
    method."""
    generator = problem.generator(stream=7)
    plain = Limits(problem.limits.weights, problem.size)
    count = len(problem)

    def values(orders: list[np.ndarray]) -> np.ndarray:
        masks = np.stack([fill_in_order(plain, order) for order in orders])
        return metric.value(torch.from_numpy(masks).to(problem.pool.device)).cpu().numpy()

    trials = values([generator.permutation(count) for _ in range(RANDOM_SETS)])
    logits = np.zeros(count)  # cross-entropy method: Gumbel top-k around logits moved towards the elite
    best = float(trials.max())
    for _ in range(60):
        orders = [np.argsort(-(logits + generator.gumbel(size=count)), kind="stable") for _ in range(32)]
        found = values(orders)
        best = max(best, float(found.max()))
        elite = np.argsort(-found)[:8]
        rate = np.mean([fill_in_order(plain, orders[i]) for i in elite], axis=0)
        logits += 0.5 * (np.log(rate + 0.02) - np.log(rate.mean() + 0.02))
    return float(trials.mean()), best
