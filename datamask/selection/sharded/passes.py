"""The four reads of `sharded.exchange` as rounds of maps: every worker holds a group of shards' features.

    found = select_shards(shards, config, maps=maps, folder=folder)

The caller holds about 120 bytes a candidate: its weight, marginal value and the limits' charge. Only workers hold
features. One worker solves the undecided, whose features fill `room_bytes`, or more if the budget takes more documents
than that holds. Arrays are passed from round to round by `maps.hand`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from datamask.config import Config
from datamask.devices import pick_device
from datamask.maps import Handed, Mapper, hand, handed, here
from datamask.selection.engine.ascent import Ascent
from datamask.selection.engine.quadratic import Quadratic, prepare, rounding_of, weighted_norms
from datamask.selection.metrics.disf import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits, make_limits
from datamask.selection.problem.objective import scaled_quality
from datamask.selection.problem.pool import Pool, budget
from datamask.selection.sharded import exchange
from datamask.selection.sharded.exchange import (
    CutRange,
    ExchangePlan,
    ExchangeShard,
    Outcome,
    Sketch,
    charge_of,
    facts_of,
    learn,
    make_cut_range,
    merge,
    multipliers_of,
)
from datamask.selection.sharded.prices import Prices, make_prices
from datamask.selection.solvers import relaxation

ROOM_BYTES = 3 << 27  # bytes of the undecided documents' float16 features
SOLVES = 2  # rounds of marginals and solve
OVERFLOW = 1.25  # with more undecided than this many times the room, the range is made anew from exact ranks
EVERYTHING = CutRange(-np.inf, np.inf)
SPARE = 1.25  # the first bound on the sample's hashes lets this many times its expected number through


@dataclass(frozen=True, eq=False)
class Exchanged:
    """The selection from all shards; arrays are (N,), in the order of the shards."""

    selected: np.ndarray
    probability: np.ndarray
    price: np.ndarray
    prices: Prices
    facts: Mapping[str, Any]


class UndecidedTooFew(Exception):
    """The undecided documents cannot meet the limits; the corpus must be gathered and solved as one problem."""


@dataclass(frozen=True, eq=False)
class Exchanging:
    """The state of a round: what every worker is given beside its item."""

    config: Config
    folder: str | None
    round: str = ""
    below: int | None = None  # a bound on hashes: see `exchange.sketch`
    plan: ExchangePlan | None = None
    moments: Sequence[torch.Tensor] = ()
    cut_range: CutRange = EVERYTHING
    chosen: Sequence[torch.Tensor] = ()  # moments of the selection

    @property
    def here(self) -> ExchangePlan:
        """The plan, on this worker's device."""
        assert self.plan is not None
        return replace(self.plan, device=pick_device(self.config.select.device))


class Group(NamedTuple):
    """An item of a round's map: shards whose features are read together."""

    number: int
    shard: ExchangeShard
    first: int  # the row number of its first candidate in the corpus
    numbers: Handed  # weights, quality
    now: Handed | None = None  # the arrays that this round needs, (n,) each


def sketch_group(state: Exchanging, group: Group) -> Handed:
    """Map: the group's part of the sample; the arrays of a `Sketch`."""
    name = f"sketch-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found
    weights, quality = group.numbers.read("weights", "quality")
    made = exchange.sketch(group.shard.features(), weights, quality, state.config.select.seed, group.first, state.below)
    return hand(state.folder, name, **made._asdict())


def marginals_of_group(state: Exchanging, group: Group) -> tuple[Handed, int]:
    """Map: `exchange.marginals` of a group: values, the undecided documents' features, base moments; their number."""
    name = f"marginals-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found, int(found.read("undecided")[0])
    assert group.now is not None
    weights, quality = group.numbers.read("weights", "quality")
    beside, charge = group.now.read("beside", "charge")
    plan = state.here
    moments = _on(plan.device, state.moments)
    made = exchange.marginals(plan, group.shard.features(), weights, quality, moments, beside, charge, state.cut_range)
    base = {f"base_{number}": moment.cpu().numpy() for number, moment in enumerate(made.base)}
    count = len(made.features)
    return hand(
        state.folder, name, marginal=made.marginal, features=made.features, undecided=np.array(count), **base
    ), count


def measure_group(state: Exchanging, group: Group) -> Handed:
    """Map: `exchange.measure` of a group: its part of the upper bound and of the exact objective."""
    name = f"measure-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found
    assert group.now is not None
    weights, quality = group.numbers.read("weights", "quality")
    selected, thresholds = group.now.read("selected", "thresholds")
    plan = state.here
    relaxed, chosen = _on(plan.device, state.moments), _on(plan.device, state.chosen)
    made = exchange.measure(plan, group.shard.features(), weights, quality, selected, relaxed, chosen, thresholds)
    arrays = {f"moment_{number}": moment.cpu().numpy() for number, moment in enumerate(made.moments)}
    for number, pair in enumerate(made.sums):
        if pair is not None:
            arrays |= {f"sums_{number}_{side}": part.cpu().numpy() for side, part in enumerate(pair)}
    return hand(state.folder, name, relaxed=made.relaxed, price=made.price, **arrays)


# ---------------------------------------------------------------- the undecided


@dataclass(frozen=True, eq=False)
class Undecided:
    """The problem of the m undecided documents, with the rest of the corpus fixed."""

    marginals: Sequence[Handed]  # where their features are
    linear: np.ndarray  # (m,) as in `Quadratic`
    limits: Limits  # what is left of the limits for them
    base: Sequence[torch.Tensor]  # moments of the documents that are surely selected
    offset: float  # the linear sum of these


class UndecidedSolution(NamedTuple):
    """The solution of the undecided."""

    chosen: np.ndarray  # (m,) bool
    probability: np.ndarray  # (m,) the fractional optimum
    relaxed: Ascent
    moments: list[torch.Tensor]  # of the mask, computed from prepared rows (bf16 for DiSF)
    level: Any  # the budget's dual price where the bound is attained
    multipliers: np.ndarray  # (R,) the limits' dual prices there
    scale: float  # `Levels.scale` of the length bound, the last of them
    history: list[dict[str, float]]


def solve_undecided(state: Exchanging, posed: Undecided) -> UndecidedSolution:
    """Solves the undecided on one worker, which holds their features in memory."""
    plan, history = state.here, list[dict[str, float]]()
    features = np.concatenate([marginals.read("features")[0] for marginals in posed.marginals])
    pool = Pool(features, np.zeros(len(features)), device=plan.device)
    problem = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        plan.coefficients,
        torch.from_numpy(posed.linear),
        Feasible(posed.limits),
        _on(plan.device, posed.base),
        posed.offset,
    )

    def record(step: dict[str, float]) -> None:
        history.append({name: value + plan.constant for name, value in step.items()})

    relaxed = relaxation.relax(problem, problem.feasible.uniform_start(), relaxation.TOLERANCE, record)
    chosen, _, p = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, record)
    at = multipliers_of(problem, problem.price(relaxed.best))
    relaxed = replace(relaxed, moments=_on("cpu", relaxed.moments), best=_on("cpu", relaxed.best))
    return UndecidedSolution(
        chosen.numpy(), p.numpy(), relaxed, _on("cpu", problem.moments(chosen.double())), *at, history=history
    )


# ---------------------------------------------------------------- the reduces


def select_shards(
    shards: Sequence[ExchangeShard],
    config: Config,
    maps: Mapper = here,
    folder: str | None = None,
    room_bytes: int = ROOM_BYTES,
) -> Exchanged:
    """Runs all rounds and returns the selection.

    shards: none of them empty. folder: for the arrays passed between rounds; None keeps them in memory. room_bytes:
    bytes of the undecided documents' float16 features.

    :raises InputError: as `make_problem`, or no selection is within the limits.
    :raises UndecidedTooFew: see there.
    """
    return _Selecting(shards, config, maps, folder, room_bytes).run()


class Gathered:
    """The corpus as the caller holds it: (N,) arrays without features."""

    def __init__(self, shards: Sequence[ExchangeShard], config: Config, maps: Mapper, folder: str | None) -> None:
        settings = config.select
        self.config, self.maps, self.folder = config, maps, folder
        tokens = np.concatenate([shard.tokens for shard in shards])
        self.unit, self.size, self.weights = budget(settings, len(tokens), tokens)
        groups = {name: np.concatenate([shard.groups[name] for shard in shards]) for name in shards[0].groups}
        self.limits = make_limits(settings, self.weights, self.size, tokens, groups)
        self.quality = np.concatenate(
            [np.asarray(shard.quality, dtype=np.float64).reshape(len(shard), -1) for shard in shards]
        )
        ends = np.cumsum([len(shard) for shard in shards])
        self.parts = [slice(int(end) - len(shard), int(end)) for shard, end in zip(shards, ends, strict=True)]
        self.rows = [len(shard) for shard in shards]
        self.groups = [
            Group(
                number,
                shard,
                part.start,
                self.hand(f"numbers-{number}", weights=self.weights[part], quality=self.quality[part]),
            )
            for number, (shard, part) in enumerate(zip(shards, self.parts, strict=True))
        ]
        self.history: list[dict[str, float]] = []

    def hand(self, name: str, **arrays: np.ndarray) -> Handed:
        """Hands arrays on by this name, or finds those that an interrupted run handed on."""
        return handed(self.folder, name) or hand(self.folder, name, **arrays)


class _Selecting(Gathered):
    def __init__(
        self, shards: Sequence[ExchangeShard], config: Config, maps: Mapper, folder: str | None, room_bytes: int
    ) -> None:
        super().__init__(shards, config, maps, folder)
        self.room_bytes, self.device = room_bytes, pick_device(config.select.device)

    def run(self) -> Exchanged:
        sample = self._sample()
        plan, moments, beside, charge = learn(
            sample, self.limits, self.quality, self.unit, self.config.select, self.device
        )
        known = Pool(sample.features, sample.quality, device=self.device)
        # At least as many undecided as the budget takes: with 40 % of that, two solves ended far from the bound
        # (benchmarks/HISTORY.md, "The room of the undecided").
        budget_takes = int(np.ceil(self.size / self.weights.mean()))
        room = max(budget_takes, self.room_bytes // (2 * sample.features.shape[1]))
        for number in range(SOLVES):
            about = exchange.appraise(plan, known, sample.weights, moments, beside[sample.rows]) - charge[sample.rows]
            stands = exchange.stands_for(len(about), len(self.weights), learned=number == 0)
            cut_range = make_cut_range(about, sample.weights, stands, self.size, room)
            posed = self._pose(f"{number}", plan, cut_range, moments, beside, charge, round(OVERFLOW * room))
            if posed is None:  # the sample misjudged the range: make it from exact ranks, at the cost of one more read
                exact = make_cut_range(self.marginal, self.weights, np.ones(len(self.weights)), self.size, room)
                posed = self._pose(f"{number}-exact", plan, exact, moments, beside, charge, len(self.weights))
                if posed is None:
                    raise UndecidedTooFew
            solved = self._solve(number, plan, posed)
            moments, charge = solved.moments, self._charge(solved)
            beside = self.chosen.astype(np.float64)
        return self._finished(plan, solved, charge, sample.features.shape[1])

    def _sample(self) -> Sketch:
        most, count = 2 * exchange.SAMPLE, len(self.weights)
        bounds = [int(SPARE * most / count * 2**64)] if SPARE * most < count / 2 else []
        for below in (*bounds, None):  # many equal documents may leave too few below the bound: then use none
            state = Exchanging(self.config, self.folder, round="bounded" if below else "all", below=below)
            found = self.maps(sketch_group, state, self.groups, self.rows)
            merged = merge([Sketch(*found[0].read(*Sketch._fields))])
            for each in found[1:]:
                merged = merge([merged, Sketch(*each.read(*Sketch._fields))])
            if len(merged.hashes) >= most or below is None:
                break
        return merged

    def _pose(
        self,
        name: str,
        plan: ExchangePlan,
        cut_range: CutRange,
        moments: Sequence[torch.Tensor],
        beside: np.ndarray,
        charge: np.ndarray,
        most: int,
    ) -> Undecided | None:
        """The problem of the undecided; None if there are more than `most`, or if they cannot meet what is left of the
        budget and the limits."""
        items = [
            group._replace(now=self.hand(f"now-{name}-{group.number}", beside=beside[part], charge=charge[part]))
            for group, part in zip(self.groups, self.parts, strict=True)
        ]
        state = Exchanging(self.config, self.folder, name, plan=plan, moments=_on("cpu", moments), cut_range=cut_range)
        found = self.maps(marginals_of_group, state, items, self.rows)
        self.marginal = np.empty(len(self.weights))
        base: list[np.ndarray] | None = None
        for (marginals, _), part in zip(found, self.parts, strict=True):
            self.marginal[part], *of_group = marginals.read(
                "marginal", *(f"base_{place}" for place in range(len(plan.metrics)))
            )
            base = of_group if base is None else [a + b for a, b in zip(base, of_group, strict=True)]
        assert base is not None
        self.inside, self.index = cut_range.inside(self.marginal), np.flatnonzero(cut_range.undecided(self.marginal))
        if len(self.index) > most:
            return None
        limits = self.limits.part(self.index, self.inside)
        if not fits(limits):
            return None
        linear = scaled_quality(plan.quality, self.quality) / self.size
        offset = float((self.weights * linear)[self.inside].sum())
        files = [marginals for marginals, _ in found]
        return Undecided(files, linear[self.index], limits, [torch.from_numpy(part) for part in base], offset)

    def _solve(self, number: int, plan: ExchangePlan, posed: Undecided) -> UndecidedSolution:
        state = Exchanging(self.config, self.folder, f"{number}", plan=plan)
        [solved] = self.maps(solve_undecided, state, [posed])
        self.history += [{"step": len(self.history) + place, **step} for place, step in enumerate(solved.history)]
        self.chosen, self.probability = self.inside.copy(), self.inside.astype(np.float64)
        self.chosen[self.index], self.probability[self.index] = solved.chosen, solved.probability
        return solved

    def _charge(self, solved: UndecidedSolution) -> np.ndarray:
        """(N,) what the limits' dual prices charge for each document."""
        return charge_of(self.limits, solved.multipliers, solved.scale)

    def _finished(self, plan: ExchangePlan, solved: UndecidedSolution, charge: np.ndarray, width: int) -> Exchanged:
        weights, relaxed = self.weights, solved.relaxed
        thresholds = solved.level + charge
        items = [
            group._replace(
                now=self.hand(
                    f"last-{group.number}", selected=self.chosen[part], thresholds=np.asarray(thresholds[part])
                )
            )
            for group, part in zip(self.groups, self.parts, strict=True)
        ]
        state = Exchanging(
            self.config, self.folder, plan=plan, moments=_on("cpu", relaxed.best), chosen=_on("cpu", solved.moments)
        )
        total: list[torch.Tensor] | None = None
        statistics: list[Any] = [None] * len(plan.metrics)
        at_relaxed, at_chosen = np.empty(len(weights)), np.empty(len(weights))
        for done, part in zip(self.maps(measure_group, state, items, self.rows), self.parts, strict=True):
            names = [f"moment_{place}" for place in range(len(plan.metrics))]
            at_relaxed[part], at_chosen[part], *moments = done.read("relaxed", "price", *names)
            of_group = [torch.from_numpy(moment) for moment in moments]
            total = of_group if total is None else [a + b for a, b in zip(total, of_group, strict=True)]
            for place, metric in enumerate(plan.metrics):
                if isinstance(metric, DiSF):
                    pair = [torch.from_numpy(each) for each in done.read(f"sums_{place}_0", f"sums_{place}_1")]
                    before = statistics[place]
                    statistics[place] = pair if before is None else [a + b for a, b in zip(before, pair, strict=True)]
        assert total is not None
        if broken := self.limits.violations(self.chosen):
            raise UndecidedTooFew(broken[0])
        _, most = Feasible(self.limits).respond(torch.from_numpy(at_relaxed))
        held = weighted_norms(plan.coefficients, relaxed.best)
        bound = most + held + plan.constant
        bound += rounding_of(float(weights @ np.abs(at_relaxed)), most, held, plan.constant, terms=len(weights))
        value = relaxed.value + plan.constant
        outcome = Outcome(self.chosen, total, statistics, bound, value, self.history)
        facts = facts_of(plan, weights, self.quality, outcome)
        prices = make_prices(plan.quality, plan.diversity, total, width, self.size, self.unit == "tokens")
        prices = prices.cut(at_chosen, weights, self.size)
        price = (at_chosen * weights).astype(np.float32)
        return Exchanged(self.chosen, self.probability.astype(np.float32), price, prices, facts)


def fits(part: Limits) -> bool:
    """Whether the undecided documents can, by their sums, fill what is left of the budget and the limits (`part`)."""
    if not 0 < part.size <= float(part.weights.sum()) * (1 + 1e-12):
        return False
    for each in part.groupings:
        there = np.bincount(each.codes, part.weights, minlength=len(each.names))
        if (each.high < 0).any() or (each.low > there).any():
            return False
    return part.length is None or part.length.high >= 0


def _on(device: torch.device | str, moments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [moment.to(device) for moment in moments]
