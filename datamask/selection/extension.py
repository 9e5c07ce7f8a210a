"""Saved prices carried on to new shards: what was decided stays as it is, and new documents are selected beside it.

    extended = extend_prices(all_files, prices, config, work, maps)       # instead of learn_prices
    masks = [mask_shard(files, extended, config, work) for files in all_files]

The files of shards that a selection before decided on are not touched: their masks are found under the keys they have.
A shard is new where none of these decided on it as it is now, its filters included. New documents may take the budget
over all documents less what stays selected, and are selected together, in the mixture with what stays
(`StandingRounds`). The facts say how far the whole is from the best selection of all documents. By that a refresh
decides when to solve again. Coverage alone can be extended; with other metrics all is solved again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.errors import DatamaskError, InputError
from datamask.maps import Handed, Mapper, hand_on, handed, here, rounds
from datamask.pipeline import STAGES
from datamask.selection.cover.counting import target_facts, with_atoms
from datamask.selection.cover.cover_shards import JOINT_NUMBERS, CoverRounds, can_cover
from datamask.selection.cover.shard_maps import solve_fractions
from datamask.selection.problem.limits import GRAIN, Limits, Spent
from datamask.selection.sharded.candidates import CandidateGroup
from datamask.selection.sharded.grouped_corpus import ShardedSelection, UndecidedTooFew
from datamask.selection.stage import (
    PRICES_SCHEMA,
    SelectionRun,
    code_of,
    decided_by,
    gather_groups,
    has_masks,
    inputs_of,
    mask_place,
    write_groups,
)
from datamask.stages import ShardFiles
from datamask.storage import Output

Row = tuple[str, int, int, str]  # shard, candidates, selected, by
EXTENDED_SCHEMA = PRICES_SCHEMA.append(pa.field("by", pa.string()))  # the key of the prices that decided on the shard
FAR = "the optimum with the new documents is too far from the old one"


class MustSolve(DatamaskError):
    """New documents cannot extend the old selection, so all must be selected anew. The message says why."""


def extend_prices(
    all_files: Sequence[ShardFiles], prices: Output, config: Config, work: str, maps: Mapper = here
) -> Output:
    """Selects among the shards that `prices` has not decided on. Publishes what `learn_prices` does, the decisions of
    the new shards alone.

    prices: `learn_prices`' output, or this function's own of an earlier day.
    Facts: those of `prices`, brought up to date; `budget`, the share of it that is spent; `broken`, limits that the
    selection breaks, in words; `decided_by`, the keys of the prices whose decisions stand.

    :raises MustSolve: the new documents cannot be selected beside the others; `learn_prices` can select from all.
    """
    if not can_cover(config.selection):
        repeats, other = config.selection.repeat > 1, f"{config.selection.solver} of {config.selection.metric}"
        asked = "select.repeat" if repeats else other
        raise MustSolve(f"coverage alone, each document once, is selected beside what stays, and not {asked}")
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    ordered = [with_atoms(files, config, work) for files in ordered]
    told = target_facts(ordered, config.selection)
    key = STAGES["prices"].key(
        config, code_of(config), "beside", prices.key, [inputs_of(files, config) for files in ordered]
    )
    url = storage.join(work, "prices", f"prices-{key}.parquet")
    if (found := storage.find_output(url, key)) and has_masks(ordered, config, work, found):
        return found
    started = time.perf_counter()
    with rounds(work, "prices", key) as folder:
        rows, facts = _extend(ordered, prices, SelectionRun(config, work, folder, key), maps)
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=EXTENDED_SCHEMA)
    keys = sorted({row[3] for row in rows})
    facts = {**prices.facts, **facts, **told, "decided_by": keys}
    output = storage.write_output(url, key, EXTENDED_SCHEMA, [table], lambda: facts)
    return replace(output, seconds=time.perf_counter() - started)


def _extend(
    ordered: Sequence[ShardFiles], prices: Output, state: SelectionRun, maps: Mapper
) -> tuple[list[Row], Mapping[str, Any]]:
    config = state.config
    known = _known(config, state.work, prices, ordered)
    if not known:
        raise MustSolve("the saved prices have decided on none of these shards as they are now")
    corpus = gather_groups(ordered, state, maps)
    asked = []
    for number, (files, group) in enumerate(zip(corpus.groups, corpus.candidates, strict=True)):
        decided_on = (known.get(one.shard.name) for one in files)
        asked.append(StandingDecisions(number, group, tuple(one.path if one else "" for one in decided_on)))
    kept = maps(read_standing_decisions, state, asked, corpus.rows)
    present = [(group, own) for group, own in zip(corpus.candidates, kept, strict=True) if len(group)]
    if not present:
        raise MustSolve("no document is left to select from")
    shards, stays = zip(*present, strict=True)
    found = StandingRounds(shards, stays, prices.facts["scales"], config, maps, state.folder).run()
    new = {row[0]: row for row in write_groups(corpus, found.decided, state, maps, known)}
    names = [files.shard.name for files in ordered]
    return [(*new[name], state.key) if name in new else known[name].row for name in names], found.facts


class DecidedShard(NamedTuple):
    """A shard that was decided on."""

    path: str
    row: Row


def _known(config: Config, work: str, prices: Output, ordered: Sequence[ShardFiles]) -> dict[str, DecidedShard]:
    """The shards whose decisions stand, by name."""
    table = storage.read_table(prices.path)
    by = decided_by(prices.path, prices.key)
    columns = (table[name].to_pylist() for name in ("shard", "candidates", "selected"))
    before = {row[0]: (*row, by.get(row[0], prices.key)) for row in zip(*columns, strict=True)}
    found = {}
    for files in ordered:
        if row := before.get(files.shard.name):
            path, key = mask_place(files, config, work, row[3])
            if storage.find_output(path, key):
                found[files.shard.name] = DecidedShard(path, row)
    return found


class StandingDecisions(NamedTuple):
    """An item of `read_standing_decisions`: a group of shards, and where their decisions are ("": the shard is new)."""

    number: int
    group: CandidateGroup
    paths: tuple[str, ...]


def read_standing_decisions(state: SelectionRun, item: StandingDecisions) -> Handed:
    """Map: of a group's candidates (n,) which are new, and of the others which are selected, and their p."""
    name = f"stays-of-{item.number}"
    if found := handed(state.folder, name):
        return found
    index, ends = item.group.facts.read("index", "ends")
    new, selected, probability = np.ones(len(index), bool), np.zeros(len(index), bool), np.zeros(len(index), np.float32)
    start = 0
    for path, end in zip(item.paths, ends.tolist(), strict=True):
        if path:
            table, part = storage.read_table(path, ["selected", "probability"]), slice(start, end)
            new[part] = False
            selected[part] = table["selected"].to_numpy()[index[part]]
            probability[part] = table["probability"].to_numpy()[index[part]]
        start = end
    return hand_on(state.folder, name, new=new, selected=selected, probability=probability)


# ---------------------------------------------------------------- the selection


class StandingRounds(CoverRounds):
    """The driver of coverage with documents that are fixed: the search for a mask looks at the new ones alone.

    The calibration is that of the selection that stays. The fractional optimum of all documents starts from the old
    one, and says how far any selection could be above this one.

    kept: of each shard `new` (n,) bool, `selected` (n,) bool and `probability` (n,), both 0 where it is new. scales:
    `Objective.scales` of the selection that the old documents were selected by.

    :raises MustSolve: of `run`: what is left of the budget and the limits cannot be filled by new documents, or they
        are too many for one worker.
    """

    def __init__(
        self,
        shards: Sequence[Any],
        kept: Sequence[Handed],
        scales: Mapping[str, Mapping[str, float]],
        config: Config,
        maps: Mapper,
        folder: str,
    ) -> None:
        super().__init__(shards, config, maps, folder, None)
        self.kept, self.scales = kept, scales

    def init(self) -> None:
        """The terms as they were, and the state before, from which the descent begins."""
        self.new, self.stays, self.spent_before = self._standing()
        self.nothing = is_budget_spent(self.limits_at(self.new), self.spent_before)
        self.lay_out()
        self.greatest_room = self.room  # what takes a greater one is as well solved anew
        pairs = zip(self.lengths(), self.new, strict=True)
        if sum(int(length[at].sum(dtype=np.int64)) for length, at in pairs) > JOINT_NUMBERS:
            raise MustSolve("the new documents are more than one worker holds")
        self._weigh()
        self.begin(self.descend(self._state_before()))

    def step(self) -> None:
        """As for a selection from all documents, whose bound holds for this one too."""
        try:
            super().step()
        except UndecidedTooFew as error:
            raise MustSolve(FAR) from error

    def postprocess(self) -> ShardedSelection:
        """The mask, searched among the new documents."""
        try:
            self.check_optimum()
        except UndecidedTooFew as error:
            raise MustSolve(FAR) from error
        probability = [
            self.hand(f"relaxed-{group.number}", p=self.relaxed_of(group.number).astype(np.float32))
            for group in self.groups
        ]
        try:
            mask, state = (np.zeros(0, bool), None) if self.nothing else self._select()
        except (UndecidedTooFew, InputError) as error:
            raise MustSolve("the new documents cannot fill what is left of the budget and the limits") from error

        def chosen(place: int) -> np.ndarray:
            return self.stays[place].read("inside")[0] if self.nothing else self.of_group(place, mask)

        at = self.state_of("stays", self.stays) if state is None else state
        found = self.finished(chosen, lambda place: probability[place].read("p")[0], at)
        share = (self.spent_before if self.nothing else self.spent + self.own.spent(mask)).weight / self.size
        return replace(found, facts={**found.facts, "budget": share, "broken": []})

    def _standing(self) -> tuple[list[np.ndarray], list[Handed], Spent]:
        """The places of each group's new documents, these with what stays selected (`inside`, (n,) bool) for the next
        round, and what the standing selection spends."""
        index, fixed, spent = [], [], []
        for group, own in zip(self.groups, self.kept, strict=True):
            new, selected = own.read("new", "selected")
            index.append(np.flatnonzero(new))
            fixed.append(self.hand(f"stays-{group.number}", at=index[-1], inside=selected))
            spent.append(self.limits.of(*self.known(group)).spent(selected))
        return index, fixed, reduce(add, spent)

    def _select(self) -> tuple[np.ndarray, np.ndarray]:
        """The mask (m,) of the new documents, and the state (J,) of the corpus with it."""
        posed = self.posed("beside", self.new, self.stays, self.spent_before, None)
        [solved] = self.maps(solve_fractions, self.state, [posed])
        return self.search(replace(posed, p=solved.p), self.price("beside", solved.state))

    def _weigh(self) -> None:
        """The terms as they were: each (zero, one) that gives the saved scale."""
        settings = self.settings
        shares = {metric.name: settings.metrics[metric.name] for metric in self.metrics}
        weights = {name: (1 - settings.lamb) * share / sum(shares.values()) for name, share in shares.items()}
        weights |= dict.fromkeys(self.quality_names, settings.lamb / self.columns)

        def span(name: str) -> tuple[float, float]:
            zero, scale = self.scales[name]["zero"], self.scales[name]["scale"]
            return zero, zero + (weights[name] / scale if scale else 0.0)

        self.join([span(name) for name in self.quality_names], [span(metric.name) for metric in self.metrics])

    def first_p(self, place: int, at: np.ndarray, above: np.ndarray) -> np.ndarray:
        """(m,) the old fractional optimum."""
        return self._p_before(place)[at]

    def _p_before(self, place: int) -> np.ndarray:
        """(n,) the old fractional optimum, and for new documents the budget's share."""
        new, probability = self.kept[place].read("new", "probability")
        return np.where(new, min(1.0, self.size / self.total), probability.astype(np.float64))

    def _state_before(self) -> np.ndarray:
        """The state (J,) of the old fractional optimum."""
        nothing = np.zeros(0, np.int64)
        fixed = [
            self.hand(f"before-{number}", at=nothing, inside=self._p_before(number))
            for number in range(len(self.groups))
        ]
        return self.state_of("before", fixed)


def is_budget_spent(limits: Limits, spent: Spent) -> bool:
    """Whether no new document fits into the rest of the budget.

    limits: the corpus's, on the new documents; spent: by the standing selection.

    :raises MustSolve: what stays selected takes more than the budget, or is outside the limits if nothing is added.
    """
    left = limits.size - spent.weight
    if left < -GRAIN * limits.size:
        raise MustSolve(
            f"what is selected takes {spent.weight:,.0f}, and the budget is {limits.size:,.0f}: documents are gone, or "
            "others were filtered"
        )
    if len(limits.weights) and left > limits.weights.min() - GRAIN * limits.size:
        return False
    if broken := limits.broken(spent):
        raise MustSolve(broken[0])
    return True
