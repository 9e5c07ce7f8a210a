"""Coverage of new documents beside a selection that stays: the problem of `cover_shards`, with the old documents fixed.

    found = cover_beside(groups, kept, scales, config, folder, maps)

The rounds are those of a selection anew, without what takes it long. The calibration is that of the selection that set
the prices. The fractional optimum of all documents starts from the old one, and says how far any selection could be
above this one; the search for a mask looks at the new documents alone, in the mixture with what is selected already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from datamask.config import Config
from datamask.errors import InputError
from datamask.maps import Handed, Mapper, here
from datamask.selection.cover.cover_shards import JOINT_NUMBERS, CoverRounds
from datamask.selection.cover.shard_maps import solve_fractions
from datamask.selection.problem.limits import Spent
from datamask.selection.sharded.extension_by_prices import Extension, MustSolve, is_budget_spent, standing_documents
from datamask.selection.sharded.grouped_corpus import UndecidedTooFew

Scales = Mapping[str, Mapping[str, float]]  # `Objective.scales`


def cover_beside(
    shards: Sequence[Any], kept: Sequence[Handed], scales: Scales, config: Config, folder: str, maps: Mapper = here
) -> Extension:
    """Selects among the new documents.

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

    def run(self) -> Extension:  # type: ignore[override]
        """Selects among the new documents."""
        index, stays, spent = standing_documents(self, self.kept)
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
        return Extension(found.decided, {**found.facts, "budget": share, "broken": []})

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
