"""Coverage of new documents beside a selection that stays: the problem of `cover_shards`, with the old documents fixed.

    found = cover_beside(groups, kept, scales, config, folder, maps)

The rounds are those of a selection anew, without what takes it long. The calibration is that of the selection that set
the prices. The fractional optimum of all documents starts from the old one, and says how far any selection could be
above this one; the search for a mask looks at the new documents alone, in the mixture with what is selected already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from datamask.config import Config
from datamask.errors import DatamaskError, InputError
from datamask.maps import Handed, Mapper, here
from datamask.selection.cover.cover_shards import JOINT_NUMBERS, CoverRounds
from datamask.selection.cover.shard_maps import solve_fractions
from datamask.selection.problem.limits import GRAIN, Limits, Spent
from datamask.selection.sharded.grouped_corpus import ShardedSelection, UndecidedTooFew

Scales = Mapping[str, Mapping[str, float]]  # `Objective.scales`


class MustSolve(DatamaskError):
    """New documents cannot extend the old selection, so all must be selected anew. The message says why."""


def cover_beside(
    shards: Sequence[Any], kept: Sequence[Handed], scales: Scales, config: Config, folder: str, maps: Mapper = here
) -> ShardedSelection:
    """Selects among the new documents. Facts: the selection's, `budget`, the share of it that is spent, and `broken`.

    kept: of each shard `new` (n,) bool, `selected` (n,) bool and `probability` (n,), both 0 where it is new. scales: of
    the selection that the old documents were selected by.

    :raises MustSolve: what is left of the budget and the limits cannot be filled by new documents, or they are too many
        for one worker.
    """
    return _Beside(shards, kept, scales, config, maps, folder).run()


class _Beside(CoverRounds):
    def __init__(
        self,
        shards: Sequence[Any],
        kept: Sequence[Handed],
        scales: Scales,
        config: Config,
        maps: Mapper,
        folder: str,
    ) -> None:
        super().__init__(shards, config, maps, folder, None)
        self.kept, self.scales = kept, scales

    def run(self) -> ShardedSelection:
        """Selects among the new documents."""
        index, stays, spent = self._standing()
        nothing = is_budget_spent(self.limits_at(index), spent)
        self.lay_out()
        self.greatest_room = self.room  # what takes a greater one is as well solved anew
        pairs = zip(self.lengths(), index, strict=True)
        if sum(int(length[at].sum(dtype=np.int64)) for length, at in pairs) > JOINT_NUMBERS:
            raise MustSolve("the new documents are more than one worker holds")
        self._weigh()
        try:
            relaxed = self.ascend(self.descend(self._state_before()))
        except UndecidedTooFew as error:
            raise MustSolve("the optimum with the new documents is too far from the old one") from error
        probability = [
            self.hand(f"relaxed-{group.number}", p=self.relaxed_of(group.number).astype(np.float32))
            for group in self.groups
        ]
        try:
            mask, state = (np.zeros(0, bool), None) if nothing else self._select(index, stays, spent)
        except (UndecidedTooFew, InputError) as error:
            raise MustSolve("the new documents cannot fill what is left of the budget and the limits") from error

        def chosen(place: int) -> np.ndarray:
            return stays[place].read("inside")[0] if nothing else self.of_group(place, mask)

        at = self.state_of("stays", stays) if state is None else state
        found = self.finished(relaxed, chosen, lambda place: probability[place].read("p")[0], at)
        share = (spent if nothing else self.spent + self.own.spent(mask)).weight / self.size
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

    def _select(
        self, index: Sequence[np.ndarray], stays: Sequence[Handed], spent: Spent
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mask (m,) of the new documents, and the state (J,) of the corpus with it."""
        posed = self.posed("beside", index, stays, spent, None)
        [solved] = self.maps(solve_fractions, self.state, [posed])
        prices = self.price("beside", solved.state).prices
        return self.search(replace(posed, p=solved.p), prices)

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

    def first_p(self, place: int, off: np.ndarray) -> np.ndarray:
        """(n,) the old fractional optimum, and for new documents the budget's share."""
        new, probability = self.kept[place].read("new", "probability")
        return np.where(new, min(1.0, self.size / self.total), probability.astype(np.float64))

    def _state_before(self) -> np.ndarray:
        """The state (J,) of `first_p`."""
        nothing = np.zeros(0, np.int64)
        fixed = [
            self.hand(f"before-{number}", at=nothing, inside=self.first_p(number, np.zeros(0)))
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
