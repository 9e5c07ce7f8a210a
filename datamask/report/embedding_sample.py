"""What the report reads: exact sums over every row, and a bounded sample of rows to look at more closely.

sample = read_sample(all_files, config)
sample.features(np.array([3, 17]))          # (2, 768) float16
"""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config, ResolvedSelect
from datamask.corpus.plan import Shard
from datamask.corpus.read import TOPIC, corpus_columns, documents_at, read_topics, scattered
from datamask.encoders.vectors import hash_vectors
from datamask.errors import ConservationError
from datamask.maps import Handed, Mapper, groups, hand_on, here
from datamask.release.merge import NONE, as_strings
from datamask.report.tally import Signals, Tally, counted, signals_of, summed
from datamask.selection.metrics import pool_columns
from datamask.stages import ShardFiles, required

GROUP_COLUMNS = ("domain", "language", "dump", "source", "label", TOPIC)
LEAST_FILLED = 0.1  # share of documents that must have a value
Place = tuple[str, int]  # a shard's name and a row of it
ITEM_ROWS, ITEM_SHARDS = 1500, 16  # rows that an item of a round reads, about, of so many shards at most
MAX_GROUPS = 1000  # a column with more values in the sample is no grouping (an id, a URL)


Documents = Mapping[Place, Mapping[str, Any]]  # columns of rows of the corpus, by place


@dataclass(frozen=True)
class Sample:
    """Rows that were not quarantined: all of them, or a deterministic uniform sample; one array entry a row."""

    config: Config
    files: Sequence[ShardFiles]
    totals: list[dict[str, Any]]  # outcome, documents, tokens, over every row read; outcomes as in `tally`
    rate: float  # share of the rows that is in the sample
    shard: npt.NDArray[np.int32]  # position in `files`
    chunk_id: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    reason: npt.NDArray[np.object_]  # None where selected
    probability: npt.NDArray[np.float32]
    price: npt.NDArray[np.float32]
    scores: Mapping[str, npt.NDArray[np.float32]]  # quality_score and one per scorer
    groups: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)
    read: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)  # what solvers read, groups or not
    maps: Mapper = here  # who reads more of its rows
    folder: str | None = None

    def __len__(self) -> int:
        return len(self.chunk_id)

    @property
    def quality(self) -> npt.NDArray[np.float32]:
        """(n,) float32 quality scores."""
        return self.scores["quality_score"]

    def pool_groups(self, settings: ResolvedSelect, rows: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[np.str_]]:
        """Column -> (n,) values of these rows, of the columns that quotas and metrics read, as the solvers take them.

        A metric's column that the sample was read without is left out; who makes the metric says so.
        """
        names = [name for name in pool_columns(settings) if name in self.read]
        return {name: np.array([str(value or "") for value in self.read[name][rows]]) for name in names}

    @property
    def selected(self) -> npt.NDArray[np.bool_]:
        """(n,) bool: which documents are selected."""
        return np.array([reason is None for reason in self.reason], dtype=bool)

    @property
    def candidates(self) -> npt.NDArray[np.bool_]:
        """What the solver could choose from: selected or not, but not filtered."""
        return np.array([reason is None or reason == "not_selected" for reason in self.reason], dtype=bool)

    @property
    def embedded(self) -> bool:
        return all(files.embeddings for files in self.files)

    def features(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.float16]:
        """(len(rows), d) float16, in the order of `rows`; without vectors, the `hash_vectors` of the texts."""
        order = np.lexsort((self.chunk_id[rows], self.shard[rows]))
        ordered = rows[order]
        wanted = []
        for number in np.unique(self.shard[ordered]):
            output = required(self.files[number].embeddings or self.files[number].index)
            wanted.append((output.path, self.chunk_id[ordered[self.shard[ordered] == number]]))
        found = self.maps(read_vectors, SampleRound(self.config, self.folder, ()), _shared(wanted))
        vectors = [handed.read("vectors")[0] for handed in found]
        if not vectors:
            return np.empty((0, 0), dtype=np.float16)
        joined = np.concatenate(vectors)
        features = np.empty_like(joined)
        features[order] = joined
        return features

    def places(self, rows: npt.NDArray[np.integer]) -> list[Place]:
        return [(self.files[self.shard[row]].shard.name, int(self.chunk_id[row])) for row in rows]

    def documents(self, places: Iterable[Place], names: Sequence[str]) -> Documents:
        """The corpus's own columns of rows of it, as far as it has them, read in one pass over the shards."""
        wanted: dict[str, set[int]] = defaultdict(set)
        for shard, chunk_id in places:
            wanted[shard].add(chunk_id)
        asked = [
            (files.shard, np.array(sorted(wanted[files.shard.name]), dtype=np.int64))
            for files in self.files
            if files.shard.name in wanted
        ]
        found = self.maps(read_rows, SampleRound(self.config, None, tuple(names)), _shared(asked))
        return {place: row for rows in found for place, row in rows.items()}

    def columns(self, rows: npt.NDArray[np.integer], names: Sequence[str]) -> list[Mapping[str, Any]]:
        """`documents` of some rows of the sample, in their order."""
        places = self.places(rows)
        documents = self.documents(places, names)
        return [documents[place] for place in places]


class Vectors:
    """The vectors of some rows, read in one pass over the shards: vectors(rows) is (len(rows), d) float16."""

    def __init__(self, sample: Sample, rows: npt.NDArray[np.integer]) -> None:
        self.rows = np.unique(rows)
        self.values = sample.features(self.rows)

    def __call__(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.float16]:
        places = np.searchsorted(self.rows, rows).clip(max=max(len(self.rows) - 1, 0))
        if not np.array_equal(self.rows[places], rows):
            raise KeyError("a row whose vector was not read")
        return self.values[places]


def read_sample(
    all_files: Sequence[ShardFiles],
    config: Config,
    rows: int = 1_000_000,
    seed: int | None = None,
    tally: Tally | None = None,
    maps: Mapper = here,
    folder: str | None = None,
) -> Sample:
    """Reads index, scores and masks of every shard, a group of shards each; the caller holds the sample.

    :param rows: about how many rows the sample holds at most.
    :param seed: which sample; the settings' own seed by default.
    :param tally: counts every row by outcome, groups and signals, in the same pass.
    :param maps: who runs the rounds. :param folder: for what they hand on; None: in memory.
    :raises ConservationError: a shard's files disagree about its rows.
    """
    total = sum(files.masks.rows for files in all_files if files.masks)
    rate = min(1.0, rows / max(total, 1))
    columns = tuple(dict.fromkeys([*grouping_columns(config), *pool_columns(config.selection)]))
    state = SampleRound(config, folder, columns, rate, config.select.seed if seed is None else seed, tally is not None)
    items = [(group[0], tuple(all_files[place] for place in group)) for group in groups(all_files)]
    found = maps(read_group, state, items, [sum(files.shard.rows or 0 for files in own) for _, own in items])
    if tally:
        for read in found:
            tally.take(_taken(read.counts))
            for signals in read.signals:
                tally.take_signals(signals)
    table = pa.concat_tables([_taken(read.rows) for read in found])
    joined = {name: _objects(table[f"group {name}"]) for name in columns}
    return Sample(
        config=config,
        files=list(all_files),
        totals=_summed_totals([read.totals for read in found]).sort_by("outcome").to_pylist(),
        rate=rate,
        **{name: table[name].to_numpy() for name in ROWS},
        reason=_objects(table["reason"]),
        scores={
            name.removeprefix("score "): table[name].to_numpy()
            for name in table.column_names
            if name.startswith("score ")
        },
        groups={name: joined[name] for name in grouping_columns(config) if _is_grouping(joined[name])},
        read={name: joined[name] for name in pool_columns(config.selection)},
        maps=maps,
        folder=folder,
    )


# ---------------------------------------------------------------- rounds

ROWS = ("shard", "chunk_id", "tokens", "probability", "price")  # and reason, "score <name>", "group <column>"
Taken: TypeAlias = "str | pa.Table"  # what a worker hands on: a file, or, where there is no folder, as it is


@dataclass(frozen=True)
class SampleRound:
    config: Config
    folder: str | None
    columns: tuple[str, ...]
    rate: float = 1.0
    seed: int = 0
    tally: bool = False


@dataclass(frozen=True)
class GroupRead:
    totals: pa.Table  # outcome, documents, tokens
    signals: Sequence[Signals]  # a shard each: sums of these depend on their order
    counts: Taken  # COUNTS, if they are asked for
    rows: Taken  # of the sample


def read_group(state: SampleRound, item: tuple[int, Sequence[ShardFiles]]) -> GroupRead:
    """The statistics of some shards, the first of them at this place among all, and their part of the sample."""
    first, shards = item
    totals, signals, counts, rows = [], [], [], []
    for number, files in enumerate(shards, first):
        index, masks, scores = _shard_tables(files, signals=state.tally)
        outcome = _outcomes(index, masks)
        ones = pa.repeat(1, len(outcome))
        columns = {"outcome": outcome, "documents": ones, "tokens": _counted(index, masks)}
        totals.append(_summed_totals([pa.table(columns)]))
        corpus = corpus_columns(files.shard, state.config, state.columns)
        if files.topics:
            topics = read_topics(files, pc.is_null(index["reason"]).to_numpy())
            others = [name for name in corpus.column_names if name != TOPIC]
            corpus = pa.table([*(corpus[name] for name in others), topics], names=[*others, TOPIC])
        if state.tally:
            chosen = pc.is_null(masks["reason"]).to_numpy()
            candidates = chosen | pc.equal(masks["reason"], "not_selected").fill_null(False).to_numpy()
            counts.append(counted(grouping_columns(state.config), outcome, index["token_count"], corpus))
            signals.append(signals_of(scores, candidates, chosen))
        generator = np.random.default_rng([state.seed, zlib.crc32(files.shard.name.encode())])
        kept = generator.random(masks.num_rows) < state.rate
        of_documents = {name: as_strings(corpus[name]).take(masks["chunk_id"]) for name in corpus.column_names}
        none = pa.nulls(masks.num_rows, pa.string())
        values = {
            "shard": pa.repeat(pa.scalar(number, pa.int32()), masks.num_rows),
            "chunk_id": masks["chunk_id"],
            "tokens": index.filter(pc.is_null(index["reason"]))["token_count"],
            **{name: masks[name] for name in ("probability", "price", "reason")},
            # <scorer>.<signal> columns explain a score; the sample holds scores
            **{f"score {name}": scores[name] for name in scores.column_names if "." not in name},
            **{f"group {name}": of_documents.get(name, none) for name in state.columns},
        }
        rows.append(pa.table(values).filter(pa.array(kept)))
    handed = (_hand(state, f"counts-{first}", summed(counts)), _hand(state, f"rows-{first}", pa.concat_tables(rows)))
    return GroupRead(_summed_totals(totals), signals, *handed)


def read_vectors(state: SampleRound, item: Sequence[tuple[str, npt.NDArray[np.int64]]]) -> Handed:
    """The vectors of the named rows of some embeddings files, one file's after another's."""
    name = storage.key([[path, hashlib.sha256(ids.tobytes()).hexdigest()] for path, ids in item])
    return hand_on(state.folder, f"vectors-{name}", vectors=np.concatenate([_embeddings(*one) for one in item]))


def read_rows(state: SampleRound, item: Sequence[tuple[Shard, npt.NDArray[np.int64]]]) -> Documents:
    places = [(shard.name, int(row)) for shard, rows in item for row in rows]
    return documents_at([shard for shard, _ in item], state.config, places, state.columns)


def _shared(items: Sequence[tuple[Any, npt.NDArray[np.int64]]]) -> list[list[tuple[Any, npt.NDArray[np.int64]]]]:
    """Shards and rows of them, several to an item where little is read of each."""
    found: list[list[tuple[Any, npt.NDArray[np.int64]]]] = []
    held = ITEM_ROWS
    for item in items:
        if held >= ITEM_ROWS or len(found[-1]) == ITEM_SHARDS:
            found.append([])
            held = 0
        found[-1].append(item)
        held += len(item[1])
    return found


def _hand(state: SampleRound, name: str, table: pa.Table) -> Taken:
    if state.folder is None:
        return table
    return storage.write_output(storage.join(state.folder, f"{name}.parquet"), name, table.schema, [table]).path


def _taken(table: Taken) -> pa.Table:
    return storage.read_table(table) if isinstance(table, str) else table


def _objects(column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    return np.asarray(column.to_numpy(), dtype=object)


# ---------------------------------------------------------------- tables


def grouping_columns(config: Config) -> list[str]:
    """The columns that documents are grouped by, as far as a corpus has them: the known ones, and those of quotas."""
    return list(dict.fromkeys([*GROUP_COLUMNS, *(quota.column for quota in config.selection.quotas)]))


def value_names(values: npt.NDArray[np.object_]) -> npt.NDArray[np.str_]:
    """(n,) the values as text; NONE for null and empty ones."""
    return np.array([str(value or NONE) for value in values], dtype=str)


def _is_grouping(values: npt.NDArray[np.object_]) -> bool:
    """A column that a good part of the documents have, with few enough values to be groups."""
    there = [value for value in values if value is not None and value != ""]
    return len(there) >= LEAST_FILLED * max(len(values), 1) and 1 <= len(set(there)) <= MAX_GROUPS


def _shard_tables(files: ShardFiles, signals: bool) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Index (one row per row read), masks, and the scorers' columns (one row per row not quarantined).

    With filters after the selection, a mask's reason is what they took from what is selected.
    """
    index = storage.read_table(required(files.index).path, ["chunk_id", "token_count", "reason"])
    masks = storage.read_table(required(files.masks).path)
    with storage.open_parquet(required(files.scores).path) as file:
        names = [name for name in file.schema_arrow.names if name != "chunk_id" and (signals or "." not in name)]
        scores = file.read(columns=["chunk_id", *names])
    if files.copies is not None:  # with the scorers that read counts of copies, as what is selected has them
        counted = storage.read_table(files.copies.path, ["quality_score"])["quality_score"]
        scores = scores.set_column(scores.column_names.index("quality_score"), "quality_score", counted)
    kept = index.filter(pc.is_null(index["reason"]))["chunk_id"]
    for table, stage in ((masks, "masks"), (scores, "scores")):
        if not table["chunk_id"].equals(kept):
            raise ConservationError(f"shard {files.shard.name}: {stage} and index name different rows")
    masks = _after(files, masks)
    return index, masks, scores.drop_columns(["chunk_id"])


def _after(files: ShardFiles, masks: pa.Table) -> pa.Table:
    """The masks with the reasons of filters that ran after the selection."""
    if files.filters is None or not masks.num_rows:
        return masks
    filters = storage.read_table(files.filters.path, ["chunk_id", "reason"])
    if not filters["chunk_id"].equals(masks["chunk_id"]):
        raise ConservationError(f"shard {files.shard.name}: filters and masks name different rows")
    taken = pc.binary_join_element_wise("filter", filters["reason"], ":")
    reason = pc.if_else(pc.is_null(masks["reason"]), taken, masks["reason"])
    return masks.set_column(masks.column_names.index("reason"), "reason", reason)


def _outcomes(index: pa.Table, masks: pa.Table) -> pa.Array:
    """(rows read,) what became of each: selected, not_selected, filter:<name> or quarantine:<reason>."""
    quarantined = pc.binary_join_element_wise("quarantine", index["reason"], ":")
    decided = scattered(pc.fill_null(masks["reason"], "selected"), pc.is_null(index["reason"]).to_numpy())
    return pc.coalesce(quarantined, decided).combine_chunks()


def _counted(index: pa.Table, masks: pa.Table) -> pa.ChunkedArray:
    """(rows read,) tokens, of a document that is taken several times as often."""
    if "repeat" not in masks.column_names:
        return index["token_count"]
    times = np.ones(index.num_rows, dtype=np.int64)
    times[masks["chunk_id"].to_numpy()] = np.maximum(masks["repeat"].to_numpy(), 1)
    return pc.multiply(index["token_count"], pa.array(times))


def _summed_totals(tables: Sequence[pa.Table]) -> pa.Table:
    """Documents and tokens by outcome, of tables of these three columns."""
    rows = pa.concat_tables(tables).group_by("outcome").aggregate([("documents", "sum"), ("tokens", "sum")])
    tokens = pc.fill_null(rows["tokens_sum"], 0)
    return pa.table({"outcome": rows["outcome"], "documents": rows["documents_sum"], "tokens": tokens})


def _embeddings(path: str, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.float16]:
    """The vectors of the named chunk_ids, a row group at a time; row groups with none of them are not read."""
    found: npt.NDArray[np.float16] | None = None
    with storage.open_parquet(path) as file:
        if "feature_arr" not in file.schema_arrow.names:
            index = file.read(columns=["chunk_id", "text_hash"])
            places = np.searchsorted(index["chunk_id"].to_numpy(), wanted)
            return hash_vectors(index["text_hash"].take(pa.array(places)))
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["chunk_id"])["chunk_id"].to_numpy()
            inside = np.flatnonzero(np.isin(wanted, ids))
            if not len(inside):
                continue
            vectors = file.read_row_group(group, columns=["feature_arr"])["feature_arr"].combine_chunks()
            values = vectors.values.to_numpy(zero_copy_only=False).reshape(len(ids), -1)
            if found is None:
                found = np.zeros((len(wanted), values.shape[1]), dtype=np.float16)
            found[inside] = values[np.searchsorted(ids, wanted[inside])]
    if found is None:
        raise ConservationError(f"{path}: none of the documents asked for are in it")
    return found
