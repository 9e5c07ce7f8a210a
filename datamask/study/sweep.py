"""The balance of quality and diversity: the whole front for λ from 0 to 1, with a certificate at each point.

front = sweep_lambdas(load_corpus("out/real", 100_000), np.linspace(0, 1, 11))
front.points[front.knee].lamb

One pool and one calibration for every λ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datamask import storage
from datamask.config import ResolvedSelect
from datamask.console import wide_console
from datamask.errors import ConfigError
from datamask.report import charts, drawing, page
from datamask.report.charts import channel, mark
from datamask.report.formatting import count, number, percent
from datamask.report.sections import Figure, PageSection, chart_grid, table
from datamask.report.terminal import print_table
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover.counting import read_words, reads_words
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Problem, Selection
from datamask.selection.solvers import check_solver
from datamask.study.embedded import Embedded, texts_of

# what `Embedded.measure` says of a point
MEASURED = ("mean_quality", "vendi", "near_duplicates", "length_ratio", "documents", "effective")
LOWEST = -1.0  # a diversity term below (top-quality can be far worse than random) is drawn at the edge, with its value
SHOWN_VALUES = 8  # of a column, in the chart of shares over λ


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
                steps=max(len(solved[place].history) - 1, 0),
                seconds=solved[place].seconds,
                overlap_before=shared,
                shares={name: dict(values) for name, values in measured["shares"].items()},
                **{name: measured[name] for name in MEASURED},
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


# ---------------------------------------------------------------- the front on a page


def point_marks(front: Sweep, point: Point) -> str:
    """ "knee", "chosen", both or neither."""
    found = ["knee"] if point is front.points[front.knee] else []
    return ", ".join([*found, "chosen"] if abs(point.lamb - front.chosen) < 1e-9 else found)


def front_rows(front: Sweep, columns: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Head and a row per λ; `columns`: those whose effective number is shown."""
    head = ["λ", "quality term", "diversity term", "objective", "bound", "gap", "mean quality", "Vendi", "near-dup."]
    head += ["length ratio", *(f"eff. {column}" for column in columns), "shared with λ before", "s", ""]
    body = [
        [
            f"{point.lamb:.2f}",
            number(point.quality),
            number(point.diversity),
            number(point.objective, 4),
            number(point.upper_bound, 4),
            percent(point.gap, 2),
            number(point.mean_quality),
            number(point.vendi, 0),
            percent(point.near_duplicates),
            percent(point.length_ratio, 0),
            *(number(point.effective[column], 1) for column in columns),
            percent(point.overlap_before, 0),
            f"{point.seconds:.1f}",
            point_marks(front, point),
        ]
        for point in front.points
    ]
    return head, body


def front_chart(front: Sweep) -> charts.Chart:
    """Quality against diversity: a point per λ, joined in order, under the curve that no selection can pass."""
    low = max(min(point.diversity for point in front.points), LOWEST)
    points: list[dict[str, Any]] = [
        {
            "quality": point.quality,
            "diversity": point.diversity,
            "height": max(point.diversity, low),
            "lamb": point.lamb,
            "label": f"λ {point.lamb:g}" + (f" (at −{-point.diversity:.1f})" if point.diversity < low else ""),
            "kind": point_marks(front, point).split(", ")[0] or "measured",
            "area": 220 if point_marks(front, point) else 60,
            "mean_quality": point.mean_quality,
            "vendi": point.vendi,
            "near_duplicates": point.near_duplicates,
        }
        for point in front.points
    ]
    calibrated = "(0 random, 1 the best possible)"
    place = {
        "x": channel("quality:Q", title=f"quality term {calibrated}", scale={"zero": False}),
        "y": channel("height:Q", title=f"diversity term {calibrated}", scale={"zero": False}),
    }
    shapes = {"domain": ["measured", "knee", "chosen"], "range": ["circle", "diamond", "square"]}
    dots = {
        **place,
        "size": channel("area:Q", scale=None, legend=None),
        "shape": channel("kind:N", scale=shapes, legend={"title": None, "orient": "top"}),
        "tooltip": [
            channel("lamb:Q", title="λ"),
            channel("quality:Q", format=".4f"),
            channel("diversity:Q", format=".4f"),
            channel("mean_quality:Q", title="mean quality", format=".3f"),
            channel("vendi:Q", title="Vendi score", format=".0f"),
            channel("near_duplicates:Q", title="near-duplicates", format=".1%"),
        ],
    }
    inside = [point for point in points if point["diversity"] >= low]
    above = [{**row, "height": row["diversity"]} for row in envelope(front.points) if row["diversity"] >= low]
    name, grey = {**place, "text": {"value": "no selection lies above"}}, {**place, "color": {"value": "gray"}}
    return charts.chart(
        None,
        mark("line", above, strokeDash=[6, 4], strokeWidth=1.5, clip=True, encoding=grey),
        mark("text", above[len(above) // 4 :][:1], dy=-9, align="center", encoding=name),
        mark("line", inside, strokeWidth=2, encoding={**place, "order": channel("lamb:Q")}),
        mark("point", points, filled=True, opacity=1, encoding=dots),
        mark("text", points, dx=10, dy=-8, align="left", encoding={**place, "text": channel("label:N")}),
        height=380,
    )


def share_chart(front: Sweep, column: str) -> charts.Chart:
    totals: dict[str, float] = {}
    for point in front.points:
        for value, share in point.shares[column].items():
            totals[value] = totals.get(value, 0.0) + share
    shown = sorted(totals, key=lambda value: (-totals[value], value))[:SHOWN_VALUES]
    data: list[dict[str, Any]] = []
    for point in front.points:
        shares = point.shares[column]
        data += [{"lamb": point.lamb, "value": value, "share": shares.get(value, 0.0)} for value in shown]
        rest = 1 - sum(shares.get(value, 0.0) for value in shown)
        if len(totals) > len(shown):
            data.append({"lamb": point.lamb, "value": "others", "share": max(rest, 0.0)})
    order = [*shown, "others"] if len(totals) > len(shown) else shown
    encoding = {
        "x": channel("lamb:O", title="λ (0 diversity alone, 1 quality alone)", axis={"labelAngle": 0}),
        "y": channel("value:N", sort=order, title=None, axis={"labelLimit": 150}),
        "color": channel(
            "share:Q", scale={"scheme": "blues"}, legend={"title": "share", "format": "%", "orient": "top"}
        ),
        "tooltip": [channel("value:N"), channel("lamb:Q", title="λ"), channel("share:Q", format=".1%")],
    }
    return charts.chart(data, mark("rect", encoding=encoding), height=24 * len(order))


def render(front: Sweep) -> str:
    columns = list(front.points[0].effective)
    fewest, most = (end(point.documents for point in front.points) for end in (min, max))
    documents = count(most) if fewest == most else f"{count(fewest)} to {count(most)}"
    balance = Figure(
        "front",
        front_chart(front),
        "The front: what a gain in quality costs in diversity",
        "Each mark is the best selection found for one λ. The dashed curve is made of the certificates: no selection of "
        "this size lies above it, so where the marks touch it they cannot be improved. The diamond is the knee: the "
        "mark whose gains over a random selection, in quality times in diversity, make the largest rectangle (Nash's bargaining solution). "
        "The square is the configuration's own λ. A mark whose diversity lies below the chart is drawn at its edge.",
    )
    shares = [Figure(f"share-{column}", share_chart(front, column), f"Share by {column}") for column in columns]
    head, body = front_rows(front, columns)
    knee = front.points[front.knee]
    note = (
        "Terms are calibrated: 0 is a random selection, 1 is the best that quality, or diversity, alone could do. Length ratio: "
        "mean tokens over the pool's. Shared: Jaccard similarity with the selection of the row above. "
        f"All solves together took {front.seconds:.1f} s."
    )
    sampled = "" if front.share >= 1 else f" (a {percent(front.share)} sample of the corpus)"
    lead = (
        f"{len(front.points)} selections of {documents} from {count(front.size)} candidates{sampled}, "
        f"by {front.solver} on {front.algorithm}. The knee is at λ = {knee.lamb:g}; the configuration has λ = {front.chosen:g}."
    )
    sections = [
        PageSection("front", "Quality against diversity", [chart_grid(balance)]),
        PageSection("table", "What changes with λ", [table(head, body, f"{front.chosen:.2f}", note)]),
        PageSection("shares", "Where it comes from", [chart_grid(*shares)]),
    ]
    return page.assemble(f"{front.name}: sweep over λ", f"{front.name}: the balance", lead, sections)


def write_front(folder: str, front: Sweep) -> dict[str, str]:
    paths = page.write_pages(folder, "sweep", asdict(front), page=(".html", render(front)))
    paths["picture"] = storage.join(folder, "front.png")
    picture = charts.picture(front_chart(front), "Quality against diversity for λ from 0 to 1")
    storage.write_content(paths["picture"], drawing.draw_png(picture))
    return paths


def show_sweep(found: Sweep, paths: Mapping[str, str], picked: Point | None, config: Path | None) -> None:
    """Prints a sweep's table, the path of its page and the λ that was picked."""
    console = wide_console()
    head, rows = front_rows(found)
    print_table(console, head, rows, f"{found.chosen:.2f}")
    console.print(f"{len(found.points)} λ in {found.seconds:.1f} s; page: {paths['page']}", soft_wrap=True)
    if picked:
        where = f"written to {config}" if config else f"to use it: --set select.lamb={picked.lamb:g}"
        console.print(f"picked λ = {picked.lamb:g} (mean quality {picked.mean_quality:.3f}); {where}", soft_wrap=True)
