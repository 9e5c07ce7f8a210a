"""The rounds of the search for near-duplicates: what each map reads, computes and hands on.

    load           a group of shards: its documents' facts, and their samples' shingles dealt to partitions
    meet           a partition of the shingles: pairs of documents that meet there, dealt to parts
    gather_met     a part of the pairs: those that met often enough
    count_common   a partition: what the pairs of every part have in common there
    estimate_part  a part: pairs that may be duplicates by their whole samples
    count_few      a partition: of what these have in common, what few groups of copies have
    choose         a part: pairs worth reading
    recall         some connected pairs: what an earlier run has decided of the same texts
    fetch          a group of shards: the texts of the other pairs' documents
    judge          some connected pairs, read whole
    write          a group of shards: what falls

What `load` finds in a group is kept for the next run, and so are the decisions: these are named by the documents, their
quality, and what each pair shares with how few others, so that connected documents are read again only if something
between them has changed.

Nobody holds more than a partition or a part; facts of documents are mapped from files, and only what is looked at is
read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.corpus.read import read_batches
from datamask.filter import decisions
from datamask.filter import duplicate_candidates as candidates
from datamask.filter import verify_pairs as verify
from datamask.filter.alarm import read_groups
from datamask.filter.duplicate_candidates import CandidatePairs, ConnectedGroups, Estimated, Holders
from datamask.filter.held_texts import HeldTexts
from datamask.filter.intact import CopyEvidence
from datamask.filter.postings import POSTING, SeenDocuments, Shared, partition_of, postings_of, sampled, shared_of
from datamask.maps import Handed, deal, dealt, gather, hand, handed, mapped, read_arrays, write_array, write_arrays
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles
from datamask.storage import Output

SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("duplicate_of_shard", pa.string()),
        ("duplicate_of", pa.int64()),
        ("similarity", pa.float32()),
        ("kind", pa.string()),  # exact, near, contained, semantic
        ("cluster", pa.string()),  # SHARD/CHUNK_ID of the first seen of those tied to one another
    ]
)
KINDS = decisions.KINDS
FACTS = ("shard", "chunk_id", "windows", "scale", "sampled", "draw", "quality", "rows")  # of a document
# where a text is: which batch of the group's file, and which row there
PLACE = np.dtype([("document", np.int64), ("batch", np.int64), ("row", np.int64)])
TEXTS = pa.schema([("document", pa.int64()), ("text", pa.large_string())])
COUNT = np.dtype(np.uint16)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Searching:
    """The state of a round: what every worker is given beside its item."""

    config: Config
    work: str
    folder: str
    kept: str  # the folder of what the next run can use
    keys: tuple[str, ...]  # of the groups of shards: of all that `load` says of one
    partitions: int  # of the shingles, and as many parts of the pairs
    rules: verify.DuplicateRules
    columns: tuple[str, ...] = ()  # of the corpus, by which alarm is given
    schema: pa.Schema | None = None
    first: tuple[int, ...] = ()  # each group's first document
    fixed: int = 0  # documents of earlier releases
    quality_deviation: float = 0.0  # standard deviation of the quality
    pool: str | None = None  # in the work folder: the counts that the content score was made with
    earlier: str | None = None  # the decisions of the run before

    @property
    def groups(self) -> int:
        """The number of groups of shards."""
        return len(self.keys)

    def at(self, *names: object) -> str:
        """The path of a file of the rounds, its name joined from these parts."""
        return storage.join(self.folder, "-".join(map(str, names)))

    def facts(self, group: int) -> str:
        """The path of a group's facts, kept for the next run."""
        return storage.join(self.kept, facts_name(self.keys[group]))

    def postings(self, group: int) -> str:
        """The path of a group's postings, kept for the next run."""
        return storage.join(self.kept, postings_name(self.keys[group]))

    def documents(self) -> SeenDocuments:
        """The facts of all documents, mapped from files."""
        facts = {name: mapped(self.at(name) + ".npy") for name in FACTS[:6]}
        return SeenDocuments(fixed=self.fixed, **facts)


@dataclass(frozen=True)
class ComparedShard:
    """A shard whose documents are compared."""

    number: int  # among all
    files: ShardFiles
    config: Config | None  # of an earlier release, whose documents stay; None: the run's
    place: str = ""  # the earlier release's

    @property
    def name(self) -> str:
        """The shard's name, with the earlier release's place before it."""
        return f"{self.place}:{self.files.shard.name}" if self.place else self.files.shard.name


Group = tuple[int, tuple[ComparedShard, ...]]  # number, shards


def facts_name(key: str) -> str:
    """The file name of a group's facts. key: the group's."""
    return f"facts-{key}.npz"


def postings_name(key: str) -> str:
    """The file name of a group's postings. key: the group's."""
    return f"postings-{key}"


# ---------------------------------------------------------------- documents


def load(state: Searching, group: Group) -> int:
    """How many documents of the group are compared. A document's shard is its place in the group."""
    number, sources = group
    if storage.exists(state.facts(number)):
        return len(read_arrays(state.facts(number), "shard")[0])
    facts: dict[str, list[np.ndarray]] = {name: [] for name in FACTS}
    lengths, hashes = [], []
    values: dict[str, list[np.ndarray]] = {name: [] for name in state.columns}
    for place, source in enumerate(sources):
        rows, chunk_id, quality = _compared(source, state.config)
        table = storage.read_table(_output(source.files.signatures).path, ["chunk_id", "windows", "scale", "sample"])
        table = table.take(pa.array(chunk_id)).combine_chunks()
        some = table["windows"].to_numpy() > 0
        table = table.filter(pa.array(some)).combine_chunks()
        lists = table["sample"].combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) and lists.num_chunks else lists
        length = pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        every = pa.compute.list_flatten(lists).to_numpy(zero_copy_only=False)
        smallest = every[np.cumsum(length) - length] if len(every) else every
        own = [table[name].to_numpy() for name in ("chunk_id", "windows", "scale")]
        own += [sampled(length, every), smallest * _MIX, quality[some], rows[some]]
        for name, column in zip(FACTS, [np.full(len(length), place, np.int32), *own], strict=True):
            facts[name].append(column)
        lengths.append(length)
        hashes.append(every)
        if source.config is None:
            for name, found_values in read_groups(source.files, own[0], state.columns, state.schema, state.config):
                values[name].append(found_values)
    every = np.concatenate(hashes)
    deal(
        state.postings(number),
        postings_of(np.concatenate(lengths), every),
        partition_of(every, state.partitions),
        state.partitions,
    )
    named = {f"group_{name}": np.concatenate(parts) for name, parts in values.items() if parts}
    arrays = {name: np.concatenate(parts) for name, parts in facts.items()}
    write_arrays(state.facts(number), **arrays, **named)
    return len(arrays["shard"])


def _compared(source: ComparedShard, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows in the stages' files, chunk_id, quality) of the documents of a shard that are compared."""
    files = source.files
    scores = storage.read_table(_output(files.scores).path, ["chunk_id", "quality_score"])
    keep = np.ones(scores.num_rows, bool)
    if source.config is not None:
        keep = storage.read_table(_output(files.masks).path, ["selected"])["selected"].to_numpy()
    elif config.filter.order == "before":
        keep = storage.read_table(_output(files.filters).path, ["reason"])["reason"].is_null().to_numpy()
    rows = np.flatnonzero(keep)
    quality = scores["quality_score"].to_numpy().astype(np.float32)
    return rows, scores["chunk_id"].to_numpy()[rows], quality[rows]


def _output(output: Output | None) -> Output:
    if output is None:
        raise ValueError("an earlier stage has not run for this shard")
    return output


# ---------------------------------------------------------------- pairs


def meet(state: Searching, partition: int) -> None:
    """Writes a partition's shared shingles, and the codes of the pairs that meet there, dealt to parts."""
    url = state.at("meetings", partition)
    if storage.exists(url):
        return
    parts = []
    for number, first in enumerate(state.first):
        own = gather([state.postings(number)], POSTING, partition)
        own = own.copy()
        own["document"] += np.uint32(2 * first)
        parts.append(own)
    shared = shared_of(np.concatenate(parts), mapped(state.at("windows") + ".npy"))
    write_arrays(state.at("shared", partition), shingle=shared.shingle, document=shared.document, key=shared.key)
    codes = candidates.meetings(shared)
    deal(url, codes, (codes % np.uint64(state.partitions)).astype(np.int64), state.partitions)


def gather_met(state: Searching, part: int) -> None:
    """Writes the codes of a part's pairs that met often enough, or whose embeddings are near."""
    url = state.at("met", part) + ".npy"
    if storage.exists(url):
        return
    meetings = [state.at("meetings", number) for number in range(state.partitions)]
    codes = candidates.met(gather(meetings, np.uint64, part), state.documents())
    more = state.at("near", part)  # pairs of near embeddings
    if storage.exists(more + ".npy"):
        codes = np.union1d(codes, mapped(more + ".npy"))
    codes = codes[candidates.ends(codes)[1] >= state.fixed]  # pairs within an earlier release stay
    write_array(url, codes)


def count_common(state: Searching, partition: int) -> None:
    """Writes how many sampled shingles of a partition the pairs of every part have in common."""
    url = state.at("common", partition)
    if storage.exists(url):
        return
    holders = Holders(_shared(state, partition))
    pairs = (candidates.ends(mapped(state.at("met", part) + ".npy")) for part in range(state.partitions))
    _deal_counts(url, (holders.common(one, other) for one, other in pairs), state.partitions)


def estimate_part(state: Searching, part: int) -> Handed:
    """The pairs of a part that may be duplicates by their whole samples: the arrays of `Estimated`."""
    name = f"estimated-{part}"
    if found := handed(state.folder, name):
        return found
    codes = mapped(state.at("met", part) + ".npy")
    common = _counts(state, "common", part, len(codes))
    made = candidates.estimate(codes, common, state.documents(), state.rules.jaccard, state.rules.containment)
    return hand(state.folder, name, **vars(made))


def count_few(state: Searching, partition: int) -> None:
    """Writes how many of these pairs' common shingles in a partition belong to no template."""
    url = state.at("few", partition)
    if storage.exists(url):
        return
    shared = _shared(state, partition)
    among = candidates.in_few(
        shared, ConnectedGroups(mapped(state.at("copies") + ".npy"), mapped(state.at("copy") + ".npy"))
    )
    holders = Holders(shared)
    pairs = (_estimated(state, part) for part in range(state.partitions))
    counts = (holders.common(one, other, among) for one, other, *_ in pairs)
    _deal_counts(url, counts, state.partitions)


def choose(state: Searching, part: int) -> Handed:
    """The pairs of a part whose texts are to be read: the arrays of `CandidatePairs`."""
    name = f"chosen-{part}"
    if found := handed(state.folder, name):
        return found
    one, other, common, strong, wholly = _estimated(state, part)
    few = _counts(state, "few", part, len(one))
    nothing = np.zeros((0, 2), np.int64)
    made = candidates.pairs_to_read(Estimated(one, other, common, strong, wholly, nothing), few)
    return hand(state.folder, name, one=made.one, other=made.other, own=made.own)


def _shared(state: Searching, partition: int) -> Shared:
    return Shared(*read_arrays(state.at("shared", partition), "shingle", "document", "key"))


def _estimated(state: Searching, part: int) -> list[np.ndarray]:
    return read_arrays(state.at("estimated", part) + ".npz", "one", "other", "common", "strong", "wholly")


def _deal_counts(url: str, counts: Iterator[np.ndarray], parts: int) -> None:
    """Counts of the pairs of each part. A sample has some hundred shingles, and a partition fewer."""
    every = [np.minimum(count, np.iinfo(COUNT).max).astype(COUNT) for count in counts]
    part = np.repeat(np.arange(parts), [len(each) for each in every])
    deal(url, np.concatenate(every), part, parts)


def _counts(state: Searching, name: str, part: int, pairs: int) -> np.ndarray:
    total = np.zeros(pairs, np.int64)
    for partition in range(state.partitions):
        total += dealt(state.at(name, partition), COUNT, part, part + 1)[0]
    return total


# ---------------------------------------------------------------- texts


@dataclass(frozen=True)
class Fetching:
    """A group of shards whose documents are read."""

    group: Group
    wanted: Handed  # documents, ascending, and the part each is decided in
    parts: int  # how many there are


def fetch(state: Searching, item: Fetching) -> None:
    """The texts, a batch for each part they belong to, in a file; beside it where each is, dealt by its part."""
    number, sources = item.group
    name = f"texts-{number}"
    if storage.exists(state.at(name, "places")):
        return
    documents, part = item.wanted.read("document", "part")
    facts = read_arrays(state.facts(number), "shard", "chunk_id")
    shard, chunk_id = (column[documents - state.first[number]] for column in facts)
    places, targets = [np.zeros(0, PLACE)], [np.zeros(0, np.int64)]
    with (
        storage.publish(state.at(name) + ".arrow", durable=False) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, TEXTS) as writer,
    ):
        for place, source in enumerate(sources):
            mine = shard == place
            if mine.any():
                for target, batch in _texts_of(source, state, documents[mine], chunk_id[mine], part[mine]):
                    at = np.zeros(batch.num_rows, PLACE)
                    at["document"], at["batch"] = batch["document"].to_numpy(), len(places) - 1
                    at["row"] = np.arange(batch.num_rows)
                    places.append(at)
                    targets.append(np.full(batch.num_rows, target))
                    writer.write_batch(batch)
    deal(state.at(name, "places"), np.concatenate(places), np.concatenate(targets), item.parts)


def _texts_of(
    source: ComparedShard, state: Searching, documents: np.ndarray, rows: np.ndarray, part: np.ndarray
) -> Iterator[tuple[int, pa.RecordBatch]]:
    shard = source.files.shard
    only = np.zeros(max(shard.rows or 0, int(rows.max()) + 1), bool)
    only[rows] = True
    for batch in read_batches(shard, source.config or state.config, ["text"], only=only):
        chunk = batch["chunk_id"].to_numpy()
        kept = only[chunk]
        if kept.any():
            which = np.searchsorted(rows, chunk[kept])
            texts = batch["text"].filter(pa.array(kept)).cast(pa.large_string())
            for target in np.unique(part[which]).tolist():
                here = part[which] == target
                columns = [pa.array(documents[which[here]]), texts.filter(pa.array(here))]
                yield target, pa.record_batch(columns, schema=TEXTS)


@dataclass(frozen=True)
class DecidedPairs:
    """Connected pairs that are decided together."""

    number: int
    pairs: Handed  # one, other, own; tie (T, 2) and cosine (T,): pairs by their embeddings alone
    documents: Handed  # of all these: document (ascending), letters, quality, source (key of its text), chunk_id


def recall(state: Searching, item: DecidedPairs) -> Handed:
    """What an earlier run decided of connected documents that are the same, of the same quality, and as alike.

    Arrays: key (C, 2), component (D,), known (C,) bool: whether so; falls: RECORD (F,) of the known ones.
    """
    name = f"recalled-{item.number}"
    if done := handed(state.folder, name):
        return done
    documents, *about = item.documents.read("document", "quality", "source", "chunk_id")
    one, other, own, tie, cosine = item.pairs.read("one", "other", "own", "tie", "cosine")
    rules = [STAGES["duplicates"].version, vars(state.rules), state.quality_deviation, state.pool]
    known = decisions.components(documents, one, other, tie)
    keys = decisions.keys_of(known, documents, about, state.fixed, (one, other, own), (tie, cosine), rules)
    found, falls = decisions.find(state.earlier, keys)
    return hand(state.folder, name, component=known, key=keys, known=found, falls=falls)


def judge(state: Searching, item: DecidedPairs) -> Handed:
    """(F,) arrays: document that falls, what it falls to, kind, similarity, cluster; and its `decisions.RECORD`s."""
    name = f"falls-{item.number}"
    if done := handed(state.folder, name):
        return done
    recalled = recall(state, item)
    component, keys, known, falls = recalled.read("component", "key", "known", "falls")
    one, other, own, tie, cosine = item.pairs.read("one", "other", "own", "tie", "cosine")
    documents, letters, quality = item.documents.read("document", "letters", "quality")
    new, new_tie = (~known[component[np.searchsorted(documents, of)]] for of in (one, tie[:, 0]))
    found = verify.decide(
        HeldTexts(_FetchedTexts(state, item.number), documents, letters),
        CandidatePairs(one[new], other[new], own[new]),
        {(a, b): float(c) for (a, b), c in zip(tie[new_tie].tolist(), cosine[new_tie], strict=True)},
        state.fixed,
        dict(zip(documents.tolist(), quality, strict=True)),
        state.quality_deviation,
        state.rules,
        _copy_counts(storage.join(state.work, state.pool)) if state.pool else None,
    )
    made = decisions.records(found, documents, component, keys, known)
    every = np.concatenate([falls, made])
    return hand(state.folder, name, records=every, **decisions.falls_of(every, documents, component, keys))


@lru_cache(maxsize=2)
def _copy_counts(url: str) -> CopyEvidence | None:
    """What tells which of two copies has words put in the place of others: the corpus's counts, if still there."""
    from datamask.quality import pool_model as pool
    from datamask.quality.copies import CopyCounts

    return CopyCounts(pool.read(url)) if storage.exists(url) else None


class _FetchedTexts:
    """The texts of a part's documents, from the files that `fetch` wrote."""

    def __init__(self, state: Searching, part: int) -> None:
        self._state = state
        found = [dealt(state.at("texts", n, "places"), PLACE, part, part + 1)[0] for n in range(state.groups)]
        places, group = np.concatenate(found), np.repeat(np.arange(state.groups), [len(each) for each in found])
        order = np.argsort(places["document"])
        self._places, self._group = places[order], group[order]

    def __call__(self, documents: np.ndarray) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """(documents, their texts), all of these (n,), in an order of the files'."""
        where = np.searchsorted(self._places["document"], documents)
        places, group = self._places[where], self._group[where]
        for number in np.unique(group).tolist():
            here = places[group == number]
            with _opened(self._state.at("texts", number) + ".arrow") as reader:
                for batch in np.unique(here["batch"]).tolist():
                    rows = pa.array(np.sort(here["row"][here["batch"] == batch]))
                    held = reader.get_batch(batch)
                    yield held["document"].take(rows).to_numpy(), held["text"].take(rows)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[pa.RecordBatchFileReader]:
    """An Arrow file: on a disk only what is looked at is read."""
    local = None if storage.is_remote(url) else str(storage.filesystem(url)[1])
    with (
        storage.storage_errors(url),
        pa.memory_map(local) if local else storage.open_input(url) as file,
        pa.ipc.open_file(file) as reader,
    ):
        yield reader


# ---------------------------------------------------------------- files


@dataclass(frozen=True)
class Falling:
    """A group of shards and what of it falls."""

    group: Group
    falls: Handed  # shard, chunk_id, stays_shard, stays, similarity, kind, cluster_shard, cluster
    names: Mapping[int, str]  # of the shards that are named


def write(state: Searching, item: Falling) -> list[Output]:
    """The shards' files."""
    columns = item.falls.read(
        "shard", "chunk_id", "stays_shard", "stays", "similarity", "kind", "cluster_shard", "cluster"
    )
    found = []
    for source in item.group[1]:
        mine = columns[0] == source.number
        _, chunk_id, stays_shard, stays, similarity, kind, cluster_shard, cluster = (column[mine] for column in columns)
        clusters = zip(cluster_shard.tolist(), cluster.tolist(), strict=True)
        arrays: Sequence[Any] = (
            chunk_id,
            [item.names[number] for number in stays_shard.tolist()],
            stays,
            similarity,
            [KINDS[number] for number in kind.tolist()],
            [f"{item.names[number]}/{row}" for number, row in clusters],
        )
        table = pa.table([pa.array(a, f.type) for a, f in zip(arrays, SCHEMA, strict=True)], SCHEMA)
        found.append(_write(source.files.shard.name, table, state.work))
    return found


def path_of(name: str, key: str, work: str) -> str:
    """The path of a shard's duplicates file."""
    return storage.join(work, "duplicates", f"{name}-{key}.parquet")


def _write(name: str, table: pa.Table, work: str) -> Output:
    rows = hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()
    key = STAGES["duplicates"].key(None, name, rows)
    path = path_of(name, key, work)
    if found := storage.find_output(path, key):
        return found
    counts = {entry["values"]: entry["counts"] for entry in table["kind"].value_counts().to_pylist()}
    facts = {"duplicates": table.num_rows, "kinds": dict(sorted(counts.items()))}
    return storage.write_output(path, key, SCHEMA, [table], lambda: facts)
