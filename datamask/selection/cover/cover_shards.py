"""Coverage of a corpus too large for one process: shards exchange sums over the atoms, one worker solves the undecided.

    found = CoverRounds(groups, config, folder, maps).run()

    sketch   hashes of the documents, which choose the sample and the anchors
    lay out  each group's rows of atoms once, as flat files that later rounds map into memory; the pool's sums
    learn    on a sample that one worker holds: the calibration

and then as `selection.price_rounds` has it, from the pool's own mixture: the state is one number for each of J atoms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import Handed, mapped, write_array
from datamask.selection import groups
from datamask.selection.cover import atoms
from datamask.selection.cover.compiled import index_type
from datamask.selection.cover.counting import reads_words, target_of
from datamask.selection.cover.greedy_search import Effort
from datamask.selection.cover.solve import ACCURACY, STEPS, best_alone, span_of_objective, to_mask
from datamask.selection.cover.tangent import Concave, maximise
from datamask.selection.metrics import metric_class
from datamask.selection.metrics.coverage import Coverage, SummedCoverage
from datamask.selection.price_rounds import Rounds
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, least_hashes, row_hashes
from datamask.selection.problem.problem import Certificate, Term, weigh_terms

SAMPLED = 1 << 17  # documents of a sample, at most
JOINT_NUMBERS = 1 << 27  # a corpus with fewer numbers in all rows is solved as one problem, at 24 bytes a number
SAMPLE_ROOM = 1 << 24  # numbers in the rows of a sample, at most
FEW = 1 << 16  # undecided documents of mean length that fit by default: six for each of 10,000 atoms
GROUP_ROWS = (1 << 16, 1 << 17)  # documents of a group; small enough for a hundred short rounds
NO_ANCHORS = np.zeros((0, 0), np.float32)
RANDOM_SETS = 8  # random selections drawn for a term's zero
BRIEF = 0.25  # of the usual search for a mask: one process works alone meanwhile
UNDECIDED = ACCURACY / 2  # tolerance of the undecided alone, so that solves of them come within `ACCURACY` of the bound


def can_cover(settings: ResolvedSelect) -> bool:
    """Whether these settings can be solved by rounds: the relaxation of coverage alone, each document once."""
    alone = all(name.startswith("coverage-") for name in settings.metrics)
    return alone and settings.solver == "relaxation" and settings.repeat == 1


def numbers_of(settings: ResolvedSelect, words: int, documents: int) -> int:
    """How many numbers all rows of atoms hold. words: each document's distinct n-grams, summed over all documents."""
    embedded = "coverage-embedding" in settings.metrics
    return words * reads_words(settings) + embedded * atoms.NEAREST * documents


@dataclass(frozen=True, eq=False)
class Covering(groups.Round):
    """The state of a round."""

    anchors: Handed | None = None  # (a, d) unit rows
    share: float = 0.0  # the budget as a share of the corpus
    width: int = 0  # J
    ranges: np.ndarray | None = None  # (1, 2) of quality, if the pool's documents count by it
    span: float = 0.0  # the objective's, from a random selection to the best
    joint: SummedCoverage | None = None  # without rows

    def laid(self, number: int) -> atoms.AtomRows:
        """The rows of atoms that `write_atoms` wrote of a group."""
        start, index, value = (mapped(_part(self, number, part)) for part in ("start", "index", "value"))
        return atoms.AtomRows(start, index, value, self.width)

    def prices(self, group: groups.Group) -> list[np.ndarray]:
        rows, linear = self.laid(group.number), self.linear(group)
        return [linear + rows.scores(slope) for slope in self.slopes]

    def rows(self, group: groups.Group, at: np.ndarray, mass: np.ndarray) -> dict[str, np.ndarray]:
        rows = self.laid(group.number)
        taken = rows.take(at)
        return {"start": taken.start, "index": taken.index, "value": taken.value, "state": rows.state(mass)}

    def concave(self, posed: groups.Undecided) -> Concave:
        """The undecided documents' problem, its rows read into memory."""
        assert self.joint is not None
        held = groups.sum_groups(posed.taken, "state")
        joint = replace(self.joint, rows=read_rows(posed.taken, self.width), held=held)
        linear, feasible = torch.from_numpy(posed.linear), Feasible(posed.limits)
        return Concave([joint], [1.0], linear, feasible, self.size, [held], posed.offset)

    def solve(self, posed: groups.Undecided) -> groups.Fractions:
        concave = self.concave(posed)
        feasible = concave.feasible
        start = feasible.uniform_start() if posed.p is None else feasible.project(torch.from_numpy(posed.p))
        found = maximise(concave, start, UNDECIDED * self.span, STEPS, lambda step: None)
        return groups.Fractions(found.p.numpy(), found.states[0], found.value)

    def search(self, item: tuple[groups.Undecided, np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Round.search`. Rounded, the optimum loses the less the more documents are selected, for it has no more
        fractional ones; what is as near to it as it is to its bound is not searched further."""
        posed, price, others = item
        concave = self.concave(posed)
        assert posed.p is not None
        relaxed = torch.from_numpy(posed.p)
        mask = concave.feasible.round(relaxed, torch.from_numpy(price)).numpy()
        best, rounded = concave.values(torch.stack([relaxed, torch.from_numpy(mask).double()])).tolist()
        if best - rounded > UNDECIDED * self.span:
            scale = self.span * mask.sum() / max(mask.sum() + others, 1)
            effort = Effort(search=BRIEF * self.settings.coverage.search)
            mask = to_mask(concave, torch.from_numpy(price), mask, scale, effort, relaxed)
        return mask, concave.states(torch.from_numpy(mask).double())[0]


@groups.hands_on("sketch")
def sample_group(state: Covering, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: the hashes (n,) of a group's documents, the least of them in their order, the unit rows of the first of
    these, which may be anchors, and the qualities of the first JUDGED."""
    settings, features = state.settings, group.shard.features()
    pool = Pool(features, np.zeros(len(features)))
    hashes = row_hashes(features, settings.seed)
    anchors = settings.coverage.anchors if "coverage-embedding" in settings.metrics else 0
    least = least_hashes(hashes, max(anchors, atoms.JUDGED))
    kept = {"rows": pool.rows(least[:anchors]).numpy(), "judged": groups.quality_of(group.shard)[least[: atoms.JUDGED]]}
    return dict(hashes=hashes, least=hashes[least], **kept)


@groups.hands_on("laid")
def write_atoms(state: Covering, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: writes a group's rows of atoms as flat files.

    Hands on the rows' lengths (n,), the state (J,) of the whole group, the same with documents counted by their worth,
    the states (S, J) of random selections and what these spend (S,).
    """
    settings, pool, anchors = state.settings, None, NO_ANCHORS
    if state.anchors is not None:
        pool = Pool(group.shard.features(), np.zeros(len(group.shard)), device=pick_device(settings.device))
        [anchors] = state.anchors.read("rows")
    weights = state.weights(group)
    counts = group.shard.ngrams() if reads_words(settings) else None
    rows, bend = atoms.lay_atoms(settings, weights, pool, anchors, counts)
    for part, array in (("start", rows.start), ("index", rows.index), ("value", rows.value)):
        write_array(_part(state, group.number, part), array)
    by = np.zeros(0)
    if state.ranges is not None:
        by = rows.state(weights * atoms.word_worth(groups.quality_of(group.shard), np.ones(1), state.ranges))
    drawn = np.random.default_rng([settings.seed, 17, group.number]).random((RANDOM_SETS, len(weights))) < state.share
    return {
        "length": np.diff(rows.start).astype(np.int32),
        "state": rows.state(weights),
        "worth": by,
        "random": np.stack([rows.state(weights * chosen) for chosen in drawn]),
        "spent": drawn @ weights,
        "bend": np.array(bend),
    }


def _part(state: Covering, number: int, part: str) -> str:
    return f"{state.folder}/rows-{number}-{part}.npy"


def read_rows(taken: Sequence[Handed], width: int) -> atoms.AtomRows:
    """The rows of atoms that groups have handed on, read one group at a time into arrays allocated once."""
    counts = [each.read("start")[0] for each in taken]
    ends = np.cumsum([start[-1] for start in counts])
    index, value = np.empty(ends[-1], index_type(width)), np.empty(ends[-1], np.float32)
    first = 0
    for each, end in zip(taken, ends.tolist(), strict=True):
        index[first:end], value[first:end] = each.read("index", "value")
        first = end
    lengths = np.concatenate([np.diff(start) for start in counts])
    return atoms.AtomRows(np.concatenate([[0], np.cumsum(lengths)]), index, value, width)


def calibrate_metric(state: Covering, item: tuple[SummedCoverage, Sequence[Handed], np.ndarray, np.ndarray]) -> float:
    """Map: a metric's own fractional optimum on some documents of the sample.

    item: the metric; the sample's rows as handed on, and weights (m,); the documents' places (n,) in it.
    """
    joint, taken, all_weights, at = item
    weights = all_weights[at]
    size = state.share * float(weights.sum())
    plain = Limits(weights, max(1.0, round(size)) if (all_weights == 1).all() else size)
    joint = replace(joint, rows=read_rows(taken, state.width).take(at))
    generator = np.random.default_rng([state.settings.seed, 19, len(at)])
    chosen = fill_in_order(plain, generator.permutation(len(at)))
    zero = joint.of_state(joint.state(chosen * weights / plain.size))
    return max(best_alone(joint, Feasible(plain), zero), zero)


class CoverRounds(Rounds):
    """The driver of coverage; its state is one number an atom. Shards have `ngrams()`.

    room: numbers in the undecided documents' rows, by default FEW documents', and JOINT_NUMBERS if these are too few.
    """

    joint: SummedCoverage  # without rows
    room_words = f"{{:,}} numbers of rows ({FEW:,} documents' by default)"

    def init(self) -> None:
        """Lays the corpus out, calibrates the terms on a sample, and descends to a state (J,) at which to price."""
        self.measure()
        self.learn(min(SAMPLE_ROOM, self.greatest_room) - 1)
        self.begin(self.descend(self.joint.mean))

    def measure(self) -> None:
        """Lays the corpus out, and measures the room where it is not given."""
        self.state = Covering(self.config, self.folder, share=self.size / self.total, size=self.size)
        self.room = self.greatest_room = JOINT_NUMBERS if self.given_room is None else self.given_room
        self.lay_out()
        if self.given_room is None:
            self.room = min(FEW * self.numbers // self.count, self.room)

    def _of_least(self, name: str, count: int) -> np.ndarray:
        """What the sketches hand on of so many documents with the least hashes: their rows of an array."""
        parts = [found.read(name)[0] for found in self.sketched]
        pairs = zip(self.sketched, parts, strict=True)
        least = np.concatenate([found.read("least")[0][: len(part)] for found, part in pairs])
        return np.concatenate(parts)[least_hashes(least, count)]

    def lay_out(self) -> None:
        """Writes all groups' rows of atoms, and measures the corpus's own mixture."""
        self.sketched = self.maps(sample_group, self.state, self.groups, self.rows)
        anchors = NO_ANCHORS
        if "coverage-embedding" in self.settings.metrics:
            anchors = self._of_least("rows", self.settings.coverage.anchors)
            self.state = replace(self.state, anchors=self.hand("anchors", rows=anchors))
        if atoms.weighs_documents(self.settings):
            self.state = replace(self.state, ranges=atoms.quality_ranges(self._of_least("judged", atoms.JUDGED)))
        self.hashes = self.column(self.sketched, "hashes")
        self.laid = self.maps(write_atoms, self.state, self.groups, self.rows)
        self.lengths = self.column(self.laid, "length")
        self.numbers = sum(int(length.sum(dtype=np.int64)) for length in self.lengths)
        total, random, spent = (groups.sum_groups(self.laid, name) for name in ("state", "random", "spent"))
        self.state = replace(self.state, width=len(total))
        target = target_of(self.settings)
        worth = None if self.state.ranges is None else groups.sum_groups(self.laid, "worth")
        wanted = None if target is None else target.counts(self.settings.coverage.buckets)
        targets = atoms.targets_of(self.settings, len(anchors), total, worth, wanted)
        bend = int(self.laid[0].read("bend")[0])
        kind = index_type(len(total))
        nothing = atoms.AtomRows(np.zeros(1, np.int64), np.zeros(0, kind), np.zeros(0, np.float32), len(total))
        joined = atoms.Atoms(nothing, targets, bend, anchors, total / self.total)
        self.metrics: list[Coverage] = []
        for name in self.settings.metrics:
            metric = metric_class(name)(None, torch.zeros(0), self.size)  # type: ignore[arg-type]
            assert isinstance(metric, Coverage)
            metric.use_atoms(self.settings, joined)
            self.metrics.append(metric)
        self.random = random / np.maximum(spent, 1e-300)[:, None]

    def learn(self, room: int) -> None:
        """Calibrates the terms on a sample and joins them to the objective. room: numbers in the sample's rows."""
        settings = self.settings
        lengths = groups.PerGroup(lambda: (np.maximum(length, room // SAMPLED) for length in self.lengths))
        sample = self.sample(room, lengths)
        if sum(map(len, sample)) < 2:
            sample = self.sample(2, self.ones)
        taken = self.take_sample(sample)
        hashes = groups.picked(self.hashes, sample)
        half = hashes < np.median(hashes)
        spans = dict.fromkeys(["quality", *settings.metrics], (0.0, 1.0))
        if settings.calibrate:
            weights, places = self.limits_at(sample).weights, (np.flatnonzero(half), np.arange(len(half)))
            joints = [SummedCoverage.of([metric], [1.0]) for metric in self.metrics]
            items = [(joint, taken, weights, at) for joint in joints for at in places]
            best = np.reshape(self.maps(calibrate_metric, self.state, items), (-1, 2)).tolist()
            sizes = [len(at) for at in places]
            for metric, each in zip(self.metrics, best, strict=True):
                spans[metric.name] = self._span_of(metric, sizes, each)
            spans["quality"] = self.quality_span()
        self.join(spans)

    def join(self, spans: Mapping[str, tuple[float, float]]) -> None:
        """Joins the terms to the objective. spans: the (zero, one) of each, by name."""
        settings = self.settings
        quality = Term("quality", 0.0, *spans["quality"], column=0)
        diversity = [Term(metric.name, 0.0, *spans[metric.name], metric=metric) for metric in self.metrics]
        self.terms, self.diversity = weigh_terms(settings, np.ones(1), [quality], diversity)
        self.objective_span = span_of_objective([*self.terms, *self.diversity], settings.calibrate)
        self.joint = SummedCoverage.of(self.metrics, [term.scale for term in self.diversity])
        self.state = replace(self.state, terms=self.terms, span=self.objective_span, joint=self.joint)

    def _span_of(self, metric: Coverage, sizes: Sequence[int], best: Sequence[float]) -> tuple[float, float]:
        """(zero, one): the median of random selections, and the corpus's own best, extrapolated from the sample and
        half of it.

        For n-grams, the distance to the greatest possible value is taken as a power of the size; for embeddings, and by
        the saturating curve, the value as linear in 1 / size.
        """
        zero = float(np.median([metric.of_state(state) for state in self.random]))
        (half, whole), count = sizes, self.count
        if half == whole or best[1] <= best[0]:
            return zero, max(best[1], zero)
        if metric.part == "embedding" or (metric.part == "ngrams" and atoms.saturates(self.settings)):
            one = best[1] + (best[1] - best[0]) * (1 / whole - 1 / count) / (1 / half - 1 / whole)
            return zero, max(one, zero)
        t = metric.t[metric.t > 0]
        most = float(t @ np.log(t)) - metric.base  # rows add up to 1: the greatest value is at t
        off = [max(most - each, 1e-12) for each in best]
        one = most - off[1] * (off[1] / off[0]) ** float(np.log(count / whole) / np.log(whole / half))
        return zero, max(one, zero)

    def finished(self, chosen: groups.Arrays, probability: groups.Arrays, state: np.ndarray) -> groups.ShardedSelection:
        [last], undecided = self.price("chosen", state), sum(map(len, self.near.at))
        bound, value = min(self.best.bound, last.bound) + self.constant, self.solved.value + self.constant
        raw = {metric.name: metric.of_state(state) for metric in self.metrics}
        decisions = chosen, probability, last.prices
        return self.finish(decisions, raw, Certificate(bound, value), {"undecided": undecided})
