"""What the page shows, as plain bounded data: computed once from the stages' files, stored as report.json.

    findings = find_findings(all_files, config, certificate, stages)
    findings.arms[-1]["vendi"], findings.certificate["gap"]

Arms are always compared at the same size: `pool` and `random` are samples as large as the selection, `top-quality`
is what a threshold on quality_score keeps of the same candidates. Every sample is drawn by a seeded generator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from datamask.config import Config
from datamask.corpus.read import TOPIC
from datamask.duck import connect
from datamask.filter.forgotten import REASON
from datamask.maps import Mapper, here
from datamask.release.merge import LENGTH
from datamask.report import examples, losses, statistics
from datamask.report.embedding_sample import (
    GROUP_COLUMNS,
    LEAST_FILLED,
    Sample,
    Vectors,
    grouping_columns,
    read_sample,
    value_names,
)
from datamask.report.formatting import percent
from datamask.report.tally import GroupCounts, Tally
from datamask.shares import tell_share
from datamask.stages import ShardFiles

POOL, RANDOM, TOP, OURS = "pool", "random", "top-quality", "selected"
ARMS = (POOL, RANDOM, TOP, OURS)
SAMPLE_ROWS = 1_000_000  # rows whose small columns are held in memory
ARM_ROWS = 50_000  # documents of an arm whose vectors are compared
NEIGHBOUR_QUERIES = 2_000  # documents whose nearest neighbour in the arm is looked up
GROUP_VALUES = 14  # bars of a group chart; the rest is "other"
ONE_POINT = 0.95  # median cosine of pairs: SemDeDup's ε, at which half of a topic's pairs would be near-duplicates
MIXED = 0.5  # share of the most frequent language, below which a topic has no language of its own
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class StageTime:
    """What a stage cost: shards done now, shards whose file was there already, seconds of work (not of waiting)."""

    stage: str
    done: int
    cached: int
    seconds: float


@dataclass(frozen=True)
class Findings:
    """Everything on the page. Plain JSON values only; bounded however large the corpus."""

    name: str
    totals: Rows  # outcome, documents, tokens: exact
    settings: dict[str, Any]
    certificate: dict[str, Any]
    size: int  # documents of an arm
    sampled: float  # share of the corpus's rows behind the distributions
    arms: Rows  # arm, documents, mean_quality, <scorer>, vendi, near_duplicates, …
    quality: Rows  # scorer, arm, low, high, share
    percentiles: Rows  # scorer, arm, p1 … p99
    correlations: Rows  # scorer, with, value, kind
    neighbours: Rows  # arm, low, high, share
    lengths: Rows  # arm, low, high, share
    groups: dict[str, Rows]  # column -> value, arm, share
    map: Rows = field(default_factory=list)  # x, y, panel, document
    examples: Rows = field(default_factory=list)
    duplicates: dict[str, Any] = field(default_factory=dict)
    stages: Rows = field(default_factory=list)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)  # column -> groups beside the pool, worst first
    signals: Rows = field(default_factory=list)  # junk signals of the chosen beside the candidates', worst first
    pairs: Rows = field(default_factory=list)  # dropped and kept documents side by side
    warnings: Rows = field(default_factory=list)  # worst first; see `losses`
    unread: dict[str, Any] = field(default_factory=dict)  # failed, skipped -> count, files of the input
    release: dict[str, str] = field(default_factory=dict)  # version, created, datamask, input
    personal: dict[str, int] = field(default_factory=dict)  # documents and kinds -> count, where it was looked for
    # name, documents, selected, share, share_selected, remark; the largest first
    topics: Rows = field(default_factory=list)

    def total(self, *prefixes: str, unit: str = "documents") -> int:
        """Documents (or tokens) whose outcome begins with one of `prefixes`; all of them without any."""
        rows = [row for row in self.totals if not prefixes or row["outcome"].startswith(prefixes)]
        return int(sum(row[unit] for row in rows))

    @property
    def embedded(self) -> bool:
        return "vendi" in self.arms[0]

    @property
    def columns(self) -> list[str]:
        """The group columns there are, the best known first."""
        return sorted(self.groups, key=lambda name: (*GROUP_COLUMNS, name).index(name))

    def arm(self, name: str) -> dict[str, Any]:
        return next(row for row in self.arms if row["arm"] == name)

    def as_json(self) -> dict[str, Any]:
        return plain_json(vars(self))


@threadpool_limits.wrap(limits=1, user_api="blas")  # more wait for each other
def find_findings(
    all_files: Sequence[ShardFiles],
    config: Config,
    certificate: Mapping[str, Any],
    stages: Sequence[StageTime] = (),
    work: str | None = None,
    maps: Mapper = here,
    folder: str | None = None,
) -> Findings:
    """Reads the stages' files and computes everything the page shows.

    :param certificate: what the selection reported: objective, upper_bound, gap, terms, history, …
    :param work: the work folder, for counts that do not fit in memory; None: everything in memory.
    :param maps, folder: who reads the shards, and where what they hand on lies; see `embedding_sample.read_sample`.
    :raises ConservationError: a shard's files disagree about its rows.
    """
    with connect(config.filter.memory_limit, work) as connection:
        tally = Tally(connection, grouping_columns(config))
        sample = read_sample(all_files, config, SAMPLE_ROWS, tally=tally, maps=maps, folder=folder)
        outcomes, warnings = count_losses(tally, config)
        topics = tally.table(TOPIC)
    tell_share(0.04)
    signals = losses.signal_rows(tally.signals())
    generator = np.random.default_rng([config.selection.seed, 7])
    arms = choose_arms(sample, generator, tokens=config.selection.in_tokens)
    compared = {
        arm: np.sort(rows if len(rows) <= ARM_ROWS else generator.permutation(rows)[:ARM_ROWS])
        for arm, rows in arms.items()
    }
    diverse = np.sort(generator.permutation(np.flatnonzero(sample.candidates))[: examples.MAP_POOL])
    disputed = examples.disputed(sample, arms[TOP])
    seen = np.concatenate([*compared.values(), diverse, *disputed.values()])
    vectors = Vectors(sample, seen) if sample.embedded else None
    scorers = [scorer for scorer in sample.scores if scorer != "quality_score"]
    if len(scorers) > 1 or not scorers:
        scorers = ["quality_score", *scorers]
    tell_share(0.08)
    asked = {arm: np.sort(generator.permutation(len(compared[arm]))[:NEIGHBOUR_QUERIES]) for arm in ARMS}
    drawn = examples.draw_map(sample, vectors, compared, diverse, config, generator) if vectors else {}
    tell_share(0.15)
    with ThreadPoolExecutor(2) as pool:  # the map takes half of the time
        placed = pool.submit(examples.place_map, sample, vectors, drawn) if vectors else None
        neighbours, table = [], []
        edges = np.round(np.linspace(0, 1, 41), 3)
        for arm in ARMS:
            row = _arm_row(sample, arm, arms[arm], scorers)
            if vectors:
                features = vectors(compared[arm])
                nearest = statistics.nearest_similarity(features, asked[arm])
                neighbours += histogram(arm, np.clip(nearest, 0, 1), edges)
                row["vendi"] = statistics.vendi_score(features)
                row["mean_cosine"] = statistics.mean_pairwise_cosine(features)
                row["nearest"] = float(np.median(nearest)) if len(nearest) else float("nan")
                row["near_duplicates"] = statistics.near_duplicate_share(nearest)
                del features
            table.append(row)
        tell_share(0.3)
        shown, fallen = examples.unlike(vectors, disputed), examples.draw_pairs(sample)
        rows = np.concatenate([*drawn.values(), *shown.values()])
        wanted = [*fallen.places, *sample.places(rows)]
        documents = sample.documents(wanted, ["id", "url", "text", *grouping_columns(config)])
        tell_share(0.4)
        beside_pool = {POOL: np.arange(len(sample)), TOP: arms[TOP], OURS: arms[OURS]}
        duplicates = examples.describe_groups(fallen, documents) | examples.count_copies(all_files)
        warnings += [*losses.junk_warnings(signals), *losses.pair_warnings(duplicates)]
        warnings += losses.vector_warnings(table[0], config.encoder.model)
        warnings = losses.in_order(warnings)
        tell_share(0.5)
        found = Findings(
            name=config.release.name,
            totals=sample.totals,
            settings=config.resolved.model_dump(mode="json"),
            certificate=dict(certificate),
            size=len(arms[OURS]),
            sampled=sample.rate,
            arms=table,
            quality=[row for scorer in scorers for row in _quality_rows(sample, scorer, beside_pool)],
            percentiles=[row for scorer in scorers for row in _percentile_rows(sample, scorer, beside_pool)],
            correlations=_correlation_rows(sample, scorers),
            neighbours=neighbours,
            lengths=_length_rows(sample, beside_pool),
            groups={column: _group_rows(values, beside_pool) for column, values in sample.groups.items()},
            examples=examples.disagreements(sample, vectors, shown, arms[TOP], compared, documents),
            duplicates=duplicates,
            stages=[asdict(stage) for stage in stages],
            outcomes=outcomes,
            signals=signals,
            pairs=examples.side_by_side(sample, fallen, documents, warnings),
            warnings=losses.told_once(warnings),
            topics=topic_rows(all_files, topics),
        )
        tell_share(0.8)
        return replace(found, map=examples.map_points(sample, drawn, placed.result(), documents) if placed else [])


def count_losses(tally: Tally, config: Config) -> tuple[dict[str, dict[str, Any]], Rows]:
    """(column -> its groups beside the pool, the warnings about them), by exact counts over all rows."""
    settings = config.resolved.model_dump(mode="json")
    tables: dict[str, dict[str, Any]] = {}
    warnings = losses.filter_warnings(tally.table(LENGTH))
    for column in tally.columns:
        groups = tally.table(column)
        warnings += losses.quota_warnings(column, groups, settings)
        if not losses.is_grouping(groups, LEAST_FILLED):
            continue
        tables[column] = losses.outcome_table(groups)
        warnings += losses.loss_warnings(column, groups, settings)
        warnings += losses.selection_warnings(column, groups)
    return tables, warnings


# ---------------------------------------------------------------- arms


def choose_arms(
    sample: Sample, generator: np.random.Generator, tokens: bool = False
) -> dict[str, npt.NDArray[np.intp]]:
    """Rows of each arm, sorted, each as large as the selection (in tokens, where the budget counts tokens)."""
    ours = np.flatnonzero(sample.selected)
    candidates = np.flatnonzero(sample.candidates)
    weights = sample.tokens if tokens else np.ones(len(sample), dtype=np.int64)
    size = int(weights[ours].sum())

    def fill(order: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return np.sort(order[np.cumsum(weights[order]) <= size])

    best = candidates[np.argsort(-sample.quality[candidates], kind="stable")]
    pool = generator.permutation(len(sample))  # whose documents the map shows: none that must be forgotten
    pool = pool[np.array([sample.reason[row] != f"filter:{REASON}" for row in pool.tolist()], bool)]
    return {POOL: fill(pool), RANDOM: fill(generator.permutation(candidates)), TOP: fill(best), OURS: ours}


def _arm_row(sample: Sample, arm: str, rows: npt.NDArray[np.intp], scorers: Sequence[str]) -> dict[str, Any]:
    return {
        "arm": arm,
        "documents": len(rows),
        "mean_quality": _mean(sample.quality[rows]),
        "scores": {scorer: _mean(sample.scores[scorer][rows]) for scorer in scorers},
        "mean_tokens": _mean(sample.tokens[rows]),
        "length_ratio": statistics.length_ratio(sample.tokens[rows], sample.tokens),
        "effective": {
            column: statistics.effective_number(list(_counts(values[rows]).values()))
            for column, values in sample.groups.items()
        },
    }


# ---------------------------------------------------------------- distributions


def histogram(arm: str, values: npt.NDArray[np.floating], edges: npt.NDArray[np.floating]) -> Rows:
    """Share of the arm's documents in each bin; the last bin includes its upper edge."""
    counts, _ = np.histogram(values, edges)
    total = max(len(values), 1)
    return [
        {"arm": arm, "low": float(low), "high": float(high), "share": float(count / total)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def _quality_rows(sample: Sample, scorer: str, arms: Mapping[str, npt.NDArray[np.intp]]) -> Rows:
    values = sample.scores[scorer]
    low, high = (float(edge) for edge in np.nanpercentile(values, [0, 100]))
    edges = np.linspace(low, high if high > low else low + 1, 41)
    return [{"scorer": scorer, **row} for arm, rows in arms.items() for row in histogram(arm, values[rows], edges)]


def _percentile_rows(sample: Sample, scorer: str, arms: Mapping[str, npt.NDArray[np.intp]]) -> Rows:
    found: Rows = []
    for arm, rows in arms.items():
        values = sample.scores[scorer][rows]
        at = np.nanpercentile(values, PERCENTILES).tolist() if len(values) else [float("nan")] * len(PERCENTILES)
        named = {f"p{percentile}": value for percentile, value in zip(PERCENTILES, at, strict=True)}
        found.append({"scorer": scorer, "arm": arm, **named})
    return found


def _correlation_rows(sample: Sample, scorers: Sequence[str]) -> Rows:
    """Does a scorer measure length, a group, or another scorer? Spearman's ρ for numbers, η² for groups."""
    rows: Rows = []
    for scorer in scorers:
        values = sample.scores[scorer]
        others: dict[str, npt.NDArray[Any]] = {
            "length (tokens)": sample.tokens,
            **{name: sample.scores[name] for name in scorers if name != scorer},
        }
        found = [(name, "ρ", statistics.rank_correlation(values, other)) for name, other in others.items()]
        found += [(name, "η²", statistics.variance_explained(values, own)) for name, own in sample.groups.items()]
        rows += [{"scorer": scorer, "with": name, "kind": kind, "value": value} for name, kind, value in found]
    return rows


def _length_rows(sample: Sample, arms: Mapping[str, npt.NDArray[np.intp]]) -> Rows:
    tokens = np.maximum(sample.tokens, 1)
    if not len(tokens):
        return []
    low, high = np.percentile(tokens, [0.1, 99.9])  # the few beyond count in the bins at the ends
    edges = np.geomspace(low, max(high, 2 * low), 41)
    inside = np.clip(tokens, edges[0], edges[-1])
    return [row for arm, rows in arms.items() for row in histogram(arm, inside[rows], edges)]


def _group_rows(values: npt.NDArray[np.object_], arms: Mapping[str, npt.NDArray[np.intp]]) -> Rows:
    counts = {arm: _counts(values[rows]) for arm, rows in arms.items()}
    named = sorted(counts[POOL], key=lambda value: (-counts[POOL][value], value))
    shown = named if len(named) <= GROUP_VALUES + 1 else named[:GROUP_VALUES]
    found: Rows = []
    for arm, own in counts.items():
        total = max(sum(own.values()), 1)
        found += [{"value": value, "arm": arm, "share": own.get(value, 0) / total} for value in shown]
        if others := named[len(shown) :]:
            rest = sum(own.get(value, 0) for value in others)
            found.append({"value": f"{len(others)} others", "arm": arm, "share": rest / total})
    return found


def topic_rows(all_files: Sequence[ShardFiles], groups: GroupCounts) -> list[dict[str, Any]]:
    """A row for each topic, the largest first: name, documents, selected, the shares of these, and a remark; [] where
    there are no topics.

    :param groups: exact counts by topic over all rows.
    """
    facts = next((files.topics.facts for files in all_files if files.topics), {"topics": ()})
    topics = {topic["name"]: topic for topic in facts["topics"]}
    named = [place for place, value in enumerate(groups.values) if value in topics]
    counts = {"documents": groups.count()[named], "selected": groups.count("selected")[named]}
    shares = {f"share{end}": n / max(n.sum(), 1) for end, n in zip(("", "_selected"), counts.values(), strict=True)}
    rows = []
    for n, topic in enumerate(topics[groups.values[place]] for place in named):
        numbers = {name: values[n].item() for name, values in {**counts, **shares}.items()}
        rows.append({"name": topic["name"], **numbers, "language": topic["language"], "remark": remark(topic)})
    return sorted(rows, key=lambda row: (-row["documents"], row["name"]))


def remark(topic: Mapping[str, Any]) -> str:
    """Why a topic is no good group; empty: it is one. It is judged by the sample on which it was fitted."""
    found = []
    if topic["cosine"] >= ONE_POINT:
        found.append(f"vectors fall on one point (median cosine {topic['cosine']:.2f})")
    if topic["language"] and topic["language_share"] < MIXED:
        found.append(f"mixes languages ({topic['language']} has {percent(topic['language_share'])})")
    return "; ".join(found)


def _counts(values: npt.NDArray[np.object_]) -> dict[str, int]:
    return Counter(value_names(values).tolist())


def _mean(values: npt.NDArray[Any]) -> float:
    return float(np.mean(values, dtype=np.float64)) if len(values) else float("nan")


def plain_json(value: Any) -> Any:
    """JSON without NaN or infinity: those become null."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
