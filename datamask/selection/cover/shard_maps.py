"""The maps of `cover.cover_shards`: lay out a group's rows of atoms, price them, take some; and solve a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch

from datamask.devices import pick_device
from datamask.maps import Handed, mapped, write_array
from datamask.selection.cover.atoms import (
    JUDGED,
    AtomRows,
    bend_column,
    beside,
    kernel,
    least_hashes,
    word_rows,
    word_worth,
)
from datamask.selection.cover.greedy_search import Effort
from datamask.selection.cover.solve import ACCURACY, STEPS, best_alone, to_mask
from datamask.selection.cover.tangent import Concave, maximise
from datamask.selection.groups import Group, Round, Undecided, hands_on, quality_of, sum_groups, weights_of
from datamask.selection.metrics.coverage import SummedCoverage
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.sparse_rows import index_type

RANDOM_SETS = 8  # random selections drawn for a term's zero
BRIEF = 0.25  # of the usual search for a mask: one process works alone meanwhile
UNDECIDED = ACCURACY / 2  # tolerance of the undecided alone, so that solves of them come within `ACCURACY` of the bound


@dataclass(frozen=True, eq=False)
class Covering(Round):
    """The state of a round."""

    anchors: Handed | None = None  # (a, d) unit rows
    share: float = 0.0  # the budget as a share of the corpus
    width: int = 0  # J
    ranges: np.ndarray | None = None  # (Q, 2) of quality, if the pool's documents count by it
    slopes: Sequence[np.ndarray] = ()  # (J,) each: the gradients at which documents are priced
    span: float = 0.0  # the objective's, from a random selection to the best


@hands_on("sketch")
def sample_group(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: the hashes (n,) of a group's documents, the least of them in their order, the unit rows of the first of
    these, which may be anchors, and the qualities of the first JUDGED (Q each)."""
    settings, features = state.settings, group.shard.features()
    pool = Pool(features, np.zeros(len(features)))
    hashes = row_hashes(features, settings.seed)
    anchors = settings.coverage.anchors if "coverage-embedding" in settings.metrics else 0
    least = least_hashes(hashes, max(anchors, JUDGED))
    kept = {"rows": pool.rows(least[:anchors]).numpy(), "judged": quality_of(group.shard)[least[:JUDGED]]}
    return dict(hashes=hashes, least=hashes[least], **kept)


@hands_on("laid")
def write_atoms(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: writes a group's rows of atoms as flat files.

    Hands on the rows' lengths (n,), the state (J,) of the whole group, the same with documents counted by their worth,
    the states (S, J) of random selections and what these spend (S,).
    """
    settings = state.settings
    blocks: list[AtomRows] = []
    if state.anchors is not None:
        pool = Pool(group.shard.features(), np.zeros(len(group.shard)), device=pick_device(settings.device))
        blocks.append(kernel(pool, state.anchors.read("rows")[0], settings.coverage.temperature))
    weights = weights_of(settings, group.shard)
    if settings.metrics.keys() != {"coverage-embedding"}:
        blocks += word_rows(settings, group.shard.ngrams(), weights)  # type: ignore[attr-defined]
    rows = reduce(beside, blocks)
    for part, array in (("start", rows.start), ("index", rows.index), ("value", rows.value)):
        write_array(_part(state, group.number, part), array)
    by = np.zeros(0)
    if state.ranges is not None:
        quality = quality_of(group.shard)
        by = rows.state(weights * word_worth(quality, np.full(quality.shape[1], 1 / quality.shape[1]), state.ranges))
    drawn = np.random.default_rng([settings.seed, 17, group.number]).random((RANDOM_SETS, len(weights))) < state.share
    return {
        "length": np.diff(rows.start).astype(np.int32),
        "state": rows.state(weights),
        "worth": by,
        "random": np.stack([rows.state(weights * chosen) for chosen in drawn]),
        "spent": drawn @ weights,
        "bend": np.array(bend_column(settings, rows.width, blocks[-1].width)),
    }


@hands_on("taken")
def read_undecided(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's rows of the documents `at`, and of those that are selected beside them (`inside`) the state (J,)
    and the quality's part of the objective (`offset`)."""
    at, inside = group.given("at", "inside")
    rows, mass = _laid(state, group.number), weights_of(state.settings, group.shard) * inside / state.size
    taken = rows.take(at)
    arrays = {"start": taken.start, "index": taken.index, "value": taken.value}
    return dict(**arrays, state=rows.state(mass), offset=np.asarray(mass @ state.linear(group.shard)))


@hands_on("price")
def price_group(state: Covering, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's prices (n,) at each of the slopes, `price_<number>`: scaled quality + ⟨slope, A_i⟩."""
    rows, linear = _laid(state, group.number), state.linear(group.shard)
    return {f"price_{place}": linear + rows.scores(slope) for place, slope in enumerate(state.slopes)}


def _laid(state: Covering, number: int) -> AtomRows:
    start, index, value = (mapped(_part(state, number, part)) for part in ("start", "index", "value"))
    return AtomRows(start, index, value, state.width)


def _part(state: Covering, number: int, part: str) -> str:
    return f"{state.folder}/rows-{number}-{part}.npy"


# ---------------------------------------------------------------- a part of the problem, on one worker


@dataclass(frozen=True, eq=False)
class CoverPart(Undecided):
    """The undecided documents' problem of coverage."""

    joint: SummedCoverage  # without rows
    p: np.ndarray | None = None  # (m,) the start

    def concave(self, size: float) -> tuple[Concave, SummedCoverage]:
        """The part as a concave problem, and its coverage with the rows read into memory. size: the whole budget."""
        held = sum_groups(self.taken, "state")
        joint = replace(self.joint, rows=read_rows(self.taken, self.joint.rows.width), held=held)
        linear, feasible = torch.from_numpy(self.linear), Feasible(self.limits)
        return Concave([joint], [1.0], linear, feasible, size, [held], self.offset), joint


def read_rows(taken: Sequence[Handed], width: int) -> AtomRows:
    """The rows of atoms that groups have handed on, read one group at a time into arrays allocated once."""
    counts = [each.read("start")[0] for each in taken]
    ends = np.cumsum([start[-1] for start in counts])
    index, value = np.empty(ends[-1], index_type(width)), np.empty(ends[-1], np.float32)
    first = 0
    for each, end in zip(taken, ends.tolist(), strict=True):
        index[first:end], value[first:end] = each.read("index", "value")
        first = end
    lengths = np.concatenate([np.diff(start) for start in counts])
    return AtomRows(np.concatenate([[0], np.cumsum(lengths)]), index, value, width)


class PartSolution(NamedTuple):
    """The fractional optimum of a part."""

    p: np.ndarray  # (m,)
    state: np.ndarray  # (J,) of the whole corpus
    value: float
    history: list[dict[str, float]]


def solve_fractions(state: Covering, part: CoverPart) -> PartSolution:
    """The fractional optimum of a part, on one worker."""
    concave, _ = part.concave(state.size)
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
    concave, joint = part.concave(state.size)
    assert part.p is not None
    relaxed = torch.from_numpy(part.p)
    mask = concave.feasible.round(relaxed, torch.from_numpy(price)).numpy()
    best, rounded = concave.values(torch.stack([relaxed, torch.from_numpy(mask).double()])).tolist()
    if best - rounded > UNDECIDED * state.span:
        scale = state.span * mask.sum() / max(mask.sum() + beside_it, 1)
        settings = state.settings
        effort = Effort(search=BRIEF * settings.coverage.search, seed=settings.seed)
        mask = to_mask(concave, joint, torch.from_numpy(price), mask, scale, effort, relaxed)
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
