"""A selection extended by new documents, which fill what the old ones leave of the budget and the limits.

    found = select_by_prices(groups, kept, prices, config, folder, maps)

Saved prices value each new document by itself. The documents of the highest prices are taken until the budget is spent.
The old cut would take too many or too few. At the optimum many documents are selected in part, all of them at the cut,
and new ones of their kind lie on both sides of it. Coverage selects the new documents together: `cover.cover_beside`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch

from datamask import storage
from datamask.config import Config
from datamask.devices import pick_device
from datamask.errors import DatamaskError, InputError
from datamask.maps import Handed, Mapper, hand_on, handed, here
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import GRAIN, Limits, Spent
from datamask.selection.sharded.grouped_corpus import Group, GroupedCorpus, fits_limits, weights_of
from datamask.selection.sharded.prices import Prices


class MustSolve(DatamaskError):
    """New documents cannot extend the old selection, so all must be selected anew. The message says why."""


@dataclass(frozen=True)
class Extension:
    """The decisions on the new documents. Its arrays are read from the rounds' folder while that is there."""

    decided: Sequence[Handed]  # each group's `selected`, `probability` and `price`, (n,) each; of the new ones alone
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Pricing:
    """The state of the round."""

    config: Config
    folder: str
    prices: str  # path of the saved prices


def standing_documents(rounds: GroupedCorpus, kept: Sequence[Handed]) -> tuple[list[np.ndarray], list[Handed], Spent]:
    """The places of each group's new documents, the arrays for its round, and what the standing selection spends.

    The arrays: these places (`at`), and what stays selected (`inside`, (n,) bool). kept: of each group, `new` and
    `selected` (n,) bool.
    """
    index, fixed, spent = [], [], []
    for group, own in zip(rounds.groups, kept, strict=True):
        new, selected = own.read("new", "selected")
        index.append(np.flatnonzero(new))
        fixed.append(rounds.hand(f"stays-{group.number}", at=index[-1], inside=selected))
        spent.append(rounds.limits.of(*rounds.known(group)).spent(selected))
    return index, fixed, reduce(add, spent)


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


def select_by_prices(
    shards: Sequence[Any], kept: Sequence[Handed], prices: str, config: Config, folder: str, maps: Mapper = here
) -> Extension:
    """Selects the new documents of the highest prices.

    shards: `moment_sums.ShardCandidates`s, none of them empty; kept: as `standing_documents`; prices: path of `Prices`.

    :raises MustSolve: what is left of the budget and the limits cannot be filled by new documents.
    """
    rounds = GroupedCorpus(shards, config, maps, folder)
    index, fixed, spent = standing_documents(rounds, kept)
    limits = rounds.limits_at(index)
    items = [group._replace(now=now) for group, now in zip(rounds.groups, fixed, strict=True)]
    priced = maps(price_new_documents, Pricing(config, folder, prices), items, rounds.rows)
    price = np.concatenate([found.read("price")[0] for found in priced])
    mask = np.zeros(len(price), bool)
    if not is_budget_spent(limits, spent):
        left = limits.less(spent)
        if not fits_limits(left):
            raise MustSolve("the new documents cannot fill what is left of the budget and the limits")
        feasible, gain = Feasible(left), torch.from_numpy(price)
        try:
            mask = feasible.round(feasible.respond(gain)[0], gain).numpy()
        except InputError as error:
            raise MustSolve(str(error)) from error
        if broken := limits.broken(spent + limits.spent(mask)):
            raise MustSolve(broken[0])
    share = (spent + limits.spent(mask)).weight / rounds.size
    decided, selected = [], 0
    ends = np.cumsum([len(at) for at in index])[:-1]
    for group, own, stays, chosen, of_new in zip(
        rounds.groups, index, fixed, np.split(mask, ends), np.split(price, ends), strict=True
    ):
        taken = stays.read("inside")[0].copy()
        gains = np.zeros(len(taken), np.float32)
        taken[own], gains[own] = chosen, of_new * rounds.weights(group)[own]
        selected += int(taken.sum())
        columns = {"selected": taken, "probability": taken.astype(np.float32), "price": gains}
        decided.append(hand_on(folder, f"decided-{group.number}", **columns))
    return Extension(decided, {"documents": rounds.count, "selected": selected, "budget": share})


def price_new_documents(state: Pricing, group: Group) -> Handed:
    """Map: the prices (m,) of a group's new documents, per unit of the budget."""
    name = f"price-{group.number}"
    if found := handed(state.folder, name):
        return found
    [at] = group.given("at")
    price = np.zeros(0)
    if len(at):
        with storage.open_input(state.prices) as file:
            prices = Prices.load(file)
        shard: Any = group.shard
        words = shard.ngrams()[at] if prices.reads_words else None
        weights = weights_of(state.config.selection, shard)[at]
        device = pick_device(state.config.selection.device)
        price = prices.score(shard.features()[at], np.asarray(shard.quality)[at], device, words, weights).astype(
            np.float64
        )
    return hand_on(state.folder, name, price=price)
