"""Filters: which documents may be selected at all. Ids and scores first, documents' columns only if a filter asks.

Each shard's rows are read once, in order; what a filter takes keeps that filter's name. Exact duplicates are found over
all shards, among what passed the other filters (`exact`): of documents with the same text the least altered stays
(least `wear` in the signatures: copies in capitals, with doubled spaces or on one line have more; ties: the first by
shard name, then row), so the order of the shards never matters. A score would judge the layout alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from datamask import extensions, storage
from datamask.config import COPY_COLUMNS, Config
from datamask.corpus.columns import nearest_column
from datamask.corpus.plan import Shard
from datamask.corpus.read import INDEX_COLUMNS, TOPIC, corpus_schema, index_columns, read_documents
from datamask.duck import connect
from datamask.errors import ConfigError, ConservationError, InputError, nearest
from datamask.filter import exact_duplicates as exact
from datamask.filter.built_in import Contaminated, Own, filters_of
from datamask.filter.contamination import common_rows, contaminated
from datamask.filter.contamination import wanted as decontaminates
from datamask.filter.exact_duplicates import ExactDuplicates
from datamask.filter.leaks import items_of
from datamask.filter.where import Condition, check_expression
from datamask.maps import Mapper, groups, here, keeping, parts_of, rounds
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles, cached_outputs, keep_outputs, required
from datamask.storage import Output

SCHEMA = pa.schema([("chunk_id", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])
PASSED = 0  # codes: 0, then 1 + the filter's place in the names of a run's filters
BATCH_ROWS = 20_000  # documents at a time when a filter reads them (fewer where texts are long)
LIGHT = ("chunk_id", *INDEX_COLUMNS)  # the index's columns that a condition may name
COMPARED = ("text_hash", "wear")  # of ours, what exact duplicates compare: no condition reads them


@dataclass(frozen=True)
class _Filters:
    """The filters of a run, checked against the corpus."""

    config: Config
    condition: Condition | None
    schema: pa.Schema  # of the corpus
    documents: tuple[str, ...]  # the documents' columns that are read
    scores: tuple[str, ...]  # the scores that are read
    after: bool  # of the selection: only what the masks selected is looked at
    names: tuple[str, ...]  # of the filters, in the order in which they are asked
    common: frozenset[int] = frozenset()  # of the test items' rows of words: what is usual in the pool

    def code(self, name: str) -> int:
        """What stands for a filter in a shard's codes."""
        return 1 + self.names.index(name)


def check_left(all_files: Sequence[ShardFiles], config: Config) -> None:
    """The filters left enough to select from: asked before it is selected, of those that ran before.

    :raises InputError: they did not; says which filter took how many.
    """
    if any(files.filters is None for files in all_files):
        return
    took: Counter[str] = Counter()
    documents = 0
    for files in all_files:
        documents += required(files.filters).rows
        took.update(required(files.filters).facts["filtered"])
        if files.duplicates:
            took["duplicates"] += int(files.duplicates.facts.get("duplicates", files.duplicates.rows))
    left = documents - took.total()
    select = config.selection
    wanted = select.budget_documents or (1 if select.in_tokens else round((select.select_ratio or 0) * left))
    if 1 <= wanted <= left:
        return
    named = ", ".join(f"{name} took {count:,}" for name, count in took.most_common() if count) or "none was filtered"
    asked = f"{select.budget_name} {getattr(select, select.budget_name):,}"
    ways = [f"raise select_ratio to {1 / left:.2g} or more"] if left and select.select_ratio else []
    ways += ["lower budget_documents"] if left and select.budget_documents else []
    raise InputError(
        f"{left:,} of {documents:,} documents are left to select from ({named}), too few for {asked}; "
        + ", or ".join(["loosen filter.* or duplicates.*", *ways])
    )


def filter_corpus(all_files: Sequence[ShardFiles], config: Config, work: str, maps: Mapper = here) -> list[Output]:
    """Each shard's filters file (chunk_id, reason), in the order of `all_files`.

    With `filter.order: after` the files must carry masks, and only selected rows are looked at.
    A shard's file is named by its own rows' reasons, so a new shard that changes nothing in another leaves it, and all
    that follows from it, as it was.

    :param maps: who runs the rounds: the filters that look at a document alone, a group of shards each; exact
        duplicates, a part of the hashes each; the files.
    :raises ConfigError: filter.where is not a condition on these columns, or a filter needs a column there is not.
    :raises ConservationError: a shard's index and scores do not have the same rows.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    plan = _plan(corpus_schema([files.shard for files in all_files], config), _common_scores(all_files), config)
    key = _key(all_files, plan)
    made = storage.join(work, "filters")
    if (found := cached_outputs(all_files, made, key)) is not None:
        return found
    plan = replace(plan, common=common_rows(ordered, config))
    rows = sum(files.index.rows for files in ordered if files.index)
    parts = parts_of(rows, exact.PART_ROWS) if config.filter.exact_duplicates else 0
    items = [(number, tuple(ordered[place] for place in group)) for number, group in enumerate(groups(ordered))]
    counts = [sum(files.shard.rows or 0 for files in shards) for _, shards in items]
    keys = tuple(storage.key("look", _key(shards, plan), parts) for _, shards in items)
    names = [name.format(key) for key in keys for name in (exact.CODES, exact.TEXTS)]
    with rounds(work, "filter", key) as folder, keeping(work, "filter", key, names) as kept:
        state = Filtering(config, plan, work, ExactDuplicates(folder, kept, keys, parts))
        maps(apply_filters, state, items, counts)
        maps(find_exact_copies, state, range(parts))
        outputs = [output for group in maps(write_filters, state, items, counts) for output in group]
    return keep_outputs(all_files, outputs, made, key)


def check_filters(shards: Sequence[Shard], config: Config) -> None:
    """Whether the filters fit the (converted) shards, as far as it can be told before anything is embedded or scored.

    :raises ConfigError: see `filter_corpus`.
    """
    if decontaminates(config):
        items_of(config)
    names = [scorer.name for scorer in config.quality.measured]
    _plan(corpus_schema(shards, config), [*names, "quality_score"], config, names)


def _plan(schema: pa.Schema, scores: Sequence[str], config: Config, scorers: Sequence[str] = ()) -> _Filters:
    settings = config.filter
    condition, hidden = _condition(schema, scores, config, scorers)
    if condition is not None and {*condition.columns} & {*COPY_COLUMNS}:
        condition = None  # asked once copies are known: `where_by_copies`
    if settings.languages and "language" not in schema.names:
        raise ConfigError(
            f"filter.languages is set, but the corpus has no column language{nearest('language', schema.names)} "
            f"(columns: {', '.join(schema.names)}), and filter.identify is off; "
            "map it: --set corpus.columns.language=NAME, or have it identified: --set filter.identify=needed",
            setting="filter.languages",
            valid=schema.names,
            next=["--set corpus.columns.language=NAME", "--set filter.identify=needed"],
        )
    filters = filters_of(config, condition)
    known_names = list(dict.fromkeys([*LIGHT, *scores, *schema.names, *([TOPIC] if config.makes_topics else [])]))
    for own in (each for each in filters if isinstance(each, Own)):
        for column in own.columns:
            if column not in known_names:
                raise ConfigError(
                    f"filter.own: {own.name} reads column {column!r}, which there is not"
                    f"{nearest_column(column, known_names)} (columns: {', '.join(known_names)})"
                )
    columns = dict.fromkeys(column for each in filters for column in each.columns)
    names = [each.name for each in filters] + ([ExactDuplicates.name] if settings.exact_duplicates else [])
    return _Filters(
        config,
        condition,
        schema,
        documents=tuple(column for column in columns if column not in hidden),
        scores=tuple(column for column in columns if column in scores),
        after=settings.order == "after",
        names=tuple(names),
    )


def _condition(
    schema: pa.Schema, scores: Sequence[str], config: Config, scorers: Sequence[str] = ()
) -> tuple[Condition | None, set[str]]:
    """filter.where, and the columns of ours that hide the documents' of the same name (<name>_original then)."""
    light = ("chunk_id", *index_columns(schema))
    ours = [pa.field(name, pa.string() if name == "id" else pa.int64()) for name in light]
    ours += [pa.field(name, pa.float32()) for name in scores]
    ours += [pa.field(name, pa.int32()) for name in COPY_COLUMNS if config.counts_copies]
    hidden = {field.name for field in ours}
    if config.filter.where is None:
        return None, hidden
    ours += [pa.field(TOPIC, pa.string())] if config.makes_topics else []  # read as the documents' columns are
    taken = {field.name for field in ours}
    known = pa.schema([*(field for field in schema if field.name not in taken), *ours])
    return check_expression(config.filter.where, known, scorers), hidden


def where_by_copies(files: ShardFiles, counts: pa.Table, schema: pa.Schema, config: Config, work: str) -> np.ndarray:
    """(documents,) bool: whether filter.where holds, if it names a count of copies; else true.

    :param counts: COPY_COLUMNS of the shard's documents. :param schema: of the corpus.
    """
    scores = _common_scores([files])
    condition, hidden = _condition(schema, scores, config)
    if condition is None or not {*condition.columns} & {*COPY_COLUMNS}:
        return np.ones(counts.num_rows, bool)
    read = tuple(name for name in condition.columns if name not in hidden)
    asked = tuple(name for name in condition.columns if name in scores)
    plan = _Filters(config, condition, schema, documents=read, scores=asked, after=False, names=())
    rows, _ = _shard_rows(files, plan)
    for name in COPY_COLUMNS:
        rows = rows.append_column(name, counts[name])
    with connect(config.filter.memory_limit, work) as connection:
        return np.concatenate([condition.keeps(connection, part) for part in _tables(files, rows, plan)])


def _common_scores(all_files: Sequence[ShardFiles]) -> tuple[str, ...]:
    if not all_files:
        return ()
    with storage.open_parquet(required(all_files[0].scores).path) as file:
        return tuple(name for name in file.schema_arrow.names if name != "chunk_id")


def _key(all_files: Sequence[ShardFiles], plan: _Filters) -> str:
    inputs = []
    for files in sorted(all_files, key=lambda files: files.shard.name):
        read = [required(files.index), required(files.scores), files.masks if plan.after else None]
        read += [files.signatures if plan.config.filter.exact_duplicates else None, files.leaks]
        read += [files.topics if TOPIC in plan.documents else None]
        inputs.append([files.shard.name, files.shard.columns_key, *(output.key for output in read if output)])
    # of the user's filters names, options, and their code
    own = [
        [each.label, each.options, extensions.require("filter", each.use).fingerprint()]
        for each in plan.config.filter.own
    ]
    columns = [plan.config.corpus.columns, plan.schema.to_string()] if plan.documents else []
    columns += sorted({*plan.documents} & {*LIGHT, *COMPARED})  # files of before have asked ours
    return STAGES["filter"].key(plan.config, own, columns, sorted(plan.common), inputs)


def _write(
    files: ShardFiles,
    chunk_id: np.ndarray,
    codes: np.ndarray,
    details: Mapping[int, str],
    filters: Sequence[str],
    work: str,
) -> Output:
    took = sorted({filters[code - 1] for code in np.unique(codes[codes > PASSED]).tolist()})
    place = np.array([0, *(1 + took.index(name) if name in took else 0 for name in filters)], np.uint8)
    # by the reasons alone: a filter that takes nothing leaves the file as it is
    content = [hashlib.sha256(place[codes].tobytes()).hexdigest(), took, *(sorted(details.items()) if details else ())]
    key = STAGES["filter"].key(None, required(files.index).key, required(files.scores).key, *content)
    path = storage.join(work, "filters", f"{files.shard.name}-{key}.parquet")
    counts = np.bincount(codes, minlength=1 + len(filters)).tolist()
    filtered = {name: count for name, count in zip(filters, counts[1:], strict=True) if count}
    facts = {"rows": len(codes), "passed": counts[PASSED], "filtered": filtered}
    names = pa.array([None, *filters], pa.string()).take(pa.array(codes))
    told = pa.nulls(len(codes), pa.string())
    if details:
        fell = codes == 1 + filters.index(Contaminated.name)
        said = zip(chunk_id.tolist(), fell.tolist(), strict=True)
        told = pa.array([details.get(number) if took else None for number, took in said], pa.string())
    table = pa.table([chunk_id, names, told], schema=SCHEMA)
    return storage.find_or_write(path, key, SCHEMA, [table], lambda: facts)


# ---------------------------------------------------------------- rounds


@dataclass(frozen=True)
class Filtering:
    """What the workers of a round are told."""

    config: Config  # of where the work runs: see `datamask.work.RoundWork`
    plan: _Filters
    work: str
    exchange: ExactDuplicates


Group = tuple[int, tuple[ShardFiles, ...]]  # number, shards


def apply_filters(state: Filtering, group: Group) -> None:
    """What the filters say of each document by itself."""
    number, shards = group
    exchange, plan = state.exchange, state.plan
    if exchange.looked_at(number):
        return
    codes, chunk_ids, passed = [], [], []
    conditions = connect(state.config.filter.memory_limit, state.work) if plan.condition else nullcontext()
    with conditions as connection:
        for place, files in enumerate(shards):
            rows, candidate = _shard_rows(files, plan)
            codes.append(_shard_codes(files, rows, candidate, plan, connection))
            chunk_ids.append(rows["chunk_id"].to_numpy())
            passed.append(exact.text_records(place, rows, (codes[-1] == PASSED) & candidate))
    exchange.publish(number, codes, chunk_ids, passed)


def find_exact_copies(state: Filtering, part: int) -> None:
    """Which of the texts of a part are there more than once."""
    state.exchange.find(part)


def write_filters(state: Filtering, group: Group) -> list[Output]:
    """The shards' files."""
    number, shards = group
    found = []
    for files, (chunk_id, codes, repeated) in zip(shards, state.exchange.read(number), strict=True):
        if len(repeated):
            codes[repeated] = state.plan.code(ExactDuplicates.name)
        details = contaminated(files, state.config, state.plan.common)
        found.append(_write(files, chunk_id, codes, details, state.plan.names, state.work))
    return found


# ---------------------------------------------------------------- reasons


def _shard_rows(files: ShardFiles, plan: _Filters) -> tuple[pa.Table, np.ndarray]:
    """Index and scores of the rows that are documents, in order; and which of them the filters look at."""
    name = files.shard.name
    index = storage.read_table(required(files.index).path, [*LIGHT, "text_hash", "reason"])
    if not np.array_equal(index["chunk_id"].to_numpy(), np.arange(index.num_rows)):
        raise ConservationError(f"shard {name}: its index does not have the rows 0 … {index.num_rows - 1} in order")
    rows = index.filter(pc.is_null(index["reason"])).drop_columns(["reason"])
    scores = storage.read_table(
        required(files.scores).path, ["chunk_id", *dict.fromkeys([*plan.scores, "quality_score"])]
    )
    if not scores["chunk_id"].equals(rows["chunk_id"]):
        raise ConservationError(
            f"shard {name}: {rows.num_rows} documents in its index, {scores.num_rows} in its scores"
        )
    for column in scores.column_names[1:]:
        rows = rows.append_column(column, scores[column])
    rows = rows.append_column("wear", _wear(files, rows["chunk_id"], rows["quality_score"]))
    candidate = np.ones(rows.num_rows, dtype=bool)
    if plan.after:
        if files.masks is None:
            raise ConfigError("filter.order is after, but the selection has not run yet")
        masks = storage.read_table(files.masks.path, ["chunk_id", "selected"])
        if not masks["chunk_id"].equals(rows["chunk_id"]):
            raise ConservationError(
                f"shard {name}: {rows.num_rows} documents in its index, {masks.num_rows} in its masks"
            )
        candidate = masks["selected"].to_numpy()
    return rows, candidate


def _wear(files: ShardFiles, chunk_id: pa.ChunkedArray, quality: pa.ChunkedArray) -> pa.Array:
    wear = np.zeros(len(chunk_id), np.int32)
    if files.signatures is not None:
        table = storage.read_table(files.signatures.path, ["wear"])
        wear = table["wear"].to_numpy()[chunk_id.to_numpy()].copy()
    wear[np.isnan(quality.to_numpy())] = np.iinfo(np.int32).max  # a copy that could be scored goes first
    return pa.array(wear)


def _shard_codes(
    files: ShardFiles, rows: pa.Table, candidate: np.ndarray, plan: _Filters, conditions: DuckDBPyConnection | None
) -> np.ndarray:
    held = contaminated(files, plan.config, plan.common)
    filters = filters_of(plan.config, plan.condition, conditions, held)
    codes = np.zeros(rows.num_rows, dtype=np.uint8)
    start = 0
    for documents in _tables(files, rows, plan):
        part = slice(start, start := start + documents.num_rows)
        view, asked = codes[part], candidate[part]
        for each in filters:
            view[~each.keep(documents) & asked & (view == PASSED)] = plan.code(each.name)
    return codes


def _tables(files: ShardFiles, rows: pa.Table, plan: _Filters) -> Iterator[pa.Table]:
    """The rows with the documents' columns that filters read, a batch at a time where there are such."""
    if not plan.documents:
        yield rows
        return
    rows = rows.select([name for name in rows.column_names if name not in (*COMPARED, *plan.documents)])
    start = 0
    for batch in read_documents(files, plan.config, plan.documents, BATCH_ROWS, plan.schema):
        part = rows.slice(start, batch.num_rows)
        for name in plan.documents:
            part = part.append_column(name, batch[name])
        yield part
        start += batch.num_rows
