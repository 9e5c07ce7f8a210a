"""Coverage of a corpus too large for one process: shards exchange sums over the atoms, one worker solves the undecided.

    found = CoverRounds(groups, config, folder, maps).run()

    sketch   hashes of the documents, which choose the sample and the anchors
    lay out  each group's rows of atoms once, as flat files that later rounds map into memory; the pool's sums
    learn    on a sample that one worker holds: the calibration
    descend  from the pool's own mixture to the state of nearly the least bound, by quasi-Newton steps. Each is a pass
             over all documents: their prices, and the sums of those above a soft cut
    price    every document at that state; (J,) goes to the groups, one number a document comes back. This also gives a
             bound for the whole corpus
    take     the rows of the undecided, whose price is near the cut, and the state of the documents above them
    solve    the undecided with the others fixed: a new state, at which to price again, until the bound is near

and at last one search for a mask among the undecided. The tangent bound holds at any state, so it is a bound for the
whole corpus however few documents were undecided. A fractional optimum over J atoms has at most J + 1 fractional
documents, so the undecided that one worker can hold are enough for corpora of any size.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import Bounds, minimize

from datamask.config import ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import Handed, mapped, write_array
from datamask.selection import groups
from datamask.selection.cover import atoms
from datamask.selection.cover.counting import target_of
from datamask.selection.cover.greedy_search import Effort
from datamask.selection.cover.solve import ACCURACY, STEPS, best_alone, span_of_objective, to_mask
from datamask.selection.cover.tangent import Concave, maximise
from datamask.selection.metrics import metric_class
from datamask.selection.metrics.coverage import Coverage, SummedCoverage
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.problem.problem import Certificate, Term, weigh_terms
from datamask.selection.sparse_rows import index_type

SAMPLED = 1 << 17  # documents of a sample, at most
JOINT_NUMBERS = 1 << 27  # a corpus with fewer numbers in all rows is solved as one problem, at 24 bytes a number
SAMPLE_ROOM = 1 << 24  # numbers in the rows of a sample, at most
FEW = 1 << 16  # undecided documents of mean length that fit by default: six for each of 10,000 atoms
LIMITED = 1 << 20  # documents on which the limits' dual prices are learned, at most
GROUP_ROWS = (1 << 16, 1 << 17)  # documents of a group; small enough for a hundred short rounds
# The descent's cut is soft: a document counts by the logistic function of its distance from the cut. SOFT are the
# widths of the cut in turn, as shares of the objective's span. With a sharp cut the bound of 1.4 M documents was
# still far above every choice after 60 passes, where a soft one came within .006 of one. A width has done its work
# after TURNS passes, or when the divergence of the two states is below this share, ENOUGH, of it; the descent, when a
# choice is within NEAR of the bound.
SOFT, TURNS, ENOUGH, NEAR = (0.3, 0.1, 0.03, 0.01), 25, 0.25, 0.005
# FINE: the first step assumes that the bound is 1 / FINE² times as stiff as its conjugate part. LEAST_SLOPE: a slope
# stays above this share of the first one.
FINE, LEAST_SLOPE = 0.1, 1e-3
FLATTEST = 1e-6  # least slope, as a share of the greatest; saturated words have none of their own
SOLVES = 8  # solves of the undecided at most
LARGE_SOLVES = 2  # with the greatest room, where a solve takes minutes; 1 M long texts were .8 % off after one
# A solve may move other documents' prices past the cut. Then the solve's state and these shares of the way to it are
# tried, and the state of the least bound says which documents are undecided. Whole steps alone diverge in a small room.
SHORTER = (0.5, 0.25, 0.1, 0.03)
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
    return words * (settings.metrics.keys() != {"coverage-embedding"}) + embedded * atoms.NEAREST * documents


# ---------------------------------------------------------------- what a worker does with a group


@dataclass(frozen=True, eq=False)
class Covering(groups.Round):
    """The state of a round."""

    anchors: Handed | None = None  # (a, d) unit rows
    share: float = 0.0  # the budget as a share of the corpus
    width: int = 0  # J
    ranges: np.ndarray | None = None  # (Q, 2) of quality, if the pool's documents count by it
    slopes: Sequence[np.ndarray] = ()  # (J,) each: the gradients at which documents are priced
    span: float = 0.0  # the objective's, from a random selection to the best


@groups.hands_on("sketch")
def sample_group(state: Covering, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: the hashes (n,) of a group's documents, the least of them in their order, the unit rows of the first of
    these, which may be anchors, and the qualities of the first JUDGED (Q each)."""
    settings, features = state.settings, group.shard.features()
    pool = Pool(features, np.zeros(len(features)))
    hashes = row_hashes(features, settings.seed)
    anchors = settings.coverage.anchors if "coverage-embedding" in settings.metrics else 0
    least = atoms.least_hashes(hashes, max(anchors, atoms.JUDGED))
    kept = {"rows": pool.rows(least[:anchors]).numpy(), "judged": groups.quality_of(group.shard)[least[: atoms.JUDGED]]}
    return dict(hashes=hashes, least=hashes[least], **kept)


@groups.hands_on("laid")
def write_atoms(state: Covering, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: writes a group's rows of atoms as flat files.

    Hands on the rows' lengths (n,), the state (J,) of the whole group, the same with documents counted by their worth,
    the states (S, J) of random selections and what these spend (S,).
    """
    settings = state.settings
    blocks: list[atoms.AtomRows] = []
    if state.anchors is not None:
        pool = Pool(group.shard.features(), np.zeros(len(group.shard)), device=pick_device(settings.device))
        blocks.append(atoms.kernel(pool, state.anchors.read("rows")[0], settings.coverage.temperature))
    weights = groups.weights_of(settings, group.shard)
    if settings.metrics.keys() != {"coverage-embedding"}:
        blocks += atoms.word_rows(settings, group.shard.ngrams(), weights)
    rows = reduce(atoms.beside, blocks)
    for part, array in (("start", rows.start), ("index", rows.index), ("value", rows.value)):
        write_array(_part(state, group.number, part), array)
    by = np.zeros(0)
    if state.ranges is not None:
        quality = groups.quality_of(group.shard)
        alike = np.full(quality.shape[1], 1 / quality.shape[1])
        by = rows.state(weights * atoms.word_worth(quality, alike, state.ranges))
    drawn = np.random.default_rng([settings.seed, 17, group.number]).random((RANDOM_SETS, len(weights))) < state.share
    return {
        "length": np.diff(rows.start).astype(np.int32),
        "state": rows.state(weights),
        "worth": by,
        "random": np.stack([rows.state(weights * chosen) for chosen in drawn]),
        "spent": drawn @ weights,
        "bend": np.array(atoms.bend_column(settings, rows.width, blocks[-1].width)),
    }


@groups.hands_on("taken")
def read_undecided(state: Covering, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: a group's rows of the documents `at`, and of those that are selected beside them (`inside`) the state (J,)
    and the quality's part of the objective (`offset`)."""
    at, inside = group.given("at", "inside")
    rows, mass = _laid(state, group.number), groups.weights_of(state.settings, group.shard) * inside / state.size
    taken = rows.take(at)
    arrays = {"start": taken.start, "index": taken.index, "value": taken.value}
    return dict(**arrays, state=rows.state(mass), offset=np.asarray(mass @ state.linear(group.shard)))


@groups.hands_on("price")
def price_group(state: Covering, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: a group's prices (n,) at each of the slopes, `price_<number>`: scaled quality + ⟨slope, A_i⟩."""
    rows, linear = _laid(state, group.number), state.linear(group.shard)
    return {f"price_{place}": linear + rows.scores(slope) for place, slope in enumerate(state.slopes)}


def _laid(state: Covering, number: int) -> atoms.AtomRows:
    start, index, value = (mapped(_part(state, number, part)) for part in ("start", "index", "value"))
    return atoms.AtomRows(start, index, value, state.width)


def _part(state: Covering, number: int, part: str) -> str:
    return f"{state.folder}/rows-{number}-{part}.npy"


# ---------------------------------------------------------------- a part of the problem, on one worker


@dataclass(frozen=True, eq=False)
class CoverPart(groups.Undecided):
    """The undecided documents' problem of coverage."""

    joint: SummedCoverage  # without rows
    p: np.ndarray | None = None  # (m,) the start

    def concave(self, size: float) -> Concave:
        """The part as a concave problem, its coverage's rows read into memory. size: the whole budget."""
        held = groups.sum_groups(self.taken, "state")
        joint = replace(self.joint, rows=read_rows(self.taken, self.joint.rows.width), held=held)
        linear, feasible = torch.from_numpy(self.linear), Feasible(self.limits)
        return Concave([joint], [1.0], linear, feasible, size, [held], self.offset)


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


class PartSolution(NamedTuple):
    """The fractional optimum of a part."""

    p: np.ndarray  # (m,)
    state: np.ndarray  # (J,) of the whole corpus
    value: float
    history: list[dict[str, float]]


def solve_fractions(state: Covering, part: CoverPart) -> PartSolution:
    """The fractional optimum of a part, on one worker."""
    concave = part.concave(state.size)
    feasible = concave.feasible
    start = feasible.uniform_start() if part.p is None else feasible.project(torch.from_numpy(part.p))
    history: list[dict[str, float]] = []
    found = maximise(concave, start, UNDECIDED * state.span, STEPS, history.append)
    return PartSolution(found.p.numpy(), found.states[0], found.value, history)


def search_mask(state: Covering, item: tuple[CoverPart, np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
    """The best mask (m,) found from a part's fractional optimum, and the state (J,) of the corpus with it.

    Rounded, the optimum loses the less the more documents are selected, for it has no more fractional ones; what is as
    near to it as it is to its bound is not searched further.

    item: a part, the optimum's prices (m,), and how many documents outside the part are selected.
    """
    part, price, beside_it = item
    concave = part.concave(state.size)
    assert part.p is not None
    relaxed = torch.from_numpy(part.p)
    mask = concave.feasible.round(relaxed, torch.from_numpy(price)).numpy()
    best, rounded = concave.values(torch.stack([relaxed, torch.from_numpy(mask).double()])).tolist()
    if best - rounded > UNDECIDED * state.span:
        scale = state.span * mask.sum() / max(mask.sum() + beside_it, 1)
        settings = state.settings
        effort = Effort(search=BRIEF * settings.coverage.search, seed=settings.seed)
        mask = to_mask(concave, torch.from_numpy(price), mask, scale, effort, relaxed)
    return mask, concave.states(torch.from_numpy(mask).double())[0]


class OwnBest(NamedTuple):
    """An item of `calibrate_metric`: one coverage metric, on some documents of the sample."""

    joint: SummedCoverage
    taken: Sequence[Handed]
    weights: np.ndarray  # (m,) of the sample
    at: np.ndarray  # (n,) the documents' places in the sample
    share: float  # the budget as a share of the corpus


def calibrate_metric(state: Covering, item: OwnBest) -> float:
    """The metric's own fractional optimum."""
    rows = read_rows(item.taken, item.joint.rows.width)
    weights = item.weights[item.at]
    size = item.share * float(weights.sum())
    plain = Limits(weights, max(1.0, round(size)) if (item.weights == 1).all() else size)
    joint = replace(item.joint, rows=rows.take(item.at))
    generator = np.random.default_rng([state.settings.seed, 19, len(item.at)])
    chosen = fill_in_order(plain, generator.permutation(len(item.at)))
    zero = joint.of_state(joint.state(chosen * weights / plain.size))
    return max(best_alone(joint, Feasible(plain), zero), zero)


# ---------------------------------------------------------------- the driver


class _Enough(Exception):
    """The descent need not go on."""


class _Reached(NamedTuple):
    """A bound, and the point at which it was found."""

    bound: float
    at: np.ndarray


class _Priced(NamedTuple):
    """Every document's price at a state, per unit of the budget and times size."""

    prices: Callable[[], Iterator[np.ndarray]]  # (n,) of each group
    reduced: groups.ReducedPrices
    bound: float  # of the tangent plane, for the whole corpus


class CoverRounds(groups.GroupDriver):
    """The driver of coverage; its state is one number an atom. Shards have `ngrams()`.

    room: numbers in the undecided documents' rows, by default FEW documents', and JOINT_NUMBERS if these are too few.
    """

    read = staticmethod(read_undecided)

    def init(self) -> None:
        """Lays the corpus out, calibrates the terms on a sample, and descends to a state (J,) at which to price."""
        self.measure()
        self.learn(min(SAMPLE_ROOM, self.greatest_room) - 1)
        self.begin(self.descend(self.joint.mean))

    def measure(self) -> None:
        """Lays the corpus out, and measures the room where it is not given."""
        self.state = Covering(self.config, self.folder, share=self.size / self.total, size=self.size)
        self.room = self.greatest_room = JOINT_NUMBERS if self.given_room is None else self.given_room
        self.grown = False  # whether the room is the greatest, as the first one held too few
        self.p = np.zeros(0)  # (m,) the fractional optimum of the undecided
        self.answers: Feasible | None = None  # of the documents that the limits' prices are learned on
        self.lay_out()
        if self.given_room is None:
            self.room = min(FEW * self.numbers // self.count, self.room)
        self.pricing = self.sample(LIMITED, self.ones) if self.limits.whole else []

    def begin(self, at: np.ndarray) -> None:
        """Prices all documents at the first state (J,)."""
        self.base, [self.best] = at, self.price("0", at)
        self.priced = self.best  # at the last solve's optimum
        self.solves, self.steps = 0, SOLVES + LARGE_SOLVES  # with this room; in all, at most
        self.nearer = True  # whether the last solve lowered the bound

    def step(self) -> None:
        """Solves the documents next to the cut, and prices all at the solution and at shares of the way to it."""
        near = self.nearest(f"{self.done}", self.best.reduced, self.lengths, self.room)
        self.posed_last = self.part(f"{self.done}", near, np.concatenate(self.first_p(near)))
        [self.solved] = self.maps(solve_fractions, self.state, [self.posed_last])
        self.p, self.solves = self.solved.p, self.solves + 1
        states = [self.solved.state, *((1 - share) * self.base + share * self.solved.state for share in SHORTER)]
        prices = self.price(f"{self.done + 1}", *states)
        least = min(range(len(prices)), key=lambda place: prices[place].bound)
        self.nearer, self.priced = prices[least].bound < self.best.bound, prices[0]
        if self.nearer:
            self.best, self.base = prices[least], states[least]
        self.note({"objective": self.solved.value, "upper_bound": self.best.bound})

    @property
    def off(self) -> float:
        """How far the fractional optimum may lie below the best one, as a share of the objective's span."""
        return (self.best.bound - self.solved.value) / self.objective_span

    def terminate(self) -> bool:
        """Whether the bound is near, or a step would solve the same undecided again and no greater room is left."""
        if not self.done:
            return False
        if self.off <= ACCURACY or len(self.p) == self.count:
            return True
        most = LARGE_SOLVES if self.grown else SOLVES
        if self.solves == most or not self.nearer:
            if self.off <= groups.UNSOLVED or self.room == self.greatest_room:
                return True
            self.room, self.grown, self.solves = self.greatest_room, True, 0
        return False

    def check_optimum(self) -> None:
        """:raises UndecidedTooFew: the optimum was not found with the undecided documents that the room holds."""
        self.check_near(self.off, len(self.p), f"{self.room:,} numbers of rows ({FEW:,} documents' by default)")

    def postprocess(self) -> groups.ShardedSelection:
        """The mask, searched among the undecided."""
        self.check_optimum()
        mask, state = self.search(replace(self.posed_last, p=self.p), self.priced)
        return self.finished(lambda place: self.of_group(place, mask), self.relaxed_of, state)

    def descend(self, at: np.ndarray, widths: Sequence[float] = SOFT) -> np.ndarray:
        """The state (J,) of the least bound found from a state, by L-BFGS (Liu & Nocedal 1989) on the bound, softened.

        The bound is convex in the slope y = ∂f / ∂state: the conjugate of the coverage, and the most that documents at
        their prices, linear in y, can give. Its gradient is the state of the documents above the cut less the one of
        which y is the slope. With a soft cut it has a second derivative, and the documents count in fractions.
        """
        used = self.joint.t > 0
        if not used.any() or self.numbers <= self.room:
            return at  # prices are the same at all states, or all documents are solved at once
        first = self.joint.slope(at)[used]
        first = np.maximum(first, FLATTEST * first.max())
        unit = FINE * first / np.sqrt(self.joint.t[used])  # in which the conjugate's second derivatives begin alike
        span, passed = self.objective_span, itertools.count()
        least, most = _Reached(np.inf, at), -np.inf  # the least bound, and the greatest value of a choice
        now = _Reached(np.inf, first / unit)  # the least softened bound of this width

        def bound(scaled: np.ndarray, width: float) -> tuple[float, np.ndarray]:
            nonlocal least, most, now
            number, state = next(passed), self.joint.at_slope(scaled * unit, used)
            [priced], slope = self.price(f"descent-{number}", state), self.joint.slope(state)
            soft = self.soften(f"descent-{number}", priced.reduced, width * span)
            own = self.state_of(f"descent-{number}", soft.fixed)
            conjugate, mine = (self.joint.of_state(each) - float(slope @ each) for each in (state, own))
            softened = conjugate + soft.most / self.size
            most = max(most, mine + soft.worth / self.size)
            least = min(least, _Reached(priced.bound, state), key=lambda each: each.bound)
            now = min(now, _Reached(softened, scaled), key=lambda each: each.bound)
            if conjugate - mine < ENOUGH * width * span or least.bound - most < NEAR * span:
                raise _Enough
            return softened / span, (own - state)[used] * unit / span

        positive = Bounds(LEAST_SLOPE * first / unit)
        options = {"maxfun": TURNS, "maxcor": TURNS, "ftol": 0, "gtol": 0}
        for width in widths:
            start, now = now.at, _Reached(np.inf, now.at)
            with contextlib.suppress(_Enough):
                minimize(bound, start, width, jac=True, method="L-BFGS-B", bounds=positive, options=options)
            if least.bound - most < NEAR * span:
                break
        return least.at

    # ------------------------------------------------------------ the corpus and its terms

    def _of_least(self, name: str, count: int) -> np.ndarray:
        """What the sketches hand on of so many documents with the least hashes: their rows of an array."""
        parts = [found.read(name)[0] for found in self.sketched]
        pairs = zip(self.sketched, parts, strict=True)
        least = np.concatenate([found.read("least")[0][: len(part)] for found, part in pairs])
        return np.concatenate(parts)[atoms.least_hashes(least, count)]

    def lay_out(self) -> None:
        """Writes all groups' rows of atoms, and measures the corpus's own mixture."""
        self.sketched = self.maps(sample_group, self.state, self.groups, self.rows)
        anchors = np.zeros((0, 0), np.float32)
        if "coverage-embedding" in self.settings.metrics:
            anchors = self._of_least("rows", self.settings.coverage.anchors)
            self.state = replace(self.state, anchors=self.hand("anchors", rows=anchors))
        if atoms.weighs_documents(self.settings):
            self.state = replace(self.state, ranges=atoms.quality_ranges(self._of_least("judged", atoms.JUDGED)))
        self.hashes = self.column(self.sketched, "hashes")
        self.laid = self.maps(write_atoms, self.state, self.groups, self.rows)
        self.lengths = self.column(self.laid, "length")
        self.numbers = sum(int(length.sum(dtype=np.int64)) for length in self.lengths())
        total, random, spent = (groups.sum_groups(self.laid, name) for name in ("state", "random", "spent"))
        self.state = replace(self.state, width=len(total))
        target = target_of(self.settings)
        words = total[len(anchors) :]
        if self.state.ranges is not None:
            words = atoms.counted_words(words, groups.sum_groups(self.laid, "worth")[len(anchors) :])
        wanted = None if target is None else target.counts(self.settings.coverage.buckets)
        targets = atoms.targets_of(self.settings, len(anchors), words, wanted)
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
        sample = self.sample(room, lambda: (np.maximum(length, room // SAMPLED) for length in self.lengths()))
        if sum(map(len, sample)) < 2:
            sample = self.sample(2, self.ones)
        taken = self.take("sample", self.places("sample", sample))
        hashes = groups.picked(self.hashes(), sample)
        half = hashes < np.median(hashes)
        spans = dict.fromkeys([*self.quality_names, *settings.metrics], (0.0, 1.0))
        if settings.calibrate:
            weights, places = self.limits_at(sample).weights, (np.flatnonzero(half), np.arange(len(half)))
            items = [
                OwnBest(SummedCoverage.of([metric], [1.0]), taken, weights, at, self.state.share)
                for metric in self.metrics
                for at in places
            ]
            best = np.reshape(self.maps(calibrate_metric, self.state, items), (-1, 2)).tolist()
            sizes = [len(at) for at in places]
            for metric, each in zip(self.metrics, best, strict=True):
                spans[metric.name] = self._span_of(metric, sizes, each)
            spans |= zip(self.quality_names, self.spans(), strict=True)
        self.join(spans)

    def join(self, spans: Mapping[str, tuple[float, float]]) -> None:
        """Joins the terms to the objective. spans: the (zero, one) of each, by name."""
        settings = self.settings
        terms = [Term(name, 0.0, *spans[name], column=column) for column, name in enumerate(self.quality_names)]
        diversity = [Term(metric.name, 0.0, *spans[metric.name], metric=metric) for metric in self.metrics]
        self.terms, self.diversity = weigh_terms(settings, np.full(self.columns, 1 / self.columns), terms, diversity)
        self.objective_span = span_of_objective([*self.terms, *self.diversity], settings.calibrate)
        self.state = replace(self.state, terms=self.terms, span=self.objective_span)
        self.joint = SummedCoverage.of(self.metrics, [term.scale for term in self.diversity])

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
        used = metric.t > 0
        most = (
            float(metric.t[used] @ np.log(metric.t[used])) - metric.base
        )  # rows add up to 1: the greatest value is at t
        off = [max(most - each, 1e-12) for each in best]
        one = most - off[1] * (off[1] / off[0]) ** float(np.log(count / whole) / np.log(whole / half))
        return zero, max(one, zero)

    def state_of(self, name: str, fixed: Sequence[Handed]) -> np.ndarray:
        """The state (J,) of the documents `inside`, (n,) of each group: which of them, or their p."""
        return groups.sum_groups(self.take(name, fixed), "state")

    # ------------------------------------------------------------ prices

    def price(self, name: str, *states: np.ndarray) -> list[_Priced]:
        """Prices every document at each of these states (J,)."""
        slopes = [self.joint.slope(state) for state in states]
        found = self.maps(price_group, replace(self.state, name=name, slopes=slopes), self.groups, self.rows)
        priced = []
        for place, (state, slope) in enumerate(zip(states, slopes, strict=True)):
            prices = self.column(found, f"price_{place}")
            reduced = self.reduced(f"{name}-{place}", prices, self._dual(prices))
            bound = self.joint.of_state(state) - float(slope @ state) + reduced.most / self.size
            priced.append(_Priced(prices, reduced, bound))
        return priced

    def _dual(self, prices: Callable[[], Iterator[np.ndarray]]) -> np.ndarray:
        """(R,) the limits' dual prices, from the documents with the least hashes."""
        if not self.limits.whole:
            return np.zeros(0)
        if self.answers is None:
            limits = self.limits_at(self.pricing)
            share = float(limits.weights.sum()) / self.total
            self.answers = Feasible(limits.sample(np.arange(len(limits.weights)), share))
        some = groups.picked(prices(), self.pricing)
        return self.answers.answer(torch.from_numpy(some))[1].multipliers

    # ------------------------------------------------------------ the undecided

    def part(self, name: str, near: groups.Nearest, start: np.ndarray | None) -> CoverPart:
        """The problem of these documents. start: (m,) their first p.

        :raises UndecidedTooFew: as `pose`.
        """
        posed = self.pose(name, near)
        return CoverPart(posed.taken, posed.linear, posed.limits, self.joint, start)

    def first_p(self, near: groups.Nearest) -> list[np.ndarray]:
        """(m,) of each group: the first p of these documents: the last optimum, or at first which are above the cut."""
        if len(self.p):
            return [self.relaxed_of(place)[at] for place, at in enumerate(near.at)]
        return [above.astype(np.float64) for above in near.above]

    def relaxed_of(self, place: int) -> np.ndarray:
        """(n,) the fractional optimum of a group's documents, as the last solve found it."""
        return self.of_group(place, self.p)

    # ------------------------------------------------------------ the end

    def search(self, posed: CoverPart, priced: _Priced) -> tuple[np.ndarray, np.ndarray]:
        """The mask (m,) of the problem that was posed last, whose fractional optimum is its p, and the corpus's state.

        priced: at that optimum.

        :raises UndecidedTooFew: it breaks a limit.
        """
        price = groups.picked(priced.prices(), self.index)
        beside_it = sum(int(found.read("inside")[0].sum()) for found in self.fixed)
        [(mask, state)] = self.maps(search_mask, self.state, [(posed, price, beside_it)])
        self.check_limits(mask)
        return mask, state

    def finished(
        self, chosen: Callable[[int], np.ndarray], probability: Callable[[int], np.ndarray], state: np.ndarray
    ) -> groups.ShardedSelection:
        """The selection that has this state (J,): (n,) bool `chosen` of each group, by its number."""
        [last], undecided = self.price("chosen", state), int(self.starts[-1])
        decisions = (
            (chosen(place), probability(place), price * self.weights(group) / self.size)
            for place, (group, price) in enumerate(zip(self.groups, last.prices(), strict=True))
        )
        bound, value = min(self.best.bound, last.bound) + self.constant, self.solved.value + self.constant
        raw = {metric.name: metric.of_state(state) for metric in self.metrics}
        return self.finish(decisions, raw, Certificate(bound, value), {"undecided": undecided})
