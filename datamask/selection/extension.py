"""What was chosen stays, and documents are selected beside it, in the mixture with it.

    extended = extend_prices(all_files, prices, config, work, maps)       # instead of learn_prices: a refresh
    refilled = refill_prices(all_files, release, config, work, maps)      # a release without what must be forgotten

`extend_prices` carries saved prices on to new shards. The files of shards that a selection before decided on are not
touched: their masks are found under the keys they have. A shard is new where none of these decided on it as it is now,
its filters included. New documents may take the budget over all documents less what stays selected. The facts say how
far the whole is from the best selection of all documents. By that a refresh decides when to solve again.

`refill_prices` spends what the release spent. Of the documents that it did not choose those of the highest prices
compete for what has come free, `EACH` times as many tokens.

Both are the driver with documents that are fixed (`StandingRounds`). It is there for coverage alone; with other metrics
all is solved again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from datamask import storage
from datamask.config import BUDGETS, Config
from datamask.errors import DatamaskError, InputError
from datamask.maps import Handed, Mapper, hand_on, handed, here
from datamask.selection import stage
from datamask.selection.candidates import CandidateGroup
from datamask.selection.cover.cover_shards import JOINT_NUMBERS, CoverRounds, can_cover
from datamask.selection.groups import Arrays, Nearest, ShardedSelection, UndecidedTooFew, picked
from datamask.selection.price_rounds import SOFT
from datamask.selection.problem.limits import GRAIN, Limits, Spent
from datamask.stages import ShardFiles
from datamask.storage import Output

FAR = (
    "the new documents cannot fill what is left of the budget and the limits, or the optimum with them is too far from "
    "the old one"
)
EACH = 20  # tokens that compete for one that has come free
LEAST = 20_000  # tokens that compete, at least: a document more or less must not decide


class MustSolve(DatamaskError):
    """What was chosen cannot stay, or nothing be selected beside it, so all is selected anew. The message says why."""


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
    _check(config, "selected beside what stays")
    ordered = stage.with_their_atoms(all_files, config, work)

    def decide(state: stage.SelectionRun) -> stage.SelectionFacts:
        known = _known(config, work, prices, ordered)
        if not known:
            raise MustSolve("the saved prices have decided on none of these shards as they are now")
        corpus = stage.gather_groups(ordered, state, maps)
        kept = _standing(corpus, {name: path for name, (path, _) in known.items()}, state, maps)
        made = _select_beside(corpus, kept, prices.facts["scales"], config, state, maps, known)
        rows = {row[0]: row for row in made.rows} | {name: row for name, (_, row) in known.items()}
        in_order = [rows[files.shard.name] for files in ordered]
        by = sorted({row[3] for row in in_order})
        return stage.SelectionFacts(in_order, {**prices.facts, **made.facts, "decided_by": by})

    return stage.publish_prices(ordered, config, work, ["beside", prices.key], decide)


def _known(
    config: Config, work: str, prices: Output, ordered: Sequence[ShardFiles]
) -> dict[str, tuple[str, tuple[str, int, int, str]]]:
    """The shards whose decisions stand, by name: the mask's path, and the row of the prices."""
    table = storage.read_table(prices.path)
    by = stage.decided_by(prices.path, prices.key)
    columns = (table[name].to_pylist() for name in ("shard", "candidates", "selected"))
    before = {row[0]: (*row, by.get(row[0], prices.key)) for row in zip(*columns, strict=True)}
    found = {}
    for files in ordered:
        if row := before.get(files.shard.name):
            path, key = stage.mask_place(files, config, work, row[3])
            if storage.find_output(path, key):
                found[files.shard.name] = path, row
    return found


class StandingChoice(NamedTuple):
    """What stands of a release: where its decisions are, and its manifest's part that tells of the selection."""

    path: str  # of the release
    key: str
    certificate: dict[str, Any]
    selected: int  # documents
    tokens: int  # of these


def refill_prices(
    all_files: Sequence[ShardFiles], decided: StandingChoice, config: Config, work: str, maps: Mapper = here
) -> Output:
    """Publishes what `learn_prices` does, with the decisions of the release but for what has come free.

    :raises MustSolve: the choice cannot stay: it is not of coverage, or a limit would be broken.
    """
    _check(config, "filled again")
    ordered = stage.with_their_atoms(all_files, config, work)
    in_tokens = config.selection.in_tokens
    spent = decided.tokens if in_tokens else decided.selected
    budget = {"budget_tokens" if in_tokens else "budget_documents": spent}
    select = config.select.model_copy(update={**dict.fromkeys(BUDGETS), **budget})
    as_spent = config.model_copy(update={"select": select})

    def decide(state: stage.SelectionRun) -> stage.SelectionFacts:
        corpus = stage.gather_groups(ordered, state, maps)
        names = [files.shard.name for files in ordered]
        paths = {name: storage.join(decided.path, "decisions", f"{name}.parquet") for name in names}
        there = {name: path for name, path in paths.items() if storage.exists(path)}
        kept = _competing(_standing(corpus, there, state, maps), spent, in_tokens, state.folder)
        made = _select_beside(corpus, kept, decided.certificate["scales"], as_spent, state, maps)
        before = {name: value for name, value in decided.certificate.items() if name not in ("prices", "continues")}
        return stage.SelectionFacts(made.rows, {**before, **made.facts, "decided_by": [state.key]})

    return stage.publish_prices(ordered, config, work, ["refilled by what fits", decided.key], decide)


def _check(config: Config, how: str) -> None:
    """:raises MustSolve: the settings ask for what the driver cannot do with fixed documents."""
    if not can_cover(settings := config.selection):
        asked = "select.repeat" if settings.repeat > 1 else f"{settings.solver} of {settings.metric}"
        raise MustSolve(f"coverage alone, each document once, is {how}, and not {asked}")


def _select_beside(
    corpus: stage.GatheredCorpus,
    kept: Sequence[Handed],
    scales: Mapping[str, Mapping[str, float]],
    config: Config,
    state: stage.SelectionRun,
    maps: Mapper,
    stay: Collection[str] = (),
) -> stage.SelectionFacts:
    """`StandingRounds` of a corpus, written but for the shards that stay. kept: of each group, see there."""
    present = [(group, own) for group, own in zip(corpus.candidates, kept, strict=True) if len(group)]
    if not present:
        raise MustSolve("no document is left to select from")
    groups, stays = zip(*present, strict=True)
    try:
        found = StandingRounds(stays, scales, groups, config, state.folder, maps).run()
    except UndecidedTooFew as error:
        raise MustSolve(FAR) from error
    rows = stage.write_groups(corpus, found.decided, state, maps, stay)
    return stage.SelectionFacts([(*row, state.key) for row in rows], found.facts)


def _standing(
    corpus: stage.GatheredCorpus, paths: Mapping[str, str], state: stage.SelectionRun, maps: Mapper
) -> list[Handed]:
    """What stands of each group. paths: by the shards' names."""
    files_of = [tuple(paths.get(files.shard.name, "") for files in shards) for shards in corpus.groups]
    items = list(zip(range(len(files_of)), corpus.candidates, files_of, strict=True))
    return maps(read_standing, state, items, corpus.rows)


def read_standing(state: stage.SelectionRun, item: tuple[int, CandidateGroup, tuple[str, ...]]) -> Handed:
    """Map: of a group's candidates (n,) which are new, and of the others which are selected, their p and price.

    item: the group's number, the group, and the files of its shards' masks, or of a release's decisions ("": the shard
    is new)."""
    number, group, paths = item
    name = f"stays-of-{number}"
    if found := handed(state.folder, name):
        return found
    index, ends = group.facts.read("index", "ends")
    new, selected = np.ones(len(index), bool), np.zeros(len(index), bool)
    probability, price = np.zeros(len(index), np.float32), np.full(len(index), np.nan, np.float32)
    start = 0
    for path, end in zip(paths, ends.tolist(), strict=True):
        if path:
            table, part = storage.read_table(path), slice(start, end)
            if "outcome" in table.column_names:  # a release's decisions, which have all rows
                table = table.filter(pc.not_equal(table["outcome"], "quarantined"))
                table = table.append_column("selected", pc.equal(table["outcome"], "selected"))
            table = table.select(["selected", "probability", "price"]).take(index[part])
            new[part] = False
            selected[part], probability[part], price[part] = (column.to_numpy() for column in table.columns)
        start = end
    arrays = {"new": new, "selected": selected, "probability": probability, "price": price}
    return hand_on(state.folder, name, **arrays, tokens=group.tokens)


def _competing(standing: Sequence[Handed], spent: int, in_tokens: bool, folder: str) -> list[Handed]:
    """The arrays with those documents as `new` that compete for what has come free, of the highest prices.

    :raises MustSolve: fewer are left than were chosen.
    """
    held = [each.read("selected", "probability", "price", "tokens") for each in standing]
    selected, price, tokens = (np.concatenate([each[n] for each in held]) for n in (0, 2, 3))
    weight = tokens if in_tokens else np.ones(len(tokens))
    if weight.sum() < spent:
        raise MustSolve("all that is left is less than what the release had chosen")
    free = max(0.0, spent - float(weight[selected].sum()))
    others = np.flatnonzero(~selected & ~np.isnan(price) & (weight <= free))  # a longer one fits nowhere
    order = others[np.argsort(-price[others], kind="stable")]
    room = max(EACH * free, LEAST * (1 if in_tokens else 0.01)) if free else 0.0
    new = np.zeros(len(selected), bool)
    new[order[: int(np.searchsorted(np.cumsum(weight[order]), room, side="right"))]] = True
    found, start = [], 0
    for number, (chosen, probability, _, _) in enumerate(held):
        part = slice(start, start := start + len(chosen))
        arrays = {"new": new[part], "selected": chosen, "probability": probability}
        found.append(hand_on(folder, f"competing-{number}", **arrays))
    return found


class StandingRounds(CoverRounds):
    """The driver of coverage with documents that are fixed: the search for a mask looks at the new ones alone.

    The calibration is that of the selection that stays. The fractional optimum of all documents starts from the old
    one, and says how far any selection could be above this one.

    kept: of each shard `new` (n,) bool, `selected` (n,) bool and `probability` (n,), both 0 where it is new. scales:
    `Objective.scales` of the selection that the old documents were selected by.

    :raises MustSolve, UndecidedTooFew: of `run`: what is left of the budget and the limits cannot be filled by new
        documents, or they are too many for one worker.
    """

    def __init__(self, kept: Sequence[Handed], scales: Mapping[str, Mapping[str, float]], *rounds: Any) -> None:
        """rounds: what `CoverRounds` takes."""
        super().__init__(*rounds)
        self.kept, self.scales = kept, scales

    def init(self) -> None:
        """The terms as they were, and the state before, from which the descent begins."""
        self.new: list[np.ndarray] = []  # the places of each group's new documents
        self.stays: list[Handed] = []  # these, and which others stay selected (`inside`, (n,) bool)
        spent = []
        for group, own in zip(self.groups, self.kept, strict=True):
            new, selected = own.read("new", "selected")
            self.new.append(np.flatnonzero(new))
            self.stays.append(self.hand(f"stays-{group.number}", at=self.new[-1], inside=selected))
            spent.append(self.limits.of(*self.known(group)).spent(selected))
        self.spent_before = reduce(add, spent)
        self.nothing = is_budget_spent(self.limits_at(self.new), self.spent_before)
        self.measure()
        self.greatest_room = self.room  # what takes a greater one is as well solved anew
        pairs = zip(self.lengths, self.new, strict=True)
        if sum(int(length[at].sum(dtype=np.int64)) for length, at in pairs) > JOINT_NUMBERS:
            raise MustSolve("the new documents are more than one worker holds")
        self._weigh()
        nothing = np.zeros(0, np.int64)
        before = self.hand_each("before", at=(nothing for _ in self.groups), inside=self._p_before())
        self.begin(self.descend(self.state_of("before", before), SOFT[-2:]))

    def postprocess(self) -> ShardedSelection:
        """The mask, searched among the new documents."""
        self.check_optimum()
        probability = self.hand_each("relaxed", p=(own.astype(np.float32) for own in self.of_groups(self.p)))
        if self.nothing:
            chosen: Arrays = self.column(self.stays, "inside")
            state, spent = self.state_of("stays", self.stays), self.spent_before
        else:
            posed = self.pose("beside", Nearest(self.new, self.stays, self.spent_before), None)
            try:
                [solved] = self.maps(type(self.state).solve, self.state, [posed])
                mask, state = self.search(replace(posed, p=solved.p), *self.price("beside", solved.state))
            except InputError as error:  # no selection of them is within what is left of the limits
                raise MustSolve(FAR) from error
            chosen, spent = self.of_groups(mask), self.near.spent + self.own.spent(mask)
        found = self.finished(chosen, self.column(probability, "p"), state)
        return found._replace(facts={**found.facts, "budget": spent.weight / self.size, "broken": []})

    def _weigh(self) -> None:
        """The terms as they were: each (zero, one) that gives the saved scale."""
        settings = self.settings
        shares = {metric.name: settings.metrics[metric.name] for metric in self.metrics}
        weights = {name: (1 - settings.lamb) * share / sum(shares.values()) for name, share in shares.items()}
        weights["quality"] = settings.lamb
        spans = {}
        for name, weight in weights.items():
            zero, scale = self.scales[name]["zero"], self.scales[name]["scale"]
            spans[name] = zero, zero + (weight / scale if scale else 0.0)
        self.join(spans)

    def first_p(self, near: Nearest) -> np.ndarray:
        """As in `CoverRounds`, the first from the old fractional optimum."""
        return super().first_p(near) if len(self.p) else picked(self._p_before(), near.at)

    def _p_before(self) -> Iterator[np.ndarray]:
        """(n,) of each group: the old fractional optimum, and for new documents the budget's share."""
        for kept in self.kept:
            new, probability = kept.read("new", "probability")
            yield np.where(new, min(1.0, self.size / self.total), probability.astype(np.float64))


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
