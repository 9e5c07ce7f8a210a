"""The balance of quality and diversity: the whole front for λ from 0 to 1, with a certificate at each point.

front = sweep_lambdas(load_corpus("out/real", 100_000), np.linspace(0, 1, 11))
front.points[front.knee].lamb

One pool and one calibration for every λ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.errors import ConfigError
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover.counting import read_words, reads_words
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Problem, Selection
from datamask.selection.solvers import check_solver
from datamask.study.corpus_choice import texts_of
from datamask.study.embedded import Embedded


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
    vendi: float | None  # None: there are no vectors
    near_duplicates: float | None
    length_ratio: float
    documents: int
    steps: int
    seconds: float
    overlap_before: float | None  # Jaccard similarity with the selection of the λ before
    effective: dict[str, float]  # column -> effective number of its values
    shares: dict[str, dict[str, float]]  # column -> value -> share of the documents


@dataclass(frozen=True)
class Sweep:
    """A front. `seconds` is everything: calibration and all solves; not the measuring of the selections."""

    name: str
    solver: str
    algorithm: str
    size: int  # candidates
    share: float  # of the corpus's candidates that were swept
    points: tuple[Point, ...]
    knee: int
    chosen: float  # the configuration's λ
    seconds: float


def sweep_lambdas(
    corpus: Embedded, lambdas: Sequence[float], progress: Callable[[float, float], None] = lambda lamb, seconds: None
) -> Sweep:
    """Solves and measures every λ, from diversity alone to quality alone.

    Every λ is given the best of all selections found, whichever λ it was found for, so that quality never falls as λ
    grows; and the bounds are tightened by one another, for the best possible objective is convex in λ.

    :param progress: called with each λ solved and its seconds.
    :raises ConfigError: a λ outside [0, 1], or settings the solver cannot hold.
    """
    grid = sorted(set(lambdas))
    if not grid or grid[0] < 0 or grid[-1] > 1:
        raise ConfigError(f"λ must lie between 0 and 1, found {', '.join(f'{value:g}' for value in grid) or 'none'}")
    settings = corpus.settings()
    started = time.perf_counter()
    corpus, pool = _with_words(corpus, settings)
    problem = make_problem(pool, settings)
    check_solver(settings)  # refuses what it cannot hold before anything is computed
    solved = []
    for lamb in grid:
        solved.append(solve_problem(problem.at(lamb)))
        progress(lamb, solved[-1].seconds)
    seconds = time.perf_counter() - started
    points = _points(corpus, grid, solved)
    return Sweep(
        name=corpus.config.release.name,
        solver=settings.solver,
        algorithm=settings.metric,
        size=len(corpus),
        share=corpus.share,
        points=points,
        knee=knee([p.quality for p in points], [p.diversity for p in points], _random_terms(corpus, problem)),
        chosen=settings.lamb,
        seconds=seconds,
    )


def _with_words(corpus: Embedded, settings: ResolvedSelect) -> tuple[Embedded, Pool]:
    """The candidates that hold nothing of a target, and their pool; for coverage of words with its counts."""
    if not reads_words(settings):
        return corpus, corpus.pool(settings)
    texts = [text.decode("utf-8", "replace") for text in texts_of(corpus)]
    words = read_words(texts, None, None, settings)
    pool = replace(corpus.pool(settings), ngrams=words.ngrams, target=words.counts)
    if not len(words.leaked):
        return corpus, pool
    kept = np.ones(len(corpus), bool)
    kept[words.leaked] = False
    return corpus.subset(kept), pool.take(np.flatnonzero(kept))


def _points(corpus: Embedded, grid: Sequence[float], solved: Sequence[Selection]) -> tuple[Point, ...]:
    terms = [_terms(corpus, selection.terms) for selection in solved]
    bounds: list[float | None] = [selection.upper_bound for selection in solved]
    known = [bound for bound in bounds if bound is not None]
    if len(known) == len(bounds):
        bounds = list(convex(grid, known))
    chosen = []
    for place, lamb in enumerate(grid):
        values = [lamb * quality + (1 - lamb) * diversity for quality, diversity in terms]
        best = max(range(len(grid)), key=values.__getitem__)
        chosen.append(place if values[place] >= values[best] - 1e-12 else best)
    points = []
    for place, lamb in enumerate(grid):
        quality, diversity = terms[chosen[place]]
        objective, bound = lamb * quality + (1 - lamb) * diversity, bounds[place]
        own, before = (solved[chosen[step]] for step in (place, max(place - 1, 0)))
        shared = overlap(own.indices.tolist(), before.indices.tolist()) if place else None
        measured = corpus.measure(own.times)
        points.append(
            Point(
                lamb=float(lamb),
                objective=objective,
                upper_bound=None if bound is None else max(bound, objective),
                gap=None if bound is None else max(0.0, bound - objective) / max(abs(bound), 1e-12),
                quality=quality,
                diversity=diversity,
                mean_quality=measured["mean_quality"],
                vendi=measured["vendi"],
                near_duplicates=measured["near_duplicates"],
                length_ratio=measured["length_ratio"],
                documents=measured["documents"],
                steps=max(len(solved[place].history) - 1, 0),
                seconds=solved[place].seconds,
                overlap_before=shared,
                effective=measured["effective"],
                shares={name: dict(values) for name, values in measured["shares"].items()},
            )
        )
    return tuple(points)


def _terms(corpus: Embedded, terms: Mapping[str, float]) -> tuple[float, float]:
    """The quality term, and the diversity terms by their weights."""
    metrics = corpus.config.selection.metrics
    diversity = sum(share * terms[name] for name, share in metrics.items()) / sum(metrics.values())
    return float(np.mean([value for name, value in terms.items() if name not in metrics])), float(diversity)


def knee(x: Sequence[float], y: Sequence[float], reference: tuple[float, float] = (0.0, 0.0)) -> int:
    """Index of a front's knee: the point with the largest product of its gains over `reference`, in x and in y.

    That is Nash's bargaining solution ("The Bargaining Problem", Econometrica 1950) with `reference`, here a random
    selection, as what either side falls back to; as a picture, the corner of the largest rectangle under the front
    (the hypervolume of one point). It depends neither on the axes' scales nor on where the front ends: points that are
    added or taken away change it only by being better. Where no point gains in both: the one whose smaller gain is
    largest.
    """
    gains = [(a - reference[0], b - reference[1]) for a, b in zip(x, y, strict=True)]
    worth = [(True, prod(both)) if min(both) > 0 else (False, min(both)) for both in gains]
    return worth.index(max(worth))


def convex(x: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """Bounds of a convex function at ascending x, none above the line between two others: it lies below all chords."""
    best = list(bounds)
    for i in range(1, len(x) - 1):
        for a in range(i):
            for b in range(i + 1, len(x)):
                share = (x[i] - x[a]) / (x[b] - x[a])
                best[i] = min(best[i], (1 - share) * bounds[a] + share * bounds[b])
    return best


def overlap(first: Iterable[object], second: Iterable[object]) -> float:
    """Jaccard similarity of two selections: shared over all; 1 for two empty ones."""
    a, b = set(first), set(second)
    return len(a & b) / len(a | b) if a | b else 1.0


def _random_terms(corpus: Embedded, problem: Problem) -> tuple[float, float]:
    """What a random selection scores: (0, 0) by definition of the calibration, else measured on one."""
    if problem.settings.calibrate:
        return 0.0, 0.0
    order = problem.generator(stream=13).permutation(len(problem))
    mask = np.zeros(len(problem), dtype=bool)
    mask[order] = np.cumsum(problem.limits.weights[order]) <= problem.size
    return _terms(corpus, problem.objective.evaluate(torch.from_numpy(mask)).terms)


def wished_quality(wish: str) -> float | None:
    """The least mean quality that a wish such as "quality=0.9" names; None for "knee".

    :raises ConfigError: another wish; says which there are.
    """
    if wish == "knee":
        return None
    name, equals, value = wish.partition("=")
    try:
        least = float(value)
    except ValueError:
        least = float("nan")
    if name.strip() != "quality" or not equals or not np.isfinite(least):
        raise ConfigError(f"--pick {wish}: valid are knee, or quality=NUMBER, the least mean quality, e.g. quality=0.9")
    return least


def pick_point(front: Sweep, wish: str) -> Point:
    """The point a wish names: "knee", or "quality=0.9": the most diverse whose mean quality is at least that.

    :raises ConfigError: see `wished_quality`; or a quality no point reaches.
    """
    least = wished_quality(wish)
    if least is None:
        return front.points[front.knee]
    found = [point for point in front.points if point.mean_quality >= least]
    if not found:
        best = max(point.mean_quality for point in front.points)
        raise ConfigError(f"--pick {wish}: no λ reaches that mean quality; the greatest is {best:.4f}, at λ = 1")
    return min(found, key=lambda point: point.lamb)


def envelope(points: Sequence[Point]) -> list[dict[str, float]]:
    """The certificates as one curve: for each quality the greatest diversity that no bound forbids.

    Every selection satisfies λ·quality + (1 − λ)·diversity ≤ bound(λ), for every λ.
    """
    bounds = [(point.lamb, point.upper_bound) for point in points if point.upper_bound is not None]
    low, high = min(point.quality for point in points), max(point.quality for point in points)
    limit = min((bound / lamb for lamb, bound in bounds if lamb == 1), default=high)
    rows = []
    for quality in np.linspace(low, min(high, limit), 101):
        most = [(bound - lamb * quality) / (1 - lamb) for lamb, bound in bounds if lamb < 1]
        if most:
            rows.append({"quality": float(quality), "diversity": float(min(most))})
    return rows
