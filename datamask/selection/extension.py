"""Saved prices carried on to new shards: what was decided stays as it is, and new documents are selected beside it.

    extended = extend_prices(all_files, prices, config, work, maps)       # instead of learn_prices
    masks = [mask_shard(files, extended, config, work) for files in all_files]

The files of shards that a selection before decided on are not touched: their masks are found under the keys they have.
A shard is new where none of these decided on it as it is now, its filters included. New documents may take the budget
over all documents less what stays selected, and are selected together, in the mixture with what stays
(`cover.cover_beside`). The facts say how far the whole is from the best selection of all documents. By that a refresh
decides when to solve again. Coverage alone can be extended; with other metrics all is solved again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.maps import Handed, Mapper, hand_on, handed, here, rounds
from datamask.pipeline import STAGES
from datamask.selection.cover.counting import target_facts, with_atoms
from datamask.selection.cover.cover_beside import MustSolve, cover_beside
from datamask.selection.cover.cover_shards import can_cover
from datamask.selection.sharded.candidates import CandidateGroup
from datamask.selection.stage import (
    PRICES_SCHEMA,
    SelectionRun,
    code_of,
    decided_by,
    gather_groups,
    has_masks,
    inputs_of,
    mask_place,
    write_groups,
)
from datamask.stages import ShardFiles
from datamask.storage import Output

Row = tuple[str, int, int, str]  # shard, candidates, selected, by
EXTENDED_SCHEMA = PRICES_SCHEMA.append(pa.field("by", pa.string()))  # the key of the prices that decided on the shard


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
    if not can_cover(config.selection):
        repeats, other = config.selection.repeat > 1, f"{config.selection.solver} of {config.selection.metric}"
        asked = "select.repeat" if repeats else other
        raise MustSolve(f"coverage alone, each document once, is selected beside what stays, and not {asked}")
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    ordered = [with_atoms(files, config, work) for files in ordered]
    told = target_facts(ordered, config.selection)
    key = STAGES["prices"].key(config, code_of(config), "beside", prices.key, [inputs_of(files) for files in ordered])
    url = storage.join(work, "prices", f"prices-{key}.parquet")
    if (found := storage.find_output(url, key)) and has_masks(ordered, config, work, found):
        return found
    started = time.perf_counter()
    with rounds(work, "prices", key) as folder:
        rows, facts = _extend(ordered, prices, SelectionRun(config, work, folder, key), maps)
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=EXTENDED_SCHEMA)
    keys = sorted({row[3] for row in rows})
    facts = {**prices.facts, **facts, **told, "decided_by": keys}
    output = storage.write_output(url, key, EXTENDED_SCHEMA, [table], lambda: facts)
    return replace(output, seconds=time.perf_counter() - started)


def _extend(
    ordered: Sequence[ShardFiles], prices: Output, state: SelectionRun, maps: Mapper
) -> tuple[list[Row], Mapping[str, Any]]:
    config = state.config
    known = _known(config, state.work, prices, ordered)
    if not known:
        raise MustSolve("the saved prices have decided on none of these shards as they are now")
    corpus = gather_groups(ordered, state, maps)
    asked = []
    for number, (files, group) in enumerate(zip(corpus.groups, corpus.candidates, strict=True)):
        decided_on = (known.get(one.shard.name) for one in files)
        asked.append(StandingDecisions(number, group, tuple(one.path if one else "" for one in decided_on)))
    kept = maps(read_standing_decisions, state, asked, corpus.rows)
    present = [(group, own) for group, own in zip(corpus.candidates, kept, strict=True) if len(group)]
    if not present:
        raise MustSolve("no document is left to select from")
    shards, stays = zip(*present, strict=True)
    found = cover_beside(shards, stays, prices.facts["scales"], config, state.folder, maps)
    new = {row[0]: row for row in write_groups(corpus, found.decided, state, maps, known)}
    names = [files.shard.name for files in ordered]
    return [(*new[name], state.key) if name in new else known[name].row for name in names], found.facts


class DecidedShard(NamedTuple):
    """A shard that was decided on."""

    path: str
    row: Row


def _known(config: Config, work: str, prices: Output, ordered: Sequence[ShardFiles]) -> dict[str, DecidedShard]:
    """The shards whose decisions stand, by name."""
    table = storage.read_table(prices.path)
    by = decided_by(prices.path, prices.key)
    columns = (table[name].to_pylist() for name in ("shard", "candidates", "selected"))
    before = {row[0]: (*row, by.get(row[0], prices.key)) for row in zip(*columns, strict=True)}
    found = {}
    for files in ordered:
        if row := before.get(files.shard.name):
            path, key = mask_place(files, config, work, row[3])
            if storage.find_output(path, key):
                found[files.shard.name] = DecidedShard(path, row)
    return found


class StandingDecisions(NamedTuple):
    """An item of `read_standing_decisions`: a group of shards, and where their decisions are ("": the shard is new)."""

    number: int
    group: CandidateGroup
    paths: tuple[str, ...]


def read_standing_decisions(state: SelectionRun, item: StandingDecisions) -> Handed:
    """Map: of a group's candidates (n,) which are new, and of the others which are selected, and their p."""
    name = f"stays-of-{item.number}"
    if found := handed(state.folder, name):
        return found
    index, ends = item.group.facts.read("index", "ends")
    new, selected, probability = np.ones(len(index), bool), np.zeros(len(index), bool), np.zeros(len(index), np.float32)
    start = 0
    for path, end in zip(item.paths, ends.tolist(), strict=True):
        if path:
            table, part = storage.read_table(path, ["selected", "probability"]), slice(start, end)
            new[part] = False
            selected[part] = table["selected"].to_numpy()[index[part]]
            probability[part] = table["probability"].to_numpy()[index[part]]
        start = end
    return hand_on(state.folder, name, new=new, selected=selected, probability=probability)
