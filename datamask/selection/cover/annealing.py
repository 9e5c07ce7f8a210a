"""Simulated annealing of a mask by exact gains of coverage: random swaps, in large problems on several cores.

Documents are dealt to lanes, each with its share of the draws and of the budget, which cores anneal beside each other.
A lane does not see what the others change until they meet; by then that is at most 1 / MEETINGS of the selection, whose
effect on a document's gain is far below the temperature. The number of lanes does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from datamask.compiling import on_cores
from datamask.selection.cover import compiled
from datamask.selection.cover.books import Books
from datamask.selection.cover.summed import SummedCoverage
from datamask.shares import tell

RENEWED, OFTEN = 2000, 1  # gains are computed anew after max(RENEWED, selected documents / OFTEN) swaps
LANES, LANED = 4, 2000  # lanes, and of how many selected documents on; with limits, whose sums are shared, there is one
MEETINGS = 64  # lanes meet when this share of the selection has been swapped, if all swap alike


class Schedule(NamedTuple):
    """Of the annealing: pairs evaluated, temperatures from `warm` to `cool`, and the seed of the random numbers."""

    pairs: int
    warm: float
    cool: float
    seed: int


@dataclass(eq=False)
class Lane:
    """Documents that are annealed together, and how far that is."""

    inside: np.ndarray = field(init=False)
    outside: np.ndarray = field(init=False)
    keys: np.ndarray = field(init=False)  # as `compiled.anneal` takes them
    done: int = 0  # pairs evaluated
    turns: int = 0  # draws
    # until the lanes meet again:
    seed: int = 0  # of the random numbers
    level: np.ndarray = field(init=False)  # (J,) the mixture
    spent: float = 0.0  # beyond its part of the budget
    swaps: int = 0


def anneal(
    joint: SummedCoverage,
    mass: np.ndarray,
    value: np.ndarray,
    selected: np.ndarray,
    near: np.ndarray,
    gain: np.ndarray,
    books: Books,
    schedule: Schedule,
) -> None:
    """Random swaps of selected documents with those `near` (row numbers), in place; arguments as `greedy_search`'s."""
    playing, level = np.concatenate([np.flatnonzero(selected), near]), joint.level_of(mass, selected)
    size = len(playing) - len(near)
    renewed = max(RENEWED, size // OFTEN)
    count = LANES if size >= LANED and not books.limited else 1
    apart = renewed if count == 1 else max(1, size // (MEETINGS * count))
    pairs, room = max(1, schedule.pairs // count), books.room / count**0.5
    most = compiled.PATIENCE * pairs
    generator = np.random.default_rng(schedule.seed)
    lanes, swaps = [Lane() for _ in range(count)], renewed
    while going := [lane for lane in lanes if lane.done < pairs and lane.turns < most]:
        tell(sum(lane.done for lane in lanes) / (count * pairs))
        if swaps >= renewed:
            joint.rows.gains(joint.t, level, mass, value, selected, playing, gain)
            deal(lanes, playing, selected, gain, generator)
            swaps = 0
        for lane in lanes:
            lane.level, lane.spent, lane.seed = level.copy(), books.spent / count, int(generator.integers(1 << 32))

        def work(first: int, last: int) -> None:
            for lane in going[first:last]:
                lane.done, lane.turns, lane.swaps, lane.spent = compiled.anneal(
                    *joint.arrays, lane.level, mass, value, selected, lane.inside, lane.outside, gain, lane.keys,
                    lane.seed, lane.done, pairs, lane.turns, most, apart, schedule.warm, schedule.cool, books.weights,
                    lane.spent, room, *books.bounds,
                )  # fmt: skip

        on_cores(work, len(going))
        level = level + sum(lane.level - level for lane in going)
        swaps += sum(lane.swaps for lane in going)
        books.spent = sum(lane.spent for lane in lanes)


def deal(
    lanes: Sequence[Lane], playing: np.ndarray, selected: np.ndarray, gain: np.ndarray, generator: np.random.Generator
) -> None:
    """Deals the documents `playing` (row numbers) to the lanes: the selected at random, the others in falling order of
    their gain, so that each lane has as good ones."""
    inside = generator.permutation(playing[selected[playing]])
    outside = playing[~selected[playing]]
    outside = outside[np.argsort(-gain[outside], kind="stable")]
    for number, lane in enumerate(lanes):
        lane.inside = inside[number :: len(lanes)].copy()
        lane.outside = outside[number :: len(lanes)].copy()
        lane.keys = -gain[lane.outside]
