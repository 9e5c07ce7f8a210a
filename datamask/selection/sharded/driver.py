"""The driver of a selection: prices groups of documents, gathers the undecided, solves them, finds a mask, certifies.

    found = CoverRounds(shards, config, maps, folder).run()

    init         the terms, calibrated on a sample, and the first point at which documents are priced
    step         the documents whose prices are near the cut are gathered; one worker solves them, the others fixed; the
                 solution is the next point
    terminate    whether another step would not help
    postprocess  the mask of the undecided, its exact objective, and a bound for the whole corpus

A metric takes part by its state, a sum over documents: one number an atom (`cover.cover_shards`), d or d² numbers
(`sharded.moment_rounds`). Documents that are fixed, as in a refresh, are part of the state (`selection.extension`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from datamask.maps import Handed, hand_on
from datamask.selection.engine.iterate import Iteration
from datamask.selection.problem.limits import Limits, Spent
from datamask.selection.problem.objective import Term
from datamask.selection.sharded.grouped_corpus import (
    GroupedCorpus,
    ShardedSelection,
    UndecidedTooFew,
    fits_limits,
    quality_of,
)


class GroupDecision(NamedTuple):
    """What was decided on a group's documents: (n,) each."""

    selected: np.ndarray  # bool
    probability: np.ndarray
    price: np.ndarray  # of a document, not of a unit of the budget


class Certificate(NamedTuple):
    """Values of the objective, constant included."""

    bound: float  # no selection within the budget and the limits is above it
    relaxed: float  # of the fractional optimum


class Driver(GroupedCorpus, Iteration[ShardedSelection]):
    """The iteration over groups, and which documents are undecided.

    :raises UndecidedTooFew: of `run`: see there.
    """

    terms: Sequence[Term]  # of quality
    diversity: Sequence[Term]
    index: Sequence[np.ndarray]  # places of the undecided in each group
    fixed: Sequence[Handed]  # of each group `inside`, (n,) bool: which other documents are selected
    own: Limits  # the corpus's, on the undecided
    spent: Spent  # by the fixed ones

    @property
    def constant(self) -> float:
        """−Σ scale·zero over all terms, which the sums over documents lack."""
        return -sum(term.scale * term.zero for term in (*self.terms, *self.diversity))

    def gather(self, index: Sequence[np.ndarray], fixed: Sequence[Handed], spent: Spent) -> Limits:
        """Makes the documents at these places undecided, and returns what the fixed ones leave of the limits for them.

        :raises UndecidedTooFew: they cannot meet the limits.
        """
        self.index, self.fixed, self.spent, self.own = index, fixed, spent, self.limits_at(index)
        self.starts = np.cumsum([0, *map(len, index)])
        left = self.own.less(spent)
        if not fits_limits(left):
            raise UndecidedTooFew
        return left

    def of_group(self, place: int, values: np.ndarray) -> np.ndarray:
        """(n,) of a group, of the type of values (m,): those of the undecided, and 1 and 0 for the others."""
        found = self.fixed[place].read("inside")[0].astype(values.dtype)
        found[self.index[place]] = values[self.starts[place] : self.starts[place + 1]]
        return found

    def check_limits(self, mask: np.ndarray) -> None:
        """:raises UndecidedTooFew: this mask (m,) of the undecided breaks a limit."""
        if broken := self.own.broken(self.spent + self.own.spent(mask)):
            raise UndecidedTooFew(broken[0])

    def finish(
        self,
        decisions: Iterable[GroupDecision],
        statistics: Mapping[str, float],
        certificate: Certificate,
        more: Mapping[str, Any] = {},
    ) -> ShardedSelection:
        """The selection with its facts. decisions: of each group; statistics: diversity's raw values, by name; more:
        other facts."""
        decided, sums, selected = [], np.zeros(self.columns), 0
        for group, (own, probability, price) in zip(self.groups, decisions, strict=True):
            sums += (self.weights(group) * own) @ quality_of(group.shard)
            selected += int(own.sum())
            columns = {
                "selected": own,
                "probability": probability.astype(np.float32),
                "price": price.astype(np.float32),
            }
            decided.append(hand_on(self.folder, f"decided-{group.number}", **columns))
        raw = {term.name: float(sums[term.column]) / self.size for term in self.terms} | {**statistics}
        terms = (*self.terms, *self.diversity)
        objective = self.constant + sum(term.scale * raw[term.name] for term in terms)
        bound, relaxed = certificate
        size = max(abs(bound), 1e-12)
        facts = {
            "solver": self.config.selection.solver,
            "documents": self.count,
            "selected": selected,
            "objective": objective,
            "terms": {term.name: term.calibrated(raw[term.name]) for term in terms},
            "statistics": raw,
            "scales": {term.name: {"zero": term.zero, "scale": term.scale} for term in terms},
            "upper_bound": bound,
            "gap": max(0.0, bound - objective) / size,
            "relaxed": relaxed,
            "integrality": max(0.0, min(relaxed, bound) - objective) / size,
            "history": self.history,
            **more,
        }
        return ShardedSelection(decided, facts)
