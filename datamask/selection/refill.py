"""A release's choice without what must be forgotten, and what takes that one's place: all else stays as it was.

    refilled = refill_prices(all_files, release, config, work, maps)      # instead of learn_prices

The budget is what the release spent. Of the documents that it did not choose those of the highest prices compete for
what has come free, `EACH` times as many tokens, beside what stays (`extension.StandingRounds`). Coverage alone can be
refilled; with other metrics all is selected again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import BUDGETS, Config
from datamask.maps import Handed, Mapper, hand_on, here, rounds
from datamask.pipeline import STAGES
from datamask.selection.cover.counting import target_facts, with_atoms
from datamask.selection.cover.cover_shards import can_cover
from datamask.selection.extension import EXTENDED_SCHEMA, MustSolve, StandingRounds
from datamask.selection.sharded.candidates import CandidateGroup
from datamask.selection.stage import SelectionRun, code_of, gather_groups, has_masks, inputs_of, write_groups
from datamask.stages import ShardFiles
from datamask.storage import Output

EACH = 20  # tokens that compete for one that has come free
LEAST = 20_000  # tokens that compete, at least: a document more or less must not decide


class StandingChoice(NamedTuple):
    """What stands of a release: where its decisions are, and its manifest's part that tells of the selection."""

    path: str  # of the release
    key: str
    certificate: dict[str, Any]
    selected: int  # documents
    tokens: int  # of these


def refill_prices(
    all_files: Sequence[ShardFiles], decided: StandingChoice, config: Config, work: str, maps: Mapper = here
) -> Output:
    """Publishes what `learn_prices` does, with the decisions of the release but for what has come free.

    :raises MustSolve: the choice cannot stay: it is not of coverage, or a limit would be broken.
    """
    settings = config.selection
    if not can_cover(settings):
        raise MustSolve(f"coverage alone, each document once, is filled again, and not {settings.metric}")
    ordered = [with_atoms(files, config, work) for files in sorted(all_files, key=lambda files: files.shard.name)]
    inputs = [inputs_of(files, config) for files in ordered]
    key = STAGES["prices"].key(config, code_of(config), "refilled", decided.key, inputs)
    url = storage.join(work, "prices", f"prices-{key}.parquet")
    if (found := storage.find_output(url, key)) and has_masks(ordered, config, work, found):
        return found
    started = time.perf_counter()
    spent = decided.tokens if settings.in_tokens else decided.selected
    budget = {"budget_tokens" if settings.in_tokens else "budget_documents": spent}
    select = config.select.model_copy(update={**dict.fromkeys(BUDGETS), **budget})
    as_spent = config.model_copy(update={"select": select})
    with rounds(work, "prices", key) as folder:
        state = SelectionRun(config, work, folder, key)
        corpus = gather_groups(ordered, state, maps)
        asked = [
            Standing(n, group, tuple(files.shard.name for files in shards), decided.path)
            for n, (shards, group) in enumerate(zip(corpus.groups, corpus.candidates, strict=True))
        ]
        standing = maps(read_standing, state, asked, corpus.rows)
        kept = _competing(standing, spent, settings.in_tokens, folder)
        present = [(group, own) for group, own in zip(corpus.candidates, kept, strict=True) if len(group)]
        if not present:
            raise MustSolve("no document is left to select from")
        groups, stays = zip(*present, strict=True)
        made = StandingRounds(groups, stays, decided.certificate["scales"], as_spent, maps, folder).run()
        rows = [(*row, key) for row in write_groups(corpus, made.decided, state, maps)]
    before = {name: value for name, value in decided.certificate.items() if name not in ("prices", "continues")}
    facts = {**before, **made.facts, **target_facts(ordered, settings), "decided_by": [key]}
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=EXTENDED_SCHEMA)
    output = storage.write_output(url, key, EXTENDED_SCHEMA, [table], lambda: facts)
    return replace(output, seconds=time.perf_counter() - started)


class Standing(NamedTuple):
    """An item of `read_standing`: a group of shards, and the release that decided on them."""

    number: int
    group: CandidateGroup
    shards: tuple[str, ...]
    release: str


def read_standing(state: SelectionRun, item: Standing) -> Handed:
    """Map: of a group's candidates (n,) which the release has chosen, their probability and price; nan: not known."""
    index, ends = item.group.facts.read("index", "ends")
    selected, probability = np.zeros(len(index), bool), np.zeros(len(index), np.float32)
    price = np.full(len(index), np.nan, np.float32)
    start = 0
    for shard, end in zip(item.shards, ends.tolist(), strict=True):
        path = storage.join(item.release, "decisions", f"{shard}.parquet")
        if storage.exists(path):
            table = storage.read_table(path, ["outcome", "probability", "price"])
            table = table.filter(pc.not_equal(table["outcome"], "quarantined")).take(index[start:end])
            selected[start:end] = pc.equal(table["outcome"], "selected").to_numpy()
            probability[start:end] = table["probability"].to_numpy()
            price[start:end] = table["price"].to_numpy()
        start = end
    arrays = {"selected": selected, "probability": probability, "price": price}
    return hand_on(state.folder, f"standing-{item.number}", **arrays, tokens=item.group.tokens)


def _competing(standing: Sequence[Handed], spent: int, in_tokens: bool, folder: str) -> list[Handed]:
    """The arrays with `new`: the documents that compete for what has come free, of the highest prices."""
    held = [each.read("selected", "probability", "price", "tokens") for each in standing]
    selected, price, tokens = (np.concatenate([each[n] for each in held]) for n in (0, 2, 3))
    weight = tokens if in_tokens else np.ones(len(tokens))
    free = max(0.0, spent - float(weight[selected].sum()))
    others = np.flatnonzero(~selected & ~np.isnan(price))
    order = others[np.argsort(-price[others], kind="stable")]
    room = max(EACH * free, LEAST * (1 if in_tokens else 0.01)) if free else 0.0
    new = np.zeros(len(selected), bool)
    new[order[: int(np.searchsorted(np.cumsum(weight[order]), room, side="right"))]] = True
    found, start = [], 0
    for number, (chosen, probability, _, _) in enumerate(held):
        part = slice(start, start := start + len(chosen))
        arrays = {"new": new[part], "selected": chosen, "probability": probability}
        found.append(hand_on(folder, f"competing-{number}", **arrays))
    return found
