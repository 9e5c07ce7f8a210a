"""The balance of quality and diversity: the whole front for λ from 0 to 1, with a certificate at each point.

front = sweep(load_corpus("out/real", 100_000), lambdas=np.linspace(0, 1, 11))
front.points[front.knee].lamb

One pool, one calibration, one set of prepared vectors; each λ begins where the last one ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from datamask.errors import ConfigError
from datamask.report import statistics
from datamask.report.embedded import Embedded
from datamask.selection.api import finish, solve
from datamask.selection.problem import make_problem
from datamask.selection.result import Selection
from datamask.selection.solvers import relaxation, solver_for

TOLERANCE = 1e-3  # of a point's ascent, against its bound; every point reports the gap it reached
ITERATIONS = 20  # of a point's ascent that starts from its neighbour


@dataclass(frozen=True)
class Point:
    """One λ's selection. Terms are calibrated (0 random, 1 the term's best) unless the settings say otherwise."""

    lamb: float
    objective: float
    upper_bound: float | None
    gap: float | None
    quality: float
    diversity: float
    mean_quality: float
    vendi: float
    near_duplicates: float
    length_ratio: float
    documents: int
    steps: int
    seconds: float
    overlap_before: float | None  # Jaccard similarity with the selection of the λ before, and after
    overlap_after: float | None
    effective: dict[str, float]  # column -> effective number of its values
    shares: dict[str, dict[str, float]]  # column -> value -> share of the documents


@dataclass(frozen=True)
class Sweep:
    """A front. `seconds` is everything: calibration, preparation, all solves; not the measuring of the selections."""

    name: str
    solver: str
    algorithm: str
    size: int  # candidates
    share: float  # of the corpus's candidates that were swept
    points: tuple[Point, ...]
    knee: int
    chosen: float  # the configuration's λ
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def sweep(corpus: Embedded, lambdas: Sequence[float], progress: Callable[[Point], None] = lambda point: None) -> Sweep:
    """Solves and measures every λ, ascending.

    :raises ConfigError: a λ outside [0, 1], or settings the solver cannot hold.
    """
    grid = sorted(set(lambdas))
    if not grid or grid[0] < 0 or grid[-1] > 1:
        raise ConfigError(f"λ must lie between 0 and 1, found {', '.join(f'{value:g}' for value in grid) or 'none'}")
    settings = corpus.settings()
    started = time.perf_counter()
    problem = make_problem(corpus.pool(settings), settings)
    solver_for(problem)  # refuses what it cannot hold before anything is computed
    spent = time.perf_counter() - started
    warm = relaxation.Warm(tolerance=TOLERANCE)
    points: list[Point] = []
    last: np.ndarray | None = None
    for lamb in grid:
        began = time.perf_counter()
        at = problem.at(lamb)
        if settings.solver == "relaxation":
            draft = relaxation.solve(at, lambda record: None, warm)
            selection = finish(at, draft, time.perf_counter() - began)
            warm.iterations = ITERATIONS  # the first is found from nothing, the others start close by
        else:
            selection = solve(at)
        seconds = time.perf_counter() - began
        spent += seconds
        overlap = (
            None if last is None else statistics.overlap(selection.indices.tolist(), np.flatnonzero(last).tolist())
        )
        if points:
            points[-1] = replace(points[-1], overlap_after=overlap)
        points.append(_point(corpus, lamb, selection, seconds, overlap))
        progress(points[-1])
        last = selection.selected
    return Sweep(
        name=corpus.config.release.name,
        solver=settings.solver,
        algorithm=settings.metric,
        size=len(corpus),
        share=corpus.share,
        points=tuple(points),
        knee=statistics.knee([point.quality for point in points], [point.diversity for point in points]),
        chosen=settings.lamb,
        seconds=spent,
    )


def _point(corpus: Embedded, lamb: float, selection: Selection, seconds: float, overlap: float | None) -> Point:
    measured = corpus.measure(selection.selected)
    metrics = corpus.config.select.metrics
    diversity = sum(share * selection.terms[name] for name, share in metrics.items()) / sum(metrics.values())
    quality = [value for name, value in selection.terms.items() if name not in metrics]
    return Point(
        lamb=float(lamb),
        objective=selection.objective,
        upper_bound=selection.upper_bound,
        gap=selection.gap,
        quality=float(np.mean(quality)),
        diversity=float(diversity),
        mean_quality=measured["mean_quality"],
        vendi=measured["vendi"],
        near_duplicates=measured["near_duplicates"],
        length_ratio=measured["length_ratio"],
        documents=measured["documents"],
        steps=max(len(selection.history) - 1, 0),
        seconds=seconds,
        overlap_before=overlap,
        overlap_after=None,
        effective=measured["effective"],
        shares={name: dict(values) for name, values in measured["shares"].items()},
    )


def pick(front: Sweep, wish: str) -> Point:
    """The point a wish names: "knee", or "quality=0.9": the most diverse whose mean quality is at least that.

    :raises ConfigError: another wish, or a quality no point reaches; says which there are.
    """
    if wish == "knee":
        return front.points[front.knee]
    name, equals, value = wish.partition("=")
    try:
        least = float(value)
    except ValueError:
        least = float("nan")
    if name.strip() != "quality" or not equals or not np.isfinite(least):
        raise ConfigError(f"--pick {wish}: valid are knee, or quality=NUMBER, the least mean quality, e.g. quality=0.9")
    found = [point for point in front.points if point.mean_quality >= least]
    if not found:
        best = max(point.mean_quality for point in front.points)
        raise ConfigError(f"--pick {wish}: no λ reaches that mean quality; the greatest is {best:.4f}, at λ = 1")
    return min(found, key=lambda point: point.lamb)


def envelope(points: Sequence[Point], count: int = 101) -> list[dict[str, float]]:
    """The certificates as one curve: for each quality the greatest diversity that no bound forbids.

    Every selection satisfies λ·quality + (1 − λ)·diversity ≤ bound(λ), for every λ.
    """
    bounds = [(point.lamb, point.upper_bound) for point in points if point.upper_bound is not None]
    low, high = min(point.quality for point in points), max(point.quality for point in points)
    limit = min((bound / lamb for lamb, bound in bounds if lamb == 1), default=high)
    rows = []
    for quality in np.linspace(low, min(high, limit), count):
        most = [(bound - lamb * quality) / (1 - lamb) for lamb, bound in bounds if lamb < 1]
        if most:
            rows.append({"quality": float(quality), "diversity": float(min(most))})
    return rows
