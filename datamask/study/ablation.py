"""Selections of one embedded corpus side by side: every arm at the same budget, over several seeds.

table = ablate(load, seeds=[0, 1, 2])       # load: seed -> Embedded
table.rows[0].columns["Vendi score"]         # an Interval over the seeds

An arm is a name and the settings that differ from the corpus's own. All arms of a seed are judged on one pool and one
set of problems: the objective with each diversity metric at the corpus's own λ, beside its bound, every score,
and every metric's calibrated term.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import stdtrit

from datamask.config import ResolvedSelect, resolve
from datamask.errors import ConfigError, DatamaskError
from datamask.report import charts, formatting, page
from datamask.report.charts import channel, mark
from datamask.report.findings import plain_json
from datamask.report.formatting import Table, count
from datamask.report.sections import Figure, PageSection, chart_grid
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.problem.problem import Problem
from datamask.study.coder import Coder
from datamask.study.embedded import Embedded, choose_documents, names_of, texts_of
from datamask.study.run import read_choices, without_overlap
from datamask.study.targets import RANDOM, Target, bytes_of
from datamask.study.verdict import Judged, conclude, forest

METRICS = ("pairwise", "disf", "facility")
SHARDS = 8  # of the pool sorted by group, for the scope arms
STEPS = 1_000  # of the policy gradient on each metric; published: 5,000
QUICK_STEPS = 400  # of its variants
DRAWS = 8  # random choices of a pool that the judge reads
DIGITS = {"Vendi score": 0, "seconds": 1, "documents": 0}
PERCENT = ("of its bound", "near-duplicates", "length ratio", "labels covered")


@dataclass(frozen=True)
class Arm:
    """One way to select. `scorer`: select by this score instead of quality_score; `shards`: each part on its own."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    scorer: str | None = None
    shards: bool = False


@dataclass(frozen=True)
class Interval:
    """A mean over runs and the half-width of its 95 % confidence interval (Student's t); nan for one run."""

    mean: float
    half_width: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if not self.half_width > 0 else f"{self.mean:.4g} ± {self.half_width:.2g}"


def interval(values: Sequence[float]) -> Interval:
    found = np.asarray([value for value in values if np.isfinite(value)], dtype=np.float64)
    if not len(found):
        return Interval(float("nan"), float("nan"), 0)
    if len(found) == 1:
        return Interval(float(found[0]), float("nan"), 1)
    half = stdtrit(len(found) - 1, 0.975) * found.std(ddof=1) / np.sqrt(len(found))
    return Interval(float(found.mean()), float(half), len(found))


@dataclass(frozen=True)
class Row:
    """An arm over the seeds: an interval per column, or why it could not run."""

    arm: str
    columns: Mapping[str, Interval]
    refused: str = ""


@dataclass(frozen=True)
class Ablation:
    """The table. `judged`: what the training-free coder says of every arm against random draws, where it was asked."""

    name: str
    algorithm: str
    lamb: float
    documents: int  # candidates of a seed's pool
    budget: float  # of a selection, in tokens or documents
    in_tokens: bool
    share: float  # of the corpus's candidates that a seed's pool holds
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    judged: Judged | None = None
    judged_bytes: int = 0  # of every choice


def standard_arms(corpus: Embedded) -> list[Arm]:
    """The arms of the comparison; each scorer has its own top-quality."""
    scorers = [name for name in corpus.sample.scores if name != "quality_score"]
    arms = [Arm("random", {"solver": "random"}), Arm("top-quality", {"solver": "top-quality"})]
    if len(scorers) > 1:
        arms += [Arm(f"top-quality by {name}", {"solver": "top-quality"}, scorer=name) for name in scorers]
    arms += [Arm("semdedup", {"solver": "semdedup"}), Arm("direct", {"solver": "direct"})]
    arms += [
        Arm(f"diversity only, {metric}", {"solver": "relaxation", "algorithm": metric, "lamb": 0.0})
        for metric in METRICS
    ]
    arms += [
        Arm(f"{solver}, {metric}", {"solver": solver, "algorithm": metric, "n_epochs": STEPS})
        for solver in _SOLVERS
        for metric in METRICS
    ]
    covered = ("embedding", "ngrams", *(["target"] if corpus.config.selection.target else []))
    arms += [
        Arm(
            f"relaxation, coverage of {part}",
            {"solver": "relaxation", "algorithm": "coverage", "coverage": {"atoms": {part: 1.0}}},
        )
        for part in covered
    ]
    own = {"solver": "relaxation"}
    arms += [Arm(f"λ {lamb:g}", {**own, "lamb": lamb}) for lamb in (0.0, 0.3, 0.5, 0.7, 0.9)]
    arms += [Arm("scope corpus", own), Arm(f"scope shard ({SHARDS} shards by source)", own, shards=True)]
    base = {"solver": "policy-gradient", "algorithm": "pairwise", "n_epochs": QUICK_STEPS}
    variants: dict[str, dict[str, Any]] = {
        "": {},
        "lr 1 → 0.1": {"max_lr": 1.0, "min_lr": 0.1},
        "lr 100 → 10": {"max_lr": 100.0, "min_lr": 10.0},
        f"{QUICK_STEPS // 5} steps": {"n_epochs": QUICK_STEPS // 5},
        f"{QUICK_STEPS * 4} steps": {"n_epochs": QUICK_STEPS * 4},
        "init same": {"init": "same"},
        "G 16": {"n_rollout": 16},
        "as published": {"published": True},
    }
    return arms + [
        Arm(f"pg pairwise {QUICK_STEPS} steps{': ' + name if name else ''}", {**base, **c})
        for name, c in variants.items()
    ]


_SOLVERS = ("greedy", "policy-gradient", "relaxation")


def ablate(
    load: Callable[[int], Embedded],
    seeds: Sequence[int],
    only: Sequence[str] = (),
    targets: Sequence[Target] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> Ablation:
    """Runs every arm on every seed's pool.

    :param load: a seed's pool; other documents for another seed where the corpus is larger than the pool.
    :param only: parts of the names of the arms wanted; all by default.
    :param targets: texts from outside the pool; given any, the coder (`datamask.study`) reads every arm's choice and
        DRAWS random ones, all cut to the bytes of the smallest, and says what the targets cost after each.
    :raises ConfigError: `only` names no arm, or random alone to be judged; or no seeds.
    :raises InputError: more than half of a target stands in the pool.
    """
    if not seeds:
        raise ConfigError("no seeds; give at least one, three for intervals")
    found: dict[str, list[dict[str, float]]] = {}
    refused: dict[str, str] = {}
    done: list[tuple[Embedded, dict[str, npt.NDArray[np.bool_]]]] = []
    for seed in seeds:
        pool = load(seed)
        arms = [arm for arm in standard_arms(pool) if not only or any(part in arm.name for part in only)]
        if not arms:
            names = ", ".join(arm.name for arm in standard_arms(pool))
            raise ConfigError(f"--only {' '.join(only)} names no arm; the arms are: {names}")
        if targets and all(arm.name == RANDOM for arm in arms):
            raise ConfigError("targets judge arms against random choices; name an arm beside random in --only")
        judge = SelectionJudge(pool, pool.settings(seed=seed))
        choices: dict[str, npt.NDArray[Any]] = {}
        for arm in arms:
            if arm.name in refused:
                continue
            started = time.perf_counter()
            try:
                selected = choose(pool, arm, seed, targets)
            except DatamaskError as error:
                refused[arm.name] = str(error)
                continue
            seconds = time.perf_counter() - started
            found.setdefault(arm.name, []).append({**judge.columns(selected), "seconds": seconds})
            progress(f"seed {seed}  {arm.name}  {seconds:.1f} s")
            choices[arm.name] = selected
        if not done or pool.share < 1:  # where every seed's pool is the whole corpus, it is judged once
            done.append((pool, choices))
    rows = []
    for name, values in found.items():
        rows.append(Row(name, {column: interval([each[column] for each in values]) for column in values[0]}))
    rows += [Row(name, {}, why) for name, why in refused.items()]
    judged_arms = set(found) - {RANDOM} - set(refused)
    judged, limit = _judge(done, targets, set(refused), progress) if targets and judged_arms else (None, 0)
    return Ablation(
        name=pool.config.release.name,
        algorithm=judge.settings.metric,
        lamb=judge.settings.lamb,
        documents=len(pool),
        budget=judge.size,
        in_tokens=judge.settings.in_tokens,
        share=pool.share,
        seeds=tuple(seeds),
        rows=tuple(rows),
        judged=judged,
        judged_bytes=limit,
    )


def _judge(
    done: Sequence[tuple[Embedded, Mapping[str, npt.NDArray[Any]]]],
    targets: Sequence[Target],
    refused: set[str],
    progress: Callable[[str], None],
) -> tuple[Judged, int]:
    """The coder's reading of every arm over the pools, and the bytes of every choice."""
    texts = [texts_of(pool) for pool, _ in done]
    kept, _ = without_overlap(targets, texts[0], names_of(done[0][0]))
    masks = [
        {name: mask for name, mask in choices.items() if name != RANDOM and name not in refused} for _, choices in done
    ]
    limit = min(bytes_of(held, mask) for held, by_arm in zip(texts, masks, strict=True) for mask in by_arm.values())
    limit = min(limit, *(bytes_of(held, np.ones(len(held), bool)) // 2 for held in texts))  # draws repeat nothing
    heard = read_choices(Coder(), list(zip(texts, masks, strict=True)), kept, limit, DRAWS, 3, 0, progress)
    return conclude({"coder": heard}, []).judges[0], limit


# ---------------------------------------------------------------- an arm


def choose(pool: Embedded, arm: Arm, seed: int, judged: Sequence[Target] = ()) -> npt.NDArray[Any]:
    """The arm's selection: (N,) bool, or with `select.repeat` how often each document is taken.

    :param judged: targets whose items a choice for a target must not be told.
    :raises DatamaskError: the solver cannot do what the arm asks, or is not there.
    """
    settings = resolve(pool.settings(seed=seed, quotas=[]), arm.changes)
    quality = pool.scores[arm.scorer] if arm.scorer else pool.quality
    if not arm.shards:
        return choose_documents(pool, settings, judged, quality=quality)
    selected = np.zeros(len(pool), dtype=bool)
    for rows in np.array_split(_by_group(pool), SHARDS):
        part = resolve(settings, _ratio(settings, len(pool)))
        keep = np.zeros(len(pool), dtype=bool)
        keep[rows] = True
        selected[keep] = choose_documents(pool.subset(keep), part, judged, quality=quality[keep])
    return selected


def _ratio(settings: ResolvedSelect, count: int) -> dict[str, float]:
    if settings.budget_tokens:
        raise ConfigError("scope shard needs a token_ratio or a select_ratio; budget_tokens is for scope corpus")
    if settings.token_ratio:
        return {"token_ratio": settings.token_ratio}
    documents = settings.budget_documents
    return {"select_ratio": documents / count if documents else settings.select_ratio or 0}


def _by_group(pool: Embedded) -> npt.NDArray[np.intp]:
    """Rows sorted by source (or the best known group there is), so that the shards differ."""
    for name in ("source", "domain", "language", "dump", "label"):
        if name in pool.groups:
            return np.argsort([str(value) for value in pool.groups[name]], kind="stable")
    return np.argsort(pool.quality, kind="stable")


# ---------------------------------------------------------------- judging


class SelectionJudge:
    """Judges selections of one pool: the objective with each metric beside its bound, and what nobody optimised."""

    def __init__(self, pool: Embedded, settings: ResolvedSelect) -> None:
        pool.require_vectors("a comparison of pairwise, disf and facility")
        self.pool, self.settings = pool, settings
        arrays = pool.pool(settings)
        able = [metric for metric in METRICS if settings.repeat == 1 or metric != "facility"]  # a copy is no nearer
        changes = [{"algorithm": metric, "solver": "relaxation"} for metric in able]
        self.metrics: dict[str, Problem] = {
            str(change["algorithm"]): make_problem(arrays, settings.model_copy(update=change)) for change in changes
        }
        self.bounds = {metric: solve_problem(problem).upper_bound for metric, problem in self.metrics.items()}
        self.size = self.metrics[METRICS[0]].size

    def columns(self, selected: npt.NDArray[Any]) -> dict[str, float]:
        """Column -> value for one selection: (N,) bool, or how often each document is taken."""
        mask = torch.from_numpy(selected)
        measured = self.pool.measure(selected)
        values = {metric: problem.objective.evaluate(mask) for metric, problem in self.metrics.items()}
        found: dict[str, float] = {"documents": measured["documents"]}
        for metric, value in values.items():
            bound = self.bounds[metric]
            found[f"objective: {metric}"] = value.objective
            found[f"of its bound: {metric}"] = float("nan") if bound is None else value.objective / bound
        found |= {f"quality: {name}": score for name, score in measured["scores"].items()}
        found |= {f"diversity: {metric}": value.terms[metric] for metric, value in values.items()}
        found["Vendi score"] = measured["vendi"]
        found["near-duplicates"] = measured["near_duplicates"]
        found["length ratio"] = measured["length_ratio"]
        for name, number in measured["effective"].items():
            found[f"effective {name}"] = number
        if "label" in measured["coverage"]:
            found["labels covered"] = measured["coverage"]["label"]
        return found


# ---------------------------------------------------------------- the table on a page


def cell(name: str, value: Interval | None) -> str:
    """A mean with the half-width of its interval, in the column's own digits."""
    if value is None or value.runs == 0:
        return "–"
    percent = name.startswith(PERCENT)
    if name.startswith("of its bound") and value.mean < 0:
        return "below random"
    scale, unit = (100, " %") if percent else (1, "")
    digits = DIGITS.get(name, 1 if percent or name.startswith("effective") else 3)
    text = f"{scale * value.mean:,.{digits}f}"
    if value.half_width > 0:
        text += f" ± {scale * value.half_width:,.{digits}f}"
    return text + unit


def tables(found: Ablation) -> list[Table]:
    """The objective and what it cost; its terms; what nobody optimised; what the coder says; what could not run."""
    rows = [row for row in found.rows if row.columns]
    names = list(dict.fromkeys(name for row in rows for name in row.columns))
    objective = [name for name in names if name.startswith(("objective:", "of its bound:"))]
    terms = [name for name in names if name.startswith(("quality:", "diversity:"))]
    cost = ["documents", "seconds"]
    made = [
        _table(f"Objective at λ = {found.lamb:g}, with each metric", [*objective, *cost], rows),
        _table("Its terms: every score, and every metric (0 a random choice, 1 the metric's best)", terms, rows),
        _table("What nobody optimised", [name for name in names if name not in (*objective, *terms, *cost)], rows),
    ]
    if found.judged:
        made += _judged(found.judged, found.judged_bytes)
    if refused := [[row.arm, row.refused] for row in found.rows if row.refused]:
        made.append(("What could not run", ["arm", "why"], refused))
    return made


def _table(title: str, names: Sequence[str], rows: Sequence[Row]) -> Table:
    return title, ["arm", *names], [[row.arm, *(cell(name, row.columns.get(name)) for name in names)] for row in rows]


def _judged(judged: Judged, limit: int) -> list[Table]:
    against = {contrast.first: contrast for contrast in judged.against}
    rows = [
        [arm, f"{judged.means[arm]:.4f}", against[arm].interval if arm in against else "–",
         against[arm].says if arm in against else "–"]
        for arm in judged.means
    ]  # fmt: skip
    checks = [[control.name, "yes" if control.passed else "no", control.said] for control in judged.controls]
    title = (
        f"What a model learns, by the coder: bits a byte on targets from outside, after {count(limit)} bytes of each"
    )
    return [
        (title, ["arm", "bits a byte", "minus random", "says"], rows),
        ("The coder's controls: if one fails, its table says nothing", ["control", "passed", "what was seen"], checks),
    ]


def lead(found: Ablation) -> str:
    seeds = ", ".join(str(seed) for seed in found.seeds)
    return (
        f"{count(found.documents)} candidates of {found.name}, a budget of {count(found.budget)} {'tokens' if found.in_tokens else 'documents'}, the configuration's own "
        f"setting is {found.algorithm} at λ = {found.lamb:g}; means over seeds {seeds}"
        + (f" with 95 % intervals (Student's t). {_seeds(found)}" if len(found.seeds) > 1 else ".")
    )


def _seeds(found: Ablation) -> str:
    drawn = "another seed draws other documents into the pool" if found.share < 1 else "the pool is all there is"
    return f"Of the seeds: {drawn}, and the solver's chances are others."


def markdown(found: Ablation) -> str:
    return formatting.markdown(lead(found), tables(found))


def render(found: Ablation) -> str:
    figures: list[Figure] = []
    if scatter := _scatter(found):
        note = "Right is better quality, up is a more diverse choice. An arm that has another to its upper right is beaten in both."
        figures.append(Figure("arms", scatter, "Quality and diversity of every arm", note))
    if found.judged:
        title = "What a model learns from each choice, against a random one"
        note = "Left of the line is better. Bars are 95 % intervals: one that crosses the line is not told apart. Hollow: a control failed."
        figures.append(Figure("judged", forest([found.judged]), title, note))
    pictures = PageSection("pictures", "At a glance", [chart_grid(*figures)] if figures else [])
    sections = [pictures, *page.table_sections(tables(found))]
    return page.assemble(f"{found.name}: ablation", f"{found.name}: arms side by side", lead(found), sections)


def _scatter(found: Ablation) -> charts.Chart | None:
    rows = [
        {
            "arm": row.arm,
            "quality": row.columns["quality: quality_score"].mean,
            "diversity": row.columns["Vendi score"].mean,
            "duplicates": row.columns["near-duplicates"].mean,
        }
        for row in found.rows
        if "Vendi score" in row.columns and not row.arm.startswith("pg ")
    ]
    if not rows:
        return None
    place = {
        "x": channel("quality:Q", title="mean quality", scale={"zero": False}),
        "y": channel("diversity:Q", title="Vendi score (effective number of directions)", scale={"zero": False}),
    }
    tooltip = [
        channel("arm:N"),
        channel("quality:Q", format=".3f"),
        channel("diversity:Q", title="Vendi score", format=".0f"),
        channel("duplicates:Q", title="near-duplicates", format=".1%"),
    ]
    dots = mark("point", filled=True, size=80, opacity=1, encoding={**place, "tooltip": tooltip})
    labels = mark("text", align="left", dx=8, fontSize=10, encoding={**place, "text": channel("arm:N")})
    return charts.chart(rows, dots, labels, height=420)


def write_ablation(folder: str, found: Ablation) -> dict[str, str]:
    pages = {"page": (".html", render(found)), "markdown": (".md", markdown(found))}
    return page.write_pages(folder, "ablation", plain_json(asdict(found)), **pages)
