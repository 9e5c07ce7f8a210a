"""Corpus scope: one selection from all shards.

    chosen = select_corpus(shards, settings)
    chosen.decisions[0].selected, chosen.prices, chosen.facts

A shard has `features()` (read anew at each pass), `quality`, `tokens`, `groups`, and a length.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from datamask.config import Select
from datamask.devices import pick_device
from datamask.errors import InputError
from datamask.selection.api import solve
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.prices import Prices
from datamask.selection.problem import Pool, Problem, make_problem
from datamask.selection.result import Selection

IN_MEMORY_BYTES = 1 << 30  # of float16 features held in memory; more are spilled to a temporary file


class Shard(Protocol):
    @property
    def quality(self) -> np.ndarray: ...  # (N,) or (N, Q)

    @property
    def tokens(self) -> np.ndarray: ...  # (N,)

    @property
    def groups(self) -> Mapping[str, np.ndarray]: ...

    def __len__(self) -> int: ...

    def features(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Decision:
    """What was decided for a shard's candidates: (N,) each."""

    selected: np.ndarray
    probability: np.ndarray
    price: np.ndarray


@dataclass(frozen=True, eq=False)
class CorpusSelection:
    decisions: tuple[Decision, ...]  # in the order of the shards
    prices: Prices
    facts: Mapping[str, Any]  # `Selection.facts` without seconds


def select_corpus(
    shards: Sequence[Shard], settings: Select, progress: Callable[[int], None] = lambda rows: None
) -> CorpusSelection:
    """:raises InputError: no shard has a candidate, features differ in width, or as `make_problem`."""
    if not sum(len(shard) for shard in shards):
        raise InputError("no document is left to select from; loosen the filters")
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        features = _gather(shards, folder, progress)
        present = [shard for shard in shards if len(shard)]
        pool = Pool(
            features,
            np.concatenate([shard.quality for shard in present]),
            np.concatenate([shard.tokens for shard in present]),
            {name: np.concatenate([shard.groups[name] for shard in present]) for name in present[0].groups},
            device=pick_device(settings.device),
        )
        problem = make_problem(pool, settings)
        chosen = solve(problem)
        prices = prices_of(problem, chosen)
    facts = {name: value for name, value in chosen.facts().items() if name != "seconds"}
    return CorpusSelection(tuple(_split(chosen, [len(shard) for shard in shards])), prices, facts)


def prices_of(problem: Problem, chosen: Selection) -> Prices:
    """What the finished selection pays for a document."""
    objective, pool = problem.objective, problem.pool
    width = pool.dimensions
    linear, square = np.zeros(width), np.zeros((0, 0))
    mean, deviation = np.zeros(width), np.ones(width)
    priced = True
    mask = torch.from_numpy(chosen.selected).to(pool.device)
    for term in objective.diversity:
        metric = term.metric
        if not isinstance(metric, MomentMetric):
            priced = priced and not term.scale
            continue
        moment = -2 * term.scale * metric.unit / problem.size**2 * metric.exact_moment(mask).cpu().numpy()
        if moment.ndim == 1:
            linear = linear + moment
        else:
            square = moment
            mean, deviation = (value.cpu().numpy() for value in metric.standard)  # type: ignore[attr-defined]
    quality = np.array([term.scale / problem.size for term in objective.quality])
    prices = Prices(quality, linear, square, mean, deviation, 0.0, problem.unit == "tokens", priced)
    if not priced:
        return prices
    score = prices.score(pool.features, pool.quality, pool.device)
    order = np.argsort(-score, kind="stable")
    spent = np.cumsum(problem.limits.weights[order])
    last = order[min(int(np.searchsorted(spent, problem.size)), len(order) - 1)]
    return Prices(quality, linear, square, mean, deviation, float(score[last]), problem.unit == "tokens", priced)


def _gather(shards: Sequence[Shard], folder: str, progress: Callable[[int], None]) -> np.ndarray:
    """All candidates' features in the order of the shards: float16 in memory, or in a temporary file."""
    count = sum(len(shard) for shard in shards)
    gathered: np.ndarray | None = None
    start = 0
    for shard in shards:
        if not len(shard):
            continue
        rows = shard.features()
        if gathered is None:
            shape = (count, rows.shape[1])
            if 2 * count * rows.shape[1] <= IN_MEMORY_BYTES:
                gathered = np.empty(shape, rows.dtype)
            else:
                gathered = np.memmap(f"{folder}/features", dtype=np.float16, mode="w+", shape=shape)
        if rows.shape[1] != gathered.shape[1]:
            raise InputError(
                f"features of {gathered.shape[1]} and of {rows.shape[1]} dimensions are in one corpus; "
                "embed all shards with one encoder"
            )
        gathered[start : start + len(rows)] = rows
        start += len(rows)
        progress(len(rows))
    assert gathered is not None
    return gathered


def _split(chosen: Selection, lengths: Sequence[int]) -> list[Decision]:
    ends = np.cumsum(lengths)[:-1]
    columns = (np.split(values, ends) for values in (chosen.selected, chosen.probability, chosen.price))
    return [Decision(*parts) for parts in zip(*columns, strict=True)]
