"""The maps of `cover.cover_shards`: lay out a group's rows of atoms, price them, take some; and solve a part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch

from datamask.config import Config
from datamask.devices import pick_device
from datamask.maps import Handed, Mapper, mapped, write_array
from datamask.selection.cover.atoms import (
    JUDGED,
    AtomRows,
    Atoms,
    bend_column,
    beside,
    counted_words,
    kernel,
    least_hashes,
    quality_ranges,
    saturates,
    targets_of,
    weighs_documents,
    word_rows,
    word_worth,
)
from datamask.selection.cover.counting import target_of
from datamask.selection.cover.curves import SummedCoverage
from datamask.selection.cover.greedy_search import Effort
from datamask.selection.cover.solve import ACCURACY, STEPS, best_alone, span_of_objective, to_mask
from datamask.selection.cover.tangent import Concave, maximise
from datamask.selection.metrics import metric_class
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.problem.problem import Term, weigh_terms
from datamask.selection.sharded.driver import GroupDriver
from datamask.selection.sharded.grouped_corpus import Group, Round, hands_on, quality_of, weights_of
from datamask.selection.sparse_rows import index_type

SAMPLED = 1 << 17  # documents of a sample, at most
RANDOM_SETS = 8  # random selections averaged for a term's zero
BRIEF = 0.25  # of the usual search for a mask: one process works alone meanwhile
UNDECIDED = ACCURACY / 2  # tolerance of the undecided alone, so that solves of them come within `ACCURACY` of the bound


@dataclass(frozen=True, eq=False)
class Covering(Round):
    """The state of a round."""

    anchors: Handed | None = None  # (a, d) unit rows
    share: float = 0.0  # the budget as a share of the corpus
    width: int = 0  # J
    ranges: np.ndarray | None = None  # (Q, 2) of quality, if the pool's documents count by it
    slopes: Sequence[np.ndarray] = ()  # (J,) each: the gradients at which documents are priced


@hands_on("sketch")
def sample_group(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: the hashes (n,) of a group's documents, the least of them in their order, the unit rows of the first of
    these, which may be anchors, and the qualities of the first JUDGED (Q each)."""
    settings, features = state.settings, group.shard.features()
    pool = Pool(features, np.zeros(len(features)))
    hashes = row_hashes(features, settings.seed)
    anchors = settings.coverage.anchors if "coverage-embedding" in settings.metrics else 0
    least = least_hashes(hashes, max(anchors, JUDGED))
    kept = {"rows": pool.rows(least[:anchors]).numpy(), "judged": quality_of(group.shard)[least[:JUDGED]]}
    return dict(hashes=hashes, least=hashes[least], **kept)


@hands_on("laid")
def write_atoms(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: writes a group's rows of atoms as flat files.

    Hands on the rows' lengths (n,), the state (J,) of the whole group, the same with documents counted by their worth,
    the states (S, J) of random selections and what these spend (S,).
    """
    settings = state.settings
    blocks: list[AtomRows] = []
    if state.anchors is not None:
        pool = Pool(group.shard.features(), np.zeros(len(group.shard)), device=pick_device(settings.device))
        blocks.append(kernel(pool, state.anchors.read("rows")[0], settings.coverage.temperature))
    weights = weights_of(settings, group.shard)
    if settings.metrics.keys() != {"coverage-embedding"}:
        blocks += word_rows(settings, group.shard.ngrams(), weights)  # type: ignore[attr-defined]
    rows = reduce(beside, blocks)
    for part, array in (("start", rows.start), ("index", rows.index), ("value", rows.value)):
        write_array(_part(state, group.number, part), array)
    by = np.zeros(0)
    if state.ranges is not None:
        quality = quality_of(group.shard)
        by = rows.state(weights * word_worth(quality, np.full(quality.shape[1], 1 / quality.shape[1]), state.ranges))
    drawn = np.random.default_rng([settings.seed, 17, group.number]).random((RANDOM_SETS, len(weights))) < state.share
    return {
        "length": np.diff(rows.start).astype(np.int32),
        "state": rows.state(weights),
        "worth": by,
        "random": np.stack([rows.state(weights * chosen) for chosen in drawn]),
        "spent": drawn @ weights,
        "bend": np.array(bend_column(settings, rows.width, blocks[-1].width)),
    }


@hands_on("taken")
def read_undecided(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's rows of the documents `at`, and of those that are selected beside them (`inside`) the state (J,)
    and the quality's part of the objective (`offset`)."""
    at, inside = group.given("at", "inside")
    rows, mass = _laid(state, group.number), weights_of(state.settings, group.shard) * inside / state.size
    taken = rows.take(at)
    arrays = {"start": taken.start, "index": taken.index, "value": taken.value}
    return dict(**arrays, state=rows.state(mass), offset=np.asarray(mass @ state.linear(group.shard)))


@hands_on("price")
def price_group(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's prices (n,) at each of the slopes, `price_<number>`: scaled quality + ⟨slope, A_i⟩."""
    rows, linear = _laid(state, group.number), state.linear(group.shard)
    return {f"price_{place}": linear + rows.scores(slope) for place, slope in enumerate(state.slopes)}


def _laid(state: Covering, number: int) -> AtomRows:
    start, index, value = (mapped(_part(state, number, part)) for part in ("start", "index", "value"))
    return AtomRows(start, index, value, state.width)


def _part(state: Covering, number: int, part: str) -> str:
    return f"{state.folder}/rows-{number}-{part}.npy"


# ---------------------------------------------------------------- a part of the problem, on one worker


@dataclass(frozen=True, eq=False)
class UndecidedProblem:
    """The problem of m documents with the rest of the corpus fixed."""

    taken: Sequence[Handed]  # their rows of atoms
    joint: SummedCoverage  # without rows; `held` is the state of the fixed documents
    linear: np.ndarray  # (m,)
    limits: Limits  # what is left of the limits for them
    size: float  # the whole budget
    offset: float  # the linear sum of the selected documents outside the part
    tolerance: float
    p: np.ndarray | None = None  # (m,) the start

    def concave(self) -> tuple[Concave, SummedCoverage]:
        """The part as a concave problem, and its coverage with the rows read into memory."""
        joint = replace(self.joint, rows=self._rows())
        base = None if joint.held is None else [joint.held]
        linear = torch.from_numpy(self.linear)
        return Concave([joint], [1.0], linear, Feasible(self.limits), self.size, base, self.offset), joint

    def _rows(self) -> AtomRows:
        """Reads the rows, one group at a time, into arrays allocated once."""
        counts = [taken.read("start")[0] for taken in self.taken]
        ends = np.cumsum([start[-1] for start in counts])
        index, value = np.empty(ends[-1], index_type(self.joint.rows.width)), np.empty(ends[-1], np.float32)
        first = 0
        for taken, end in zip(self.taken, ends.tolist(), strict=True):
            index[first:end], value[first:end] = taken.read("index", "value")
            first = end
        lengths = np.concatenate([np.diff(start) for start in counts])
        return AtomRows(np.concatenate([[0], np.cumsum(lengths)]), index, value, self.joint.rows.width)


class PartSolution(NamedTuple):
    """The fractional optimum of a part."""

    p: np.ndarray  # (m,)
    state: np.ndarray  # (J,) of the whole corpus
    value: float
    history: list[dict[str, float]]


def solve_fractions(state: Covering, part: UndecidedProblem) -> PartSolution:
    """The fractional optimum of a part, on one worker."""
    concave, _ = part.concave()
    feasible = concave.feasible
    start = feasible.uniform_start() if part.p is None else feasible.project(torch.from_numpy(part.p))
    history: list[dict[str, float]] = []
    found = maximise(concave, start, part.tolerance, STEPS, history.append)
    return PartSolution(found.p.numpy(), found.states[0], found.value, history)


def search_mask(state: Covering, item: tuple[UndecidedProblem, np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
    """The best mask (m,) found from a part's fractional optimum, and the state (J,) of the corpus with it.

    Rounded, the optimum loses the less the more documents are selected, for it has no more fractional ones; what is as
    near to it as it is to its bound (`tolerance`) is not searched further.

    item: a part, the optimum's prices (m,), and how many documents outside the part are selected.
    """
    part, price, beside_it = item
    concave, joint = part.concave()
    assert part.p is not None
    relaxed = torch.from_numpy(part.p)
    mask = concave.feasible.round(relaxed, torch.from_numpy(price)).numpy()
    best, rounded = concave.values(torch.stack([relaxed, torch.from_numpy(mask).double()])).tolist()
    if best - rounded > part.tolerance:
        share = mask.sum() / max(mask.sum() + beside_it, 1)
        scale = part.tolerance / UNDECIDED * share
        settings = state.settings
        effort = Effort(search=BRIEF * settings.coverage.search, seed=settings.seed)
        mask = to_mask(concave, joint, torch.from_numpy(price), mask, scale, effort, relaxed)
    return mask, concave.states(torch.from_numpy(mask).double())[0]


class OwnBest(NamedTuple):
    """An item of `calibrate_metric`: one coverage metric, on some documents of the sample."""

    joint: SummedCoverage
    taken: Sequence[Handed]
    weights: np.ndarray  # (m,) of the sample
    at: np.ndarray  # (n,) the documents' places in the sample
    share: float  # the budget as a share of the corpus


def calibrate_metric(state: Covering, item: OwnBest) -> float:
    """The best value found of the metric."""
    nothing = np.zeros(len(item.weights))
    limits = Limits(item.weights, item.share * float(item.weights.sum()))
    rows = UndecidedProblem(item.taken, item.joint, nothing, limits, limits.size, 0.0, 0.0).concave()[1].rows
    weights = item.weights[item.at]
    size = item.share * float(weights.sum())
    plain = Limits(weights, max(1.0, round(size)) if (item.weights == 1).all() else size)
    joint = replace(item.joint, rows=rows.take(item.at))
    generator = np.random.default_rng([state.settings.seed, 19, len(item.at)])
    chosen = fill_in_order(plain, generator.permutation(len(item.at)))
    zero = joint.of_state(joint.state(chosen * weights / plain.size))
    return max(best_alone(joint, plain, zero), zero)


# ---------------------------------------------------------------- the corpus


class CoverCorpus(GroupDriver):
    """The corpus's rows of atoms, its terms and their objective."""

    def __init__(self, shards: Sequence[Any], config: Config, maps: Mapper, folder: str) -> None:
        super().__init__(shards, config, maps, folder)
        self.settings = config.selection
        self.state = Covering(config, folder, share=self.size / self.total, size=self.size)

    def _of_least(self, name: str, count: int) -> np.ndarray:
        """What the sketches hand on of so many documents with the least hashes: their rows of an array."""
        parts = [found.read(name)[0] for found in self.sketched]
        pairs = zip(self.sketched, parts, strict=True)
        least = np.concatenate([found.read("least")[0][: len(part)] for found, part in pairs])
        return np.concatenate(parts)[least_hashes(least, count)]

    def lay_out(self) -> None:
        """Writes all groups' rows of atoms, and measures the corpus's own mixture."""
        self.sketched = self.maps(sample_group, self.state, self.groups, self.rows)
        anchors = np.zeros((0, 0), np.float32)
        if "coverage-embedding" in self.settings.metrics:
            anchors = self._of_least("rows", self.settings.coverage.anchors)
            self.state = replace(self.state, anchors=self.hand("anchors", rows=anchors))
        if weighs_documents(self.settings):
            self.state = replace(self.state, ranges=quality_ranges(self._of_least("judged", JUDGED)))
        self.hashes = self.column(self.sketched, "hashes")
        self.laid = self.maps(write_atoms, self.state, self.groups, self.rows)
        self.lengths = self.column(self.laid, "length")
        self.numbers = sum(int(length.sum(dtype=np.int64)) for length in self.lengths())
        total, random, spent = (
            sum_groups(found.read(name)[0] for found in self.laid) for name in ("state", "random", "spent")
        )
        self.state = replace(self.state, width=len(total))
        target = target_of(self.settings)
        words = total[len(anchors) :]
        if self.state.ranges is not None:
            by_worth = sum_groups(found.read("worth")[0] for found in self.laid)
            words = counted_words(words, by_worth[len(anchors) :])
        wanted = None if target is None else target.counts(self.settings.coverage.buckets)
        targets = targets_of(self.settings, len(anchors), words, wanted)
        bend = int(self.laid[0].read("bend")[0])
        kind = index_type(len(total))
        nothing = AtomRows(np.zeros(1, np.int64), np.zeros(0, kind), np.zeros(0, np.float32), len(total))
        atoms = Atoms(nothing, targets, bend, anchors, total / self.total)
        self.metrics: list[Coverage] = []
        for name in self.settings.metrics:
            metric = metric_class(name)(None, torch.zeros(0), self.size)  # type: ignore[arg-type]
            assert isinstance(metric, Coverage)
            metric.use_atoms(self.settings, atoms)
            self.metrics.append(metric)
        self.random = random / np.maximum(spent, 1e-300)[:, None]

    def learn(self, room: int) -> None:
        """Calibrates the terms on a sample and joins them to the objective. room: numbers in the sample's rows."""
        settings = self.settings
        sample = self.sample(room, lambda: (np.maximum(length, room // SAMPLED) for length in self.lengths()))
        if sum(map(len, sample)) < 2:
            sample = self.sample(2, self.ones)
        taken = self.take("sample", self.places("sample", sample))
        hashes = np.concatenate([own[at] for own, at in zip(self.hashes(), sample, strict=True)])
        half = hashes < np.median(hashes)
        metric_spans = [(0.0, 1.0)] * len(self.metrics)
        quality_spans = [(0.0, 1.0)] * self.columns
        if settings.calibrate:
            weights, places = self.limits_at(sample).weights, (np.flatnonzero(half), np.arange(len(half)))
            items = [
                OwnBest(SummedCoverage.of([metric], [1.0]), taken, weights, at, self.state.share)
                for metric in self.metrics
                for at in places
            ]
            best = np.reshape(self.maps(calibrate_metric, self.state, items), (-1, 2)).tolist()
            sizes = [len(at) for at in places]
            metric_spans = [self._span_of(metric, sizes, each) for metric, each in zip(self.metrics, best, strict=True)]
            quality_spans = self.spans()
        self.join(quality_spans, metric_spans)

    def join(self, quality_spans: Sequence[tuple[float, float]], metric_spans: Sequence[tuple[float, float]]) -> None:
        """Joins the terms, whose (zero, one) these are, to the objective."""
        settings = self.settings
        terms = [
            Term(name, 0.0, *span, column=column)
            for column, (name, span) in enumerate(zip(self.quality_names, quality_spans, strict=True))
        ]
        pairs = zip(self.metrics, metric_spans, strict=True)
        diversity = [Term(metric.name, 0.0, *span, metric=metric) for metric, span in pairs]
        self.terms, self.diversity = weigh_terms(settings, np.full(self.columns, 1 / self.columns), terms, diversity)
        self.state = replace(self.state, terms=self.terms)
        every = [*self.terms, *self.diversity]
        self.objective_span = span_of_objective(every, settings.calibrate)
        self.joint = SummedCoverage.of(self.metrics, [term.scale for term in self.diversity])

    def _span_of(self, metric: Coverage, sizes: Sequence[int], best: Sequence[float]) -> tuple[float, float]:
        """(zero, one): the mean of random selections, and the corpus's own best, extrapolated from the sample and half
        of it.

        For n-grams, the distance to the greatest possible value is taken as a power of the size; for embeddings, and by
        the saturating curve, the value as linear in 1 / size.
        """
        zero = float(np.mean([metric.of_state(state) for state in self.random]))
        (half, whole), count = sizes, self.count
        if half == whole or best[1] <= best[0]:
            return zero, max(best[1], zero)
        if metric.part == "embedding" or (metric.part == "ngrams" and saturates(self.settings)):
            one = best[1] + (best[1] - best[0]) * (1 / whole - 1 / count) / (1 / half - 1 / whole)
            return zero, max(one, zero)
        used = metric.t > 0
        most = (
            float(metric.t[used] @ np.log(metric.t[used])) - metric.base
        )  # rows add up to 1: the greatest value is at t
        off = [max(most - each, 1e-12) for each in best]
        one = most - off[1] * (off[1] / off[0]) ** float(np.log(count / whole) / np.log(whole / half))
        return zero, max(one, zero)

    @property
    def quality_names(self) -> list[str]:
        """The quality columns' names among the terms."""
        return [f"quality_{column}" for column in range(self.columns)] if self.columns > 1 else ["quality"]

    def state_of(self, name: str, fixed: Sequence[Handed]) -> np.ndarray:
        """The state (J,) of the documents `inside`, (n,) of each group: which of them, or their p."""
        return sum_groups(each.read("state")[0] for each in self.take(name, fixed))

    def take(self, name: str, fixed: Sequence[Handed]) -> list[Handed]:
        return self.maps(read_undecided, replace(self.state, name=name), self.given(fixed), self.rows)


def sum_groups(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """The sum in float64, in the order of the groups, so that it does not depend on which worker was first."""
    total: np.ndarray | None = None
    for array in arrays:
        total = array.astype(np.float64) if total is None else total + array
    assert total is not None
    return total
