"""The stage `prices`: selected from all documents, or carried on from the last release where new ones fit beside it.

    prices = solve_or_extend(all_files, config, work, previous)      # prices.output, prices.extended

A module of its own, for `datamask.run` does not wait for PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datamask.config import Config
from datamask.maps import Mapper, here
from datamask.run import Previous, Prices
from datamask.selection.extension import MustSolve, extend_prices, refill_prices
from datamask.selection.stage import learn_prices
from datamask.stages import ShardFiles

DRIFT = 0.01  # of the budget, and of the gap beyond the solved one, that a selection by saved prices may miss


def solve_or_extend(
    all_files: Sequence[ShardFiles],
    config: Config,
    work: str,
    previous: Previous = Previous(),
    log: Callable[[str], None] = lambda text: None,
    maps: Mapper = here,
) -> Prices:
    """The selection over all shards, as prices: solved, or the last release's where new documents fit beside it."""
    if previous.keep:
        try:
            return Prices(refill_prices(all_files, previous.keep, config, work, maps), extended=True)
        except MustSolve as error:
            log(f"what was chosen cannot stay, so all is selected again: {error}")
    elif previous.prices:
        try:
            extended = extend_prices(all_files, previous.prices, config, work, maps)
        except MustSolve as error:
            log(f"selecting from all documents again: {error}")
        else:
            if not (missed := _missed(extended.facts, previous.gap)):
                return Prices(extended, extended=True)
            log(f"beside the selection of release {previous.version} {missed}; selecting again")
    return Prices(learn_prices(all_files, config, work, maps))


def _missed(facts: Mapping[str, Any], gap: float) -> str:
    """In words, what new documents selected beside old ones miss too much of; empty if nothing. gap: the solved one."""
    found = [*facts["broken"]]
    if abs(facts["budget"] - 1) > DRIFT:
        found.append(f"{facts['budget']:.1%} of the budget is spent")
    if facts["gap"] > gap + DRIFT:
        found.append(f"the gap to the bound is {facts['gap']:.1%}, and was {gap:.1%} when all was solved")
    return "; ".join(found)
