"""Corpus scope: one selection from the candidates of all shards.

    chosen = select_corpus(shards, settings)
    chosen.selected, chosen.facts

A shard has `features()` (read anew at each pass), `quality`, `tokens`, `groups`, and a length. Up to `JOINT_DOCUMENTS`
candidates are gathered and solved as one problem. Larger corpora are selected by sums over shards
(`sharded.moment_rounds`) where the solver and the metrics allow it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from datamask.config import Config, ResolvedSelect, Select, resolve
from datamask.devices import pick_device
from datamask.errors import InputError
from datamask.maps import Handed, hand_on
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover.counting import words_of
from datamask.selection.problem.pool import Pool, in_order_of_content
from datamask.selection.sharded.grouped_corpus import ShardCandidates, ShardedSelection, UndecidedTooFew
from datamask.selection.sharded.moment_rounds import select_shards
from datamask.selection.sharded.moment_sums import can_sum_moments
from datamask.shares import share_part, tell_share
from datamask.storage import scratch_array

JOINT_DOCUMENTS = 500_000  # greatest number of candidates that are solved as one problem
IN_MEMORY_BYTES = 1 << 30  # greatest size of features held in memory; larger ones lie in a temporary file


def select_corpus(
    shards: Sequence[ShardCandidates], settings: Select, progress: Callable[[int], None] = lambda rows: None
) -> ShardedSelection:
    """Selects from all shards' candidates together: `decided` has each shard's arrays, with `repeat` (n,) where
    documents may be repeated; `facts` are `Selection.facts` without seconds.

    progress: called with the number of rows just gathered.

    :raises InputError: no shard has a candidate, features differ in width, or as `make_problem`.
    """
    settings = resolve(settings)
    if not sum(len(shard) for shard in shards):
        raise InputError("no document is left to select from; loosen the filters")
    present = [shard for shard in shards if len(shard)]
    lengths = [len(shard) for shard in shards]
    if sum(lengths) > JOINT_DOCUMENTS and can_sum_moments(settings):
        with contextlib.suppress(UndecidedTooFew), tempfile.TemporaryDirectory(prefix="datamask-") as folder:
            found = select_shards(present, Config(select=settings), folder)
            columns = {"selected": found.selected, "probability": found.probability, "price": found.price}
            return ShardedSelection(_split(columns, lengths), found.facts)
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        with share_part(0, 0.1):
            pool = gather_pool(shards, settings, folder, progress)
        with share_part(0.1, 0.97):
            order = in_order_of_content(pool, settings.seed)
            chosen = solve_problem(make_problem(pool if order is None else pool.take(order), settings))
        chosen = chosen if order is None else chosen.placed(order, len(pool))
    facts = {name: value for name, value in chosen.facts().items() if name != "seconds"}
    columns = {"selected": chosen.selected, "probability": chosen.probability, "price": chosen.price}
    columns |= {} if chosen.repeat is None else {"repeat": chosen.repeat}
    return ShardedSelection(_split(columns, lengths), facts)


def gather_pool(
    shards: Sequence[ShardCandidates], settings: ResolvedSelect, folder: str, progress: Callable[[int], None]
) -> Pool:
    """The pool of all shards' candidates. folder: for features that do not fit into memory.

    :raises InputError: features differ in width, or as `Pool`.
    """
    present = [shard for shard in shards if len(shard)]
    features = _gather_features(present, folder, progress)
    tell_share(0.25)
    return Pool(
        features,
        np.concatenate([shard.quality for shard in present]),
        np.concatenate([shard.tokens for shard in present]),
        {name: np.concatenate([shard.groups[name] for shard in present]) for name in present[0].groups},
        device=pick_device(settings.device),
        **words_of(present, settings),
    )


def _gather_features(shards: Sequence[ShardCandidates], folder: str, progress: Callable[[int], None]) -> np.ndarray:
    """The features of shards that have candidates, in their order: in memory, or in a temporary file."""
    count = sum(len(shard) for shard in shards)
    gathered: np.ndarray | None = None
    start = 0
    for shard in shards:
        rows = shard.features()
        if gathered is None:
            shape = (count, rows.shape[1])
            if 2 * count * rows.shape[1] <= IN_MEMORY_BYTES:
                gathered = np.empty(shape, rows.dtype)
            else:
                gathered = scratch_array(f"{folder}/features", np.float16, shape)
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


def _split(columns: Mapping[str, np.ndarray], lengths: Sequence[int]) -> list[Handed]:
    ends = np.cumsum(lengths)[:-1]
    parts = zip(*(np.split(values, ends) for values in columns.values()), strict=True)
    return [hand_on(None, "", **dict(zip(columns, own, strict=True))) for own in parts]
