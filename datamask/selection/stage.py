"""The pipeline's stages `prices` and `mask`: from the shards' files to each shard's mask file.

Scope corpus: `learn_prices` selects from all shards as one pool and publishes the prices and each shard's mask, which
`mask_shard` then finds. Shards that the prices have not decided on (a new dump) are selected beside the others by
`extension.extend_prices`. Scope shard: `mask_shard` solves its shard alone, as the paper does.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from datamask import extensions, storage
from datamask.config import Config, ResolvedSelect
from datamask.corpus.read import TOPIC
from datamask.errors import ConfigError, InputError
from datamask.maps import Handed, Mapper, groups, here, rounds
from datamask.pipeline import STAGES
from datamask.selection.arrays import select_from
from datamask.selection.candidates import (
    CandidateGroup,
    Candidates,
    gather_candidates,
    gather_pool,
    group_of,
    read_candidates,
)
from datamask.selection.cover.counting import check_room, held_words, reads_words, target_facts, with_atoms
from datamask.selection.cover.cover_shards import GROUP_ROWS, JOINT_NUMBERS, CoverRounds, can_cover, numbers_of
from datamask.selection.groups import UndecidedTooFew
from datamask.selection.metrics import pool_columns
from datamask.selection.moment_rounds import MomentRounds, can_sum_moments
from datamask.shares import share_part
from datamask.stages import Progress, ShardFiles, silent
from datamask.storage import Output

JOINT_DOCUMENTS = 500_000  # greatest number of candidates that are solved as one pool
MASK_SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("selected", pa.bool_()),
        ("probability", pa.float32()),
        ("price", pa.float32()),
        ("reason", pa.string()),
    ]
)
REPEAT = pa.field("repeat", pa.int32())  # last of a mask's columns, where select.repeat is above 1
PRICES_SCHEMA = pa.schema([("shard", pa.string()), ("candidates", pa.int64()), ("selected", pa.int64())])
Arrays = Mapping[str, np.ndarray]  # by the names of `ShardedSelection.decided`
EXTENDED_SCHEMA = PRICES_SCHEMA.append(pa.field("by", pa.string()))  # the key of the prices that decided on the shard


def learn_prices(all_files: Sequence[ShardFiles], config: Config, work: str, maps: Mapper = here) -> Output:
    """Selects from all shards as one pool. Publishes work/prices/prices-<key>.parquet (candidates and selected per
    shard), and every shard's mask, as `mask_shard` has it.

    Facts: the objective with its terms, bound, gap and history (`Selection.facts` without seconds), scope and budget.

    :param maps: who runs the rounds: up to `JOINT_DOCUMENTS` candidates, and `JOINT_NUMBERS` of their atoms, are one
        item, more as `moment_rounds` and `cover.cover_shards` say.
    :raises InputError: no candidates, the budget or a limit asks for more than there is, or what coverage holds of all
        candidates does not fit into the memory of one process.
    :raises ConfigError: the solver cannot do what the settings ask.
    """
    ordered = with_their_atoms(all_files, config, work)
    return publish_prices(ordered, config, work, [], lambda state: _learn(ordered, state, maps))


# ---------------------------------------------------------------- rounds


@dataclass(frozen=True)
class SelectionRun:
    """The state of every round: settings, the work folder, the rounds' own folder, and the prices' key."""

    config: Config
    work: str
    folder: str
    key: str


class SelectionFacts(NamedTuple):
    """The rows and facts that `publish_prices` publishes."""

    rows: Sequence[tuple[Any, ...]]  # shard, candidates, selected, by
    facts: Mapping[str, Any]


def with_their_atoms(all_files: Sequence[ShardFiles], config: Config, work: str) -> list[ShardFiles]:
    """The shards in the order of their names, with their atoms where the settings need them."""
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    return [with_atoms(files, config, work) for files in ordered]


def publish_prices(
    ordered: Sequence[ShardFiles],
    config: Config,
    work: str,
    beside: Sequence[str],
    decide: Callable[[SelectionRun], SelectionFacts],
) -> Output:
    """Publishes what `decide` finds in rounds, unless it is there with all masks.

    beside: the keys of what the decision stands on beside the shards' files.
    """
    told = target_facts(ordered, config.selection)
    key = STAGES["prices"].key(config, code_of(config), *beside, [inputs_of(files, config) for files in ordered])
    url = storage.join(work, "prices", f"prices-{key}.parquet")
    if (found := storage.find_output(url, key)) and has_masks(ordered, config, work, found):
        return found
    with rounds(work, "prices", key) as folder:
        made = decide(SelectionRun(config, work, folder, key))
    schema = EXTENDED_SCHEMA if beside else PRICES_SCHEMA
    table = pa.table([list(column) for column in zip(*made.rows, strict=True)], schema=schema)
    return storage.write_output(url, key, schema, [table], lambda: {**made.facts, **told})


def _learn(ordered: Sequence[ShardFiles], state: SelectionRun, maps: Mapper) -> SelectionFacts:
    settings = state.config.selection
    total = sum(files.scores.rows for files in ordered if files.scores)
    covers = any(name.startswith("coverage-") for name in settings.metrics)
    numbers = numbers_of(settings, held_words(ordered) if reads_words(settings) else 0, total) if covers else 0
    able = can_cover(settings) if covers else can_sum_moments(settings)
    if able and (total > JOINT_DOCUMENTS or numbers > JOINT_NUMBERS):
        corpus = gather_groups(ordered, state, maps)
        present = [group for group in corpus.candidates if len(group)]
        if present and (covers or sum(map(len, present)) > JOINT_DOCUMENTS):
            with suppress(UndecidedTooFew):
                found = (CoverRounds if covers else MomentRounds)(present, state.config, state.folder, maps).run()
                facts = {"scope": "corpus", **settings.facts(), **found.facts}
                return SelectionFacts(write_groups(corpus, found.decided, state, maps), facts)
    check_room(numbers, settings)
    return maps(solve_all_candidates, state, [tuple(ordered)], rest=True)[0]


class GatheredCorpus(NamedTuple):
    """The corpus in groups of shards, each group's candidates read by one worker."""

    groups: list[tuple[ShardFiles, ...]]
    rows: list[int]  # of each group
    candidates: list[CandidateGroup]


def gather_groups(ordered: Sequence[ShardFiles], state: SelectionRun, maps: Mapper) -> GatheredCorpus:
    """The groups of these shards, smaller ones where coverage holds their atoms, with their candidates."""
    grouped = groups(ordered, GROUP_ROWS) if can_cover(state.config.selection) else groups(ordered)
    shards = [tuple(ordered[place] for place in group) for group in grouped]
    rows = [sum(files.shard.rows or 0 for files in group) for group in shards]
    return GatheredCorpus(shards, rows, maps(gather_candidates, state, list(enumerate(shards)), rows))


def write_groups(
    corpus: GatheredCorpus, made: Sequence[Handed], state: SelectionRun, maps: Mapper, stay: Collection[str] = ()
) -> list[tuple[str, int, int]]:
    """Writes what was decided, and returns a row for each shard. made: of each group that has candidates.

    stay: names of the shards whose decisions are there already.
    """
    left, decided = iter(made), []
    for shards, group in zip(corpus.groups, corpus.candidates, strict=True):
        kept = frozenset(files.shard.name for files in shards if files.shard.name in stay)
        decided.append(Decided(shards, next(left) if len(group) else NOTHING, kept))
    return [row for rows in maps(write_decisions, state, decided, corpus.rows) for row in rows]


def solve_all_candidates(state: SelectionRun, ordered: tuple[ShardFiles, ...]) -> SelectionFacts:
    """All candidates as one problem, on one worker."""
    with share_part(0, 0.03):
        read = [read_candidates(files, state.config) for files in ordered]
        group = group_of(ordered, read, state.config)
    with share_part(0.03, 0.97):
        decided, facts = select_jointly(group, state.config.selection)
    with share_part(0.97, 1):
        rows = write_decisions(state, Decided(ordered, Handed(arrays=decided)), read)
    return SelectionFacts(rows, {"scope": "corpus", **state.config.selection.facts(), **facts})


def select_jointly(group: CandidateGroup, settings: ResolvedSelect) -> tuple[Arrays, dict[str, Any]]:
    """Selects from a group as one pool: its arrays, with `repeat` (n,) where documents may be repeated; and
    `Selection.facts` without seconds.

    :raises InputError: as `gather_pool` and `make_problem`.
    """
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        with share_part(0, 0.1):
            pool = gather_pool(group, settings, folder)
        with share_part(0.1, 0.97):
            chosen = select_from(pool, settings)
    facts = {name: value for name, value in chosen.facts().items() if name != "seconds"}
    columns = {"selected": chosen.selected, "probability": chosen.probability, "price": chosen.price}
    return columns | ({} if chosen.repeat is None else {"repeat": chosen.repeat}), facts


NONE = np.zeros(0, np.float32)
NOTHING = Handed(arrays={"selected": NONE, "probability": NONE, "price": NONE})


class Decided(NamedTuple):
    """What was decided for the shards of a group."""

    shards: Sequence[ShardFiles]
    arrays: Handed  # as of `ShardedSelection.decided`, of all candidates one shard after the other
    stay: frozenset[str] = frozenset()  # shards whose decisions are there


def write_decisions(
    state: SelectionRun, decided: Decided, read: Iterable[Candidates] = ()
) -> list[tuple[str, int, int]]:
    """Writes the decisions of the shards but of those that stay; a row for each of these. read: the shards' candidates,
    where they are at hand."""
    names, rows, start = decided.arrays.names(), [], 0
    columns = dict(zip(names, decided.arrays.read(*names), strict=True))
    each = read or (read_candidates(files, state.config) for files in decided.shards)
    for files, candidates in zip(decided.shards, each, strict=True):
        part = slice(start, start := start + len(candidates))
        if files.shard.name not in decided.stay:
            own = {name: column[part] for name, column in columns.items()}
            place = mask_place(files, state.config, state.work, state.key)
            _write_mask(place, candidates, own, state.config.selection.repeat)
            rows.append((candidates.shard, len(candidates), int(own["selected"].sum())))
    return rows


# ---------------------------------------------------------------- a shard's mask


def mask_shard(
    files: ShardFiles, prices: Output | None, config: Config, work: str, progress: Progress = silent
) -> Output:
    """Publishes the shard's mask: a row per document, with the reason of what is not selected.

    prices: `learn_prices`' output (scope corpus), or None (scope shard).
    Facts: documents, candidates, selected, filtered {name: rows}; in scope shard the shard's objective and bound too.

    :raises ConfigError: scope shard with a budget that only a whole corpus can share out.
    :raises InputError: the prices have not decided on the shard, or it has changed since.
    """
    files = with_atoms(files, config, work)
    name = files.shard.name
    by = decided_by(prices.path, prices.key).get(name, prices.key) if prices else None
    place = mask_place(files, config, work, by)
    if found := storage.find_output(*place):
        return replace(found, cached=prices is None or by != prices.key or prices.cached)
    if prices:
        raise InputError(
            f"{prices.path} has not decided on the shard {name} as it is now: extend it by the shard "
            "(selection.extension.extend_prices), or remove it and run again"
        )
    candidates = read_candidates(files, config)
    made, facts = _alone(files, candidates, config)
    output = _write_mask(place, candidates, made, config.selection.repeat, facts)
    progress(output.rows)
    return output


def _alone(files: ShardFiles, candidates: Candidates, config: Config) -> tuple[Arrays, dict[str, object]]:
    """The selection from one shard."""
    settings = config.selection
    if settings.budget_documents or settings.budget_tokens:
        raise ConfigError(
            "scope shard needs a token_ratio or a select_ratio: a number of documents or tokens is for scope corpus to "
            "share out"
        )
    count, tokens = len(candidates), candidates.tokens
    none = np.zeros(count, np.float32)
    if settings.in_tokens:
        share = (settings.token_ratio or 0) * float(tokens.sum())
        nothing = count == 0 or round(share) < tokens.min()
    else:
        nothing = round((settings.select_ratio or 0) * count) == 0
    if nothing:
        return {"selected": none.astype(bool), "probability": none, "price": none}, {"objective": None}
    decided, facts = select_jointly(group_of([files], [candidates], config), settings)
    return decided, {**settings.facts(), **facts, "scope": "shard"}


def _write_mask(
    place: tuple[str, str], candidates: Candidates, decided: Arrays, repeat: int, facts: Mapping[str, object] = {}
) -> Output:
    """Publishes a shard's mask. repeat: `select.repeat`; above 1, a column says how often each document is taken."""

    def scatter(values: np.ndarray, dtype: type) -> np.ndarray:
        column: np.ndarray = np.zeros(len(candidates.chunk_id), dtype)
        column[candidates.index] = values
        return column

    selected = np.asarray(decided["selected"], bool)
    reason = candidates.reason.copy()
    reason[candidates.index[~selected]] = "not_selected"
    numbers = [scatter(decided[name], np.float32) for name in ("probability", "price")]
    table = pa.table(
        [candidates.chunk_id, scatter(selected, bool), *numbers, pa.array(reason, pa.string())], schema=MASK_SCHEMA
    )
    if repeat > 1:
        times = decided.get("repeat", selected)
        table = table.append_column(REPEAT, pa.array(scatter(times, np.int32)))
    filtered = Counter(why.removeprefix("filter:") for why in candidates.reason.tolist() if why)
    counted = {
        "documents": len(reason),
        "candidates": len(candidates),
        "selected": int(selected.sum()),
        "filtered": dict(sorted(filtered.items())),
    }
    return storage.write_output(*place, table.schema, [table], lambda: {**facts, **counted})


def mask_place(files: ShardFiles, config: Config, work: str, by: str | None) -> tuple[str, str]:
    """A shard's mask: its path, and its key. It holds for the files it was made from: after another filter, it is new.

    by: the key of the prices that decide on the shard; None: it is solved alone.
    """
    key = STAGES["mask"].key(config, code_of(config), by, inputs_of(files, config))
    return storage.join(work, "masks", f"{files.shard.name}-{key}.parquet"), key


def has_masks(all_files: Sequence[ShardFiles], config: Config, work: str, prices: Output) -> bool:
    """Whether the masks of all shards that these prices decided on are there."""
    there = set(storage.list_names(storage.join(work, "masks")))
    by = decided_by(prices.path, prices.key)
    places = (mask_place(files, config, work, by.get(files.shard.name, prices.key)) for files in all_files)
    return all(path.rsplit("/", 1)[-1] in there for path, _ in places)


@lru_cache(maxsize=2)
def decided_by(path: str, key: str) -> Mapping[str, str]:
    """Shard -> key of the prices that decided on it, for shards that are not the prices' own, of this key."""
    table = storage.read_table(path)
    if "by" not in table.column_names:
        return {}
    return dict(zip(table["shard"].to_pylist(), table["by"].to_pylist(), strict=True))


def code_of(config: Config) -> dict[str, str]:
    """The code, as keys hold it, of metrics and a solver of the user's own."""
    select = config.selection
    return extensions.fingerprints_of("metric", select.metrics) | extensions.fingerprints_of("solver", [select.solver])


def inputs_of(files: ShardFiles, config: Config) -> list[str | None]:
    """The keys of the shard's files that a selection reads; of its topics where these settings' choice reads them."""
    if files.scores is None or files.index is None:
        raise InputError(f"shard {files.shard.name} is not scored and indexed yet")
    outputs = [files.index, files.embeddings, files.scores, files.filters, files.duplicates]
    outputs += [files.atoms] if files.atoms else []
    outputs += [files.topics] if files.topics and TOPIC in pool_columns(config.selection) else []
    keys = [output.key if output else None for output in outputs]
    if files.copies and (decides := files.copies.facts.get("decides", files.copies.key)):
        keys.append(decides)
    return [files.shard.name, files.shard.columns_key, *keys]
