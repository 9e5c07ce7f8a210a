"""The rounds of the search for near-duplicates: what each map reads, computes and hands on.

    load_documents       a group of shards: its documents' facts, and their samples' shingles dealt to partitions
    join_facts           a fact: that of all documents, in one file
    pair_candidates      a partition of the shingles: pairs of documents that meet there, dealt to parts
    gather_pairs         a part of the pairs: those that met often enough
    exchange_samples     a part of the documents: their samples, for the parts whose pairs name them second
    estimate_similarity  a part: pairs that may be duplicates by their whole samples
    mark_templates       a partition: of what these have in common, what few groups of copies have
    choose_pairs         a part: pairs worth reading
    group_pairs          a part: these, dealt so that connected ones come together
    recall_decisions     some connected pairs: what an earlier run has decided of the same texts
    fetch_texts          a group of shards: the texts of the other pairs' documents
    verify_pairs         some connected pairs, read whole; what falls, dealt to groups
    write_decisions      a group of shards: what falls

What `load_documents` finds in a group is kept for the next run, and so are the decisions: these are named by the
documents, their quality, and what each pair shares with how few others, so that connected documents are read again only
if something between them has changed.

Nobody holds more than a partition or a part; facts of documents are mapped from files, and only what is looked at is
read (of an object store, whole columns of at most 14 bytes a document).
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.corpus.read import rows_at
from datamask.filter import decisions
from datamask.filter import duplicate_candidates as candidates
from datamask.filter import verify_pairs as verify
from datamask.filter.altered import CopyCounts
from datamask.filter.connected import deal_pairs, groups_of_pairs
from datamask.filter.duplicate_candidates import CANDIDATE, COMMON, PairCodes, Samples, part_of
from datamask.filter.held_texts import HeldTexts, ReadTexts
from datamask.filter.intact import CopyEvidence
from datamask.filter.postings import POSTING, RANGES, WIDE, SeenDocuments, Shared, postings_of, sampled, shared_of
from datamask.filter.resolve import FALL, KINDS
from datamask.maps import (
    Handed,
    deal_laid,
    gather,
    hand_on,
    handed,
    mapped,
    partition_of,
    read_arrays,
    read_dealt,
    records_of,
    write_array,
    write_arrays,
    write_dealt,
    write_joined,
)
from datamask.pipeline import STAGES
from datamask.quality import pool_model as pool
from datamask.stages import ShardFiles, required
from datamask.storage import Output
from datamask.text.letters import unique_sorted
from datamask.text.utf8 import runs_of

SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("duplicate_of_shard", pa.string()),
        ("duplicate_of", pa.int64()),
        ("similarity", pa.float32()),
        ("kind", pa.string()),  # exact, near, contained
        ("cluster", pa.string()),  # SHARD/CHUNK_ID of the first seen of those tied to one another
    ]
)
FACTS = ("shard", "chunk_id", "windows", "scale", "sampled", "quality", "rows")  # of a document, kept for the next run
KEPT = ("facts-{}.npz", "postings-{}")  # files of a group for the next run, named by its key
JOINED = FACTS[:6]  # of all documents, one file each
# where a text is: which batch of the group's file, and which row there
PLACE = np.dtype([("document", np.int64), ("batch", np.int64), ("row", np.int64)])
ROOM = 1 << 22  # shingles that pairs have in common, at a time: 80 MB
TEXTS = pa.schema([("document", pa.int64()), ("text", pa.large_string())])
_LOADING = threading.Lock()  # of the corpus's counts, which threads that judge parts share


@dataclass(frozen=True)
class Searching:
    """The state of a round: what every worker is given beside its item."""

    config: Config
    work: str
    folder: str
    kept: str  # the folder of what the next run can use
    keys: tuple[str, ...]  # of the groups of shards: of all that `load_documents` says of one
    partitions: int  # of the shingles, and as many parts of the pairs
    rules: verify.DuplicateRules
    first: tuple[int, ...] = ()  # each group's first document
    count: int = 0  # of all documents
    fixed: int = 0  # documents of earlier releases
    quality_deviation: float = 0.0  # standard deviation of the quality
    pool: str | None = None  # in the work folder: the counts that the content score was made with
    earlier: str | None = None  # the decisions of the run before
    blocks: tuple[int, ...] = ()  # that each part's pairs ask of their common shingles in
    decided: int = 0  # parts that connected pairs are decided in
    pieces: int = 1  # that decisions are kept in

    @property
    def groups(self) -> int:
        """The number of groups of shards."""
        return len(self.keys)

    def at(self, *names: object) -> str:
        """The path of a file of the rounds, its name joined from these parts."""
        return storage.join(self.folder, "-".join(map(str, names)))

    def facts(self, group: int) -> str:
        """The path of a group's facts, kept for the next run."""
        return storage.join(self.kept, KEPT[0].format(self.keys[group]))

    def postings(self, group: int) -> str:
        """The path of a group's postings, kept for the next run."""
        return storage.join(self.kept, KEPT[1].format(self.keys[group]))

    def documents(self) -> SeenDocuments:
        """The samples of all documents, mapped from files."""
        return SeenDocuments(self.column("scale"), self.column("sampled"))

    def column(self, name: str) -> np.ndarray:
        """One of the columns of all documents, (N,) each, mapped from its file."""
        return mapped(self.at(name) + ".npy")

    def group_of(self, documents: np.ndarray) -> np.ndarray:
        """(n,) int64: the group of shards that each of these documents (n,) is in."""
        return np.searchsorted(np.array(self.first), documents, side="right") - 1


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


# ---------------------------------------------------------------- documents


class Loaded(NamedTuple):
    """Of a group: its documents, and the quality of those of which it is known."""

    documents: int
    known: int
    mean: float
    squares: float  # sum of squared differences from the mean


def load_documents(state: Searching, group: Group) -> Loaded:
    """What documents of the group are compared. A document's shard is its place in the group."""
    number, sources = group
    if storage.exists(state.facts(number)):
        return _loaded(*read_arrays(state.facts(number), "quality"))
    facts: dict[str, list[np.ndarray]] = {name: [] for name in FACTS}
    lengths, hashes = [], []
    for place, source in enumerate(sources):
        rows, chunk_id, quality = _compared(source, state.config)
        table = storage.read_table(required(source.files.signatures).path, ["chunk_id", "windows", "scale", "sample"])
        table = table.take(pa.array(chunk_id))
        some = table["windows"].to_numpy() > 0
        table = table.filter(pa.array(some))
        lists = table["sample"].combine_chunks()
        length = pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        every = pa.compute.list_flatten(lists).to_numpy(zero_copy_only=False)
        own = [table[name].to_numpy() for name in ("chunk_id", "windows", "scale")]
        own += [sampled(length, every), quality[some], rows[some]]
        for name, column in zip(FACTS, [np.full(len(length), place, np.int32), *own], strict=True):
            facts[name].append(column)
        lengths.append(length)
        hashes.append(every)
    postings = postings_of(np.concatenate(lengths), np.concatenate(hashes))
    ranges = state.partitions * RANGES
    write_dealt(state.postings(number), postings, partition_of(postings["hash"], ranges), ranges)
    arrays = {name: np.concatenate(parts) for name, parts in facts.items()}
    write_arrays(state.facts(number), **arrays)
    return _loaded(arrays["quality"])


def _loaded(quality: np.ndarray) -> Loaded:
    known = quality[~np.isnan(quality)].astype(np.float64)
    mean = float(known.mean()) if len(known) else 0.0
    return Loaded(len(quality), len(known), mean, float(np.square(known - mean).sum()))


class Fact(NamedTuple):
    """One of JOINED, to be put into one file."""

    name: str
    documents: int
    added: tuple[int, ...] = ()  # to the values of each group


def join_facts(state: Searching, item: Fact) -> None:
    """Writes a fact of all documents, for those who map it."""
    url = state.at(item.name) + ".npy"
    if storage.exists(url):
        return
    found = (read_arrays(state.facts(number), item.name)[0] for number in range(state.groups))
    if item.added:
        found = (part + np.int32(added) for part, added in zip(found, item.added, strict=True))
    write_joined(url, found, item.documents)


def _compared(source: ComparedShard, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows in the stages' files, chunk_id, quality) of the documents of a shard that are compared."""
    files = source.files
    scores = storage.read_table(required(files.scores).path, ["chunk_id", "quality_score"])
    keep = np.ones(scores.num_rows, bool)
    if source.config is not None:
        keep = storage.read_table(required(files.masks).path, ["selected"])["selected"].to_numpy()
    elif config.filter.order == "before":
        keep = storage.read_table(required(files.filters).path, ["reason"])["reason"].is_null().to_numpy()
    rows = np.flatnonzero(keep)
    quality = scores["quality_score"].to_numpy().astype(np.float32)
    return rows, scores["chunk_id"].to_numpy()[rows], quality[rows]


# ---------------------------------------------------------------- pairs


def pair_candidates(state: Searching, partition: int) -> None:
    """Writes a partition's shared shingles, and the codes of the pairs that meet there, dealt to parts."""
    url = state.at("meetings", partition)
    if storage.exists(url):
        return
    ranges = partition * RANGES, (partition + 1) * RANGES
    found = [read_dealt(state.postings(number), POSTING, *ranges) for number in range(state.groups)]
    first, windows, parts = 2 * np.array(state.first, np.uint64), state.column("windows"), list[Shared]()
    for place in range(RANGES):  # few at a time lie in the processor's cache while they are sorted
        own = [postings[bounds[place] : bounds[place + 1]] for postings, bounds in found]
        postings = np.concatenate(own, dtype=WIDE)
        postings["document"] += np.repeat(first, [len(each) for each in own])
        parts.append(shared_of(postings, windows))
    shared = Shared.joined(parts)
    write_dealt(
        state.at("shared", partition), shared.postings(), part_of(shared.document, state.partitions), state.partitions
    )
    write_dealt(url, *candidates.meetings(shared, state.partitions), state.partitions)


def gather_pairs(state: Searching, part: int) -> None:
    """Writes the codes of a part's pairs that met often enough."""
    url = state.at("met", part) + ".npy"
    if storage.exists(url):
        return
    meetings = [state.at("meetings", number) for number in range(state.partitions)]
    pairs = PairCodes(part, state.partitions)
    codes = candidates.pairs_that_met(gather(meetings, np.uint64, part), pairs, state.documents())
    codes = codes[pairs.ends(codes)[1] >= state.fixed]  # pairs within an earlier release stay
    others = unique_sorted(pairs.ends(codes)[1])
    write_dealt(state.at("wanted", part), others, part_of(others, state.partitions), state.partitions)
    write_array(url, codes)


def exchange_samples(state: Searching, part: int) -> None:
    """Deals the samples of a part's documents to the parts whose pairs name them second."""
    url = state.at("lent", part)
    if storage.exists(url):
        return
    samples = Samples(_samples(state, "shared", part), state.partitions)
    wanted = [read_dealt(state.at("wanted", n), np.int64, part, part + 1)[0] for n in range(state.partitions)]
    found, ends = samples.of(np.concatenate(wanted))
    deal_laid(url, found, ends[np.cumsum([0, *map(len, wanted)])])


def estimate_similarity(state: Searching, part: int) -> Handed:
    """The `pairs` of a part that may be duplicates by their whole samples, LIKELY, and `blocks`. Deals those that
    are copies.

    Asks the partitions which of the shingles that these have in common belong to no template, in blocks of
    pairs that have about ROOM of them.
    """
    name = f"estimated-{part}"
    if found := handed(state.folder, name):
        return found
    one, other = PairCodes(part, state.partitions).ends(mapped(state.at("met", part) + ".npy"))
    firsts = Samples(_samples(state, "shared", part), state.partitions)
    seconds = Samples.in_runs(_samples(state, "lent", part))
    common = firsts.common(one, seconds, other)
    thresholds = state.rules.jaccard, state.rules.containment
    pairs, copies = candidates.estimate_pairs(one, other, common, state.documents(), *thresholds)
    deal_pairs(state.at("copied", part), one[copies], other[copies], state.count)
    blocks = runs_of(pairs["common"], ROOM)
    for block, some in enumerate(blocks):
        hashes = firsts.commons(pairs["one"][some], seconds, pairs["other"][some], pairs["common"][some])
        hashes["pair"] += some.start
        partition = partition_of(hashes["hash"], state.partitions)
        write_dealt(state.at("common", part, block), hashes, partition, state.partitions)
    return hand_on(state.folder, name, blocks=np.array([len(blocks)]), pairs=pairs)


def mark_templates(state: Searching, partition: int) -> None:
    """Says of the shingles of a partition that pairs have in common whether they belong to no template."""
    url = state.at("few", partition)
    if storage.exists(url):
        return
    shared = gather([state.at("shared", partition)], WIDE, 0, state.partitions)
    asked, bounds = list[np.ndarray](), [0]
    for part in range(state.partitions):
        asked += _asked(state, part, partition)
        bounds.append(bounds[-1] + sum(map(len, asked[-state.blocks[part] :])))
    few = candidates.outside_templates(np.concatenate(asked), shared, state.column("copies"))
    deal_laid(url, few, np.array(bounds))


def _asked(state: Searching, part: int, partition: int) -> Iterator[np.ndarray]:
    """COMMON of a partition's shingles that a part's pairs have in common, block by block."""
    for block in range(state.blocks[part]):
        yield read_dealt(state.at("common", part, block), COMMON, partition, partition + 1)[0]


def choose_pairs(state: Searching, part: int) -> Handed:
    """The `pairs` of a part whose texts are to be read, CANDIDATE, and how many `letters` the texts have. Deals the
    pairs, for what they connect."""
    name = f"chosen-{part}"
    if found := handed(state.folder, name):
        return found
    [pairs] = read_arrays(state.at("estimated", part) + ".npz", "pairs")
    few = np.zeros(len(pairs), np.int64)  # of the common shingles, those that belong to no template
    for partition in range(state.partitions):
        said = read_dealt(state.at("few", partition), np.bool_, part, part + 1)[0]
        for asked in _asked(state, part, partition):
            np.add.at(few, asked["pair"][said[: len(asked)]], 1)
            said = said[len(asked) :]
    own = (few / np.maximum(pairs["common"], 1)).astype(np.float32)
    chosen = pairs["strong"] | (own >= candidates.OWN) | (pairs["wholly"] & (own >= candidates.PARTLY))
    pairs = records_of(CANDIDATE, one=pairs["one"][chosen], other=pairs["other"][chosen], own=own[chosen])
    letters = state.column("windows")[_ends_of(pairs)].sum(dtype=np.int64)
    deal_pairs(state.at("linked", part), pairs["one"], pairs["other"], state.count)
    return hand_on(state.folder, name, pairs=pairs, letters=letters[None])


def _ends_of(pairs: np.ndarray) -> np.ndarray:
    """(D,) int64: the documents of these pairs, ascending."""
    return unique_sorted(np.concatenate([pairs["one"], pairs["other"]]))


def _samples(state: Searching, source: str, part: int) -> np.ndarray:
    """(H,) WIDE of a part, from all files of a round."""
    return gather([state.at(source, number) for number in range(state.partitions)], WIDE, part)


def group_pairs(state: Searching, part: int) -> None:
    """Deals a part's chosen pairs to the parts that connected ones are decided in."""
    url = state.at("sorted", part)
    if storage.exists(url):
        return
    [pairs] = read_arrays(state.at("chosen", part) + ".npz", "pairs")
    write_dealt(url, pairs, state.column("part")[pairs["one"]], state.decided)


# ---------------------------------------------------------------- texts


def fetch_texts(state: Searching, group: Group) -> None:
    """The texts, a batch for each part they belong to, in a file; beside it where each is, dealt by its part."""
    number, sources = group
    name = f"texts-{number}"
    if storage.exists(state.at(name, "places")):
        return
    found = [read_dealt(state.at("asked", part), np.int64, number, number + 1)[0] for part in range(state.decided)]
    documents, part = np.concatenate(found), np.repeat(np.arange(state.decided), [len(each) for each in found])
    order = np.argsort(documents)
    documents, part = documents[order], part[order]
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
    write_dealt(state.at(name, "places"), np.concatenate(places), np.concatenate(targets), state.decided)


def _texts_of(
    source: ComparedShard, state: Searching, documents: np.ndarray, rows: np.ndarray, part: np.ndarray
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in rows_at(source.files.shard, source.config or state.config, rows, ["text"]):
        which = np.searchsorted(rows, batch["chunk_id"].to_numpy())
        texts = batch["text"].cast(pa.large_string())
        for target in np.unique(part[which]).tolist():
            here = part[which] == target
            columns = [pa.array(documents[which[here]]), texts.filter(pa.array(here))]
            yield target, pa.record_batch(columns, schema=TEXTS)


class _Connected:
    """Connected pairs that are decided together, and what is known of their documents."""

    def __init__(self, state: Searching, part: int) -> None:
        pairs = gather([state.at("sorted", number) for number in range(state.partitions)], CANDIDATE, part)
        self.pairs = pairs[np.lexsort((pairs["other"], pairs["one"]))]
        self.documents = _ends_of(pairs)
        self.letters, self.quality, self.chunk_id, shard = (
            state.column(name)[self.documents] for name in ("windows", "quality", "chunk_id", "shard")
        )
        self.text = state.column("source")[shard]  # key of its shard's signatures


def recall_decisions(state: Searching, part: int) -> Handed:
    """What an earlier run decided of connected documents that are the same, of the same quality, and as alike.

    Arrays: key (C, 2), component (D,), known (C,) bool: whether so; falls: RECORD (F,) of the known ones. Asks the
    groups for the texts of the others.
    """
    name = f"recalled-{part}"
    if done := handed(state.folder, name):
        return done
    found = _Connected(state, part)
    rules = [STAGES["duplicates"].version, vars(state.rules), state.quality_deviation, state.pool]
    component = groups_of_pairs(found.pairs["one"], found.pairs["other"]).group.astype(np.int64)
    about = (found.quality, found.text, found.chunk_id)
    keys = decisions.keys_of(component, found.documents, about, state.fixed, found.pairs, rules)
    known, falls = decisions.find_decisions(state.earlier, keys)
    new = found.documents[~known[component]]
    write_dealt(state.at("asked", part), new, state.group_of(new), state.groups)
    return hand_on(state.folder, name, component=component, key=keys, known=known, falls=falls)


def verify_pairs(state: Searching, part: int) -> None:
    """Writes what falls of some connected pairs, dealt to groups of shards; and its `decisions.RECORD`s, to pieces."""
    if storage.exists(state.at("records", part)):
        return
    found = _Connected(state, part)
    component, keys, known, falls = recall_decisions(state, part).read("component", "key", "known", "falls")
    documents = found.documents
    new = ~known[component[np.searchsorted(documents, found.pairs["one"])]]
    with _LOADING:
        counts = _copy_counts(storage.join(state.work, state.pool)) if state.pool else None
    decided = verify.decide(
        HeldTexts(_fetched_texts(state, part), documents, found.letters),
        found.pairs[new],
        state.fixed,
        dict(zip(documents.tolist(), found.quality, strict=True)),
        state.quality_deviation,
        state.rules,
        counts,
    )
    every = np.concatenate([falls, decisions.records(decided, documents, component, keys, known)])
    fallen = decisions.falls_of(every, documents, component, keys)
    write_dealt(state.at("fallen", part), fallen, state.group_of(fallen["document"]), state.groups)
    write_dealt(state.at("records", part), every, partition_of(every["high"], state.pieces), state.pieces)


@lru_cache(maxsize=2)
def _copy_counts(url: str) -> CopyEvidence | None:
    """What tells which of two copies has words put in the place of others: the corpus's counts, if still there."""
    return CopyCounts(pool.read_pool_model(url)) if storage.exists(url) else None


def _fetched_texts(state: Searching, part: int) -> ReadTexts:
    """Reads texts of a part's documents, in an order of the files', from those that `fetch_texts` wrote."""
    found = [read_dealt(state.at("texts", n, "places"), PLACE, part, part + 1)[0] for n in range(state.groups)]
    places, group = np.concatenate(found), np.repeat(np.arange(state.groups), [len(each) for each in found])
    order = np.argsort(places["document"])
    places, group = places[order], group[order]

    def read(documents: np.ndarray) -> Iterator[tuple[np.ndarray, pa.Array]]:
        where = np.searchsorted(places["document"], documents)
        for number in np.unique(group[where]).tolist():
            here = places[where[group[where] == number]]
            with _opened(state.at("texts", number) + ".arrow") as reader:
                for batch in np.unique(here["batch"]).tolist():
                    rows = pa.array(np.sort(here["row"][here["batch"] == batch]))
                    held = reader.get_batch(batch)
                    yield held["document"].take(rows).to_numpy(), held["text"].take(rows)

    return read


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


def _fallen(state: Searching, group: int) -> np.ndarray:
    """(F,) FALL of a group, by document."""
    found = gather([state.at("fallen", part) for part in range(state.decided)], FALL, group)
    return found[np.argsort(found["document"])]


def write_decisions(state: Searching, group: Group) -> list[Output]:
    """The shards' files."""
    falls = _fallen(state, group[0])
    shard, chunk_id, names = (state.column(name) for name in ("shard", "chunk_id", "names"))
    own, found = shard[falls["document"]], []
    for source in group[1]:
        mine = falls[own == source.number]
        stays, cluster = mine["stays"], mine["cluster"]
        clusters = zip(names[shard[cluster]].tolist(), chunk_id[cluster].tolist(), strict=True)
        arrays: Sequence[Any] = (
            chunk_id[mine["document"]],
            names[shard[stays]].tolist(),
            chunk_id[stays],
            mine["similarity"],
            [KINDS[number] for number in mine["kind"].tolist()],
            [f"{name}/{row}" for name, row in clusters],
        )
        table = pa.table([pa.array(a, f.type) for a, f in zip(arrays, SCHEMA, strict=True)], SCHEMA)
        found.append(_write(source.files.shard.name, table, state.work))
    return found


def _write(name: str, table: pa.Table, work: str) -> Output:
    rows = hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()
    key = STAGES["duplicates"].key(None, name, rows)
    path = storage.join(work, "duplicates", f"{name}-{key}.parquet")
    counts = {entry["values"]: entry["counts"] for entry in table["kind"].value_counts().to_pylist()}
    facts = {"duplicates": table.num_rows, "kinds": dict(sorted(counts.items()))}
    return storage.find_or_write(path, key, SCHEMA, [table], lambda: facts)
