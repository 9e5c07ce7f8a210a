"""How many verified copies each document has, and from how many sources and dumps: the stage `copies`.

A document that stays and all that fell to it as the same text or as a near-duplicate are copies of one another; parts
of longer texts are none. Each of them is given the group's numbers, whichever of them stays. Conditions and scorers
that read these numbers are applied here, because duplicates have to be known first. So is the record of what must be
forgotten (`forgotten`), because a forgotten document takes its copies with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import COPY_COLUMNS, Config
from datamask.corpus.columns import texts_of
from datamask.corpus.read import corpus_schema, read_documents
from datamask.corpus.web_addresses import hosts_of
from datamask.filter.connected import ConnectedDocuments, deal_pairs
from datamask.filter.exact_duplicates import PART_ROWS, ExactDuplicates, hash_halves, repeats
from datamask.filter.filters import Group, where_by_copies
from datamask.filter.forgotten import READ, REASON, SIGNED, Requests, load_requests
from datamask.maps import (
    Handed,
    Mapper,
    gather,
    groups,
    hand_on,
    here,
    mapped,
    partition_of,
    parts_of,
    places_of,
    read_arrays,
    records_of,
    write_arrays,
    write_dealt,
    write_joined,
)
from datamask.maps import rounds as shared_folder
from datamask.pipeline import STAGES
from datamask.quality.quality_ref import GRID, QualityRef, ScorerRef, Statistics
from datamask.stages import ShardFiles, cached_outputs, keep_outputs, required
from datamask.storage import Output

STAGE = STAGES["copies"]
SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),  # a row for each document, as in the scores
        *((name, pa.int32()) for name in COPY_COLUMNS),
        ("quality_score", pa.float32()),  # with the scorers that read these columns
        ("reason", pa.string()),  # why it cannot be selected: forgotten; where, if that names one of these columns
        ("detail", pa.string()),  # of a forgotten one, JSON: kind, list and entry that name it or what it is a copy of
    ]
)
HASHED = np.dtype([("high", "<u8"), ("low", "<u8"), ("document", "<i8")])
MEMBER = np.dtype([("group", "<i8"), ("document", "<i8"), ("source", "<u8"), ("dump", "<u8")])  # 0: not stated
HIT = np.dtype([("document", "<i8"), ("entry", "<i8")])
COUNTED = np.dtype([("document", "<i8"), *((name, "<i4") for name in COPY_COLUMNS)])


@dataclass(frozen=True)
class Counting:
    """The state of every round."""

    config: Config
    work: str
    folder: str
    schema: pa.Schema  # of the corpus
    documents: int
    parts: int
    first: Mapping[str, int]  # the number of each shard's first row among all
    bounds: tuple[int, ...]  # the first row of each group of shards
    statistics: Mapping[str, Statistics] = field(default_factory=dict)

    def at(self, *names: object) -> str:
        """The path of a file of the rounds, its name joined from these parts."""
        return storage.join(self.folder, "-".join(map(str, names)))


def count_copies(all_files: Sequence[ShardFiles], config: Config, work: str, maps: Mapper = here) -> list[Output]:
    """Each shard's file of `SCHEMA`, in the order of `all_files`.

    Facts: `decides`, of what a selection reads of it; None where that is nothing.

    :param maps: who runs the rounds.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    key, made = _key(ordered, config, work), storage.join(work, "copies")
    if (found := cached_outputs(all_files, made, key)) is not None:
        return found
    with shared_folder(work, "copies", key) as folder:
        rows = [required(files.index).rows for files in ordered]
        first = np.cumsum([0, *rows])
        places = groups(ordered)
        state = Counting(
            config,
            work,
            folder,
            corpus_schema([files.shard for files in ordered], config),
            int(first[-1]),
            parts_of(int(first[-1]), PART_ROWS),
            {files.shard.name: int(start) for files, start in zip(ordered, first, strict=False)},
            tuple(int(first[group[0]]) for group in places),
        )
        items = [(n, tuple(ordered[place] for place in group)) for n, group in enumerate(places)]
        sizes = [sum(rows[place] for place in group) for group in places]
        read = maps(read_members, state, items, sizes)
        maps(pair_equal_texts, state, range(state.parts))
        urls = [state.at("fell", n, "pairs") for n in range(len(items))]
        urls += [state.at("equal", part) for part in range(state.parts)]
        connected = ConnectedDocuments(state.at("ranges"), urls, state.documents)
        write_joined(state.at("lowest") + ".npy", connected.column(np.arange), state.documents)
        write_arrays(state.at("forgotten"), groups=_forgotten(read, mapped(state.at("lowest") + ".npy")))
        maps(deal_members, state, items, sizes)
        seen = maps(count_members, state, range(state.parts))
        state = replace(state, statistics=_statistics(seen, config))
        outputs = [output for group in maps(write_counts, state, items, sizes) for output in group]
    return keep_outputs(all_files, outputs, made, key)


def _key(ordered: Sequence[ShardFiles], config: Config, work: str) -> str:
    inputs = []
    for files in ordered:
        made = (files.index, files.scores, files.filters, files.duplicates)
        inputs.append([files.shard.name, files.shard.columns_key, *(output.key if output else None for output in made)])
    topics = [files.topics.key for files in ordered if files.topics and config.condition_reads_topics]
    requests = load_requests(work)
    named = requests and [requests.digest, *(files.signatures.key for files in ordered if files.signatures)]
    return STAGE.key(config, _quotas(config), inputs, *filter(None, (topics, named)))


def _quotas(config: Config) -> list[str]:
    """The columns of copies that quotas bound."""
    return sorted({quota.column for quota in config.selection.quotas} & {*COPY_COLUMNS})


def _forgotten(handed: Sequence[Handed], lowest: np.ndarray) -> np.ndarray:
    """(G,) HIT, ascending: the groups that must be forgotten, each with its first entry. A request names one of their
    documents, or one of their documents holds such a document or lies in one."""
    hits, held = (np.concatenate([each.read(name)[0] for each in handed]) for name in ("hits", "held"))
    hits["document"] = lowest[hits["document"]]
    hits = hits[np.argsort(hits["document"], kind="stable")]
    found = [hits]
    for one, other in (held.T, held.T[::-1]):
        place = places_of(lowest[one], hits["document"])
        found.append(records_of(HIT, document=lowest[other[place >= 0]], entry=hits["entry"][place[place >= 0]]))
    every = np.sort(np.concatenate(found))
    return every[np.unique(every["document"], return_index=True)[1]]


# ---------------------------------------------------------------- rounds


def read_members(state: Counting, group: Group) -> Handed:
    """Writes the compared documents with source and dump, and their texts' hashes, dealt to parts, and the pairs that
    duplicates found; hands on those of which one is in the other, and the documents that a request names."""
    found, hashed, hits = [np.zeros(0, MEMBER)], [np.zeros(0, HASHED)], [np.zeros(0, HIT)]
    pairs: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # copies; of which one is in the other
    requests, (number, shards) = load_requests(state.work), group
    for files in shards:
        index = storage.read_table(required(files.index).path, ["chunk_id", "text_hash", "reason"])
        documents = index.filter(index["reason"].is_null())
        compared = np.ones(documents.num_rows, bool)
        if files.filters is not None and state.config.filter.order == "before":
            reason = storage.read_table(files.filters.path, ["reason"])["reason"]
            compared = np.asarray(pa.compute.equal(reason, ExactDuplicates.name).fill_null(True))
        first = state.first[files.shard.name]
        members = records_of(MEMBER, document=first + documents["chunk_id"].to_numpy(), **_origins(files, state))
        found.append(members[compared])
        high, low = hash_halves(documents["text_hash"].filter(pa.array(compared))).T
        hashed.append(records_of(HASHED, high=high, low=low, document=found[-1]["document"]))
        if files.duplicates is not None:
            fell = storage.read_table(files.duplicates.path, ["chunk_id", "duplicate_of_shard", "duplicate_of", "kind"])
            for row in fell.to_pylist():
                if row["duplicate_of_shard"] in state.first:  # else it stays in an earlier curation
                    stays = state.first[row["duplicate_of_shard"]] + row["duplicate_of"]
                    pairs[row["kind"] != "contained"].append((first + row["chunk_id"], stays))
        if requests:
            hits.append(named_documents(files, state.config, requests, state.schema))
            hits[-1]["document"] += first
    texts = np.concatenate(hashed)
    write_dealt(state.at("texts", number), texts, partition_of(texts["high"], state.parts), state.parts)
    write_arrays(state.at("members", number), members=np.concatenate(found))
    copies, held = (np.array(pairs[alike], np.int64).reshape(-1, 2) for alike in (True, False))
    deal_pairs(state.at("fell", number, "pairs"), copies[:, 0], copies[:, 1], state.documents)
    return hand_on(state.folder, f"fell-{number}", held=held, hits=np.concatenate(hits))


def named_documents(files: ShardFiles, config: Config, requests: Requests, schema: pa.Schema) -> np.ndarray:
    """HIT, by chunk_id, of the shard's documents that requests name: by address, id or text, or as a copy of a text by
    the samples of both."""
    columns = [name for name in READ if name in schema.names or name != "url"]
    found = np.zeros(0, HIT)
    if batches := list(read_documents(files, config, columns, schema=schema)):
        index = storage.read_table(required(files.index).path, ["text_hash", "reason"])
        hashes = index["text_hash"].filter(index["reason"].is_null())
        table = pa.Table.from_batches(batches).append_column("text_hash", hashes)
        found = _hits(table, requests.match(table))
    if files.signatures is not None:
        signed = storage.read_table(files.signatures.path, ["chunk_id", *SIGNED])
        others = signed.filter(pa.array(~np.isin(signed["chunk_id"].to_numpy(), found["document"])))
        found = np.concatenate([found, _hits(others, requests.match_samples(others))])
    return found


def _hits(documents: pa.Table, entry: np.ndarray) -> np.ndarray:
    return records_of(HIT, document=documents["chunk_id"].to_numpy()[entry >= 0], entry=entry[entry >= 0])


def _origins(files: ShardFiles, state: Counting) -> dict[str, np.ndarray]:
    """source and dump of a shard's documents, hashed, (documents,) uint64 each; without a source, the url's host."""
    names = {"source": "source" if "source" in state.schema.names else "url", "dump": "dump"}
    names = {ours: theirs for ours, theirs in names.items() if theirs in state.schema.names}
    batches = list(read_documents(files, state.config, [*names.values()], schema=state.schema)) if names else []
    found: dict[str, np.ndarray] = {}
    for ours, theirs in names.items() if batches else ():
        column = texts_of(pa.chunked_array([batch[theirs] for batch in batches]))
        column = hosts_of(column) if theirs == "url" else column
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        values = ((value or "").encode() for value in coded.dictionary.to_pylist())
        hashes = [blake2b(value, digest_size=8).digest() if value else bytes(8) for value in values]
        found[ours] = np.frombuffer(b"".join(hashes), "<u8")[coded.indices.to_numpy()]
    return found


def pair_equal_texts(state: Counting, part: int) -> None:
    """Writes pairs of the documents of a part whose texts have one hash."""
    every = gather([state.at("texts", number) for number in range(len(state.bounds))], HASHED, part)
    every = every[np.lexsort((every["document"], every["low"], every["high"]))]
    again = np.flatnonzero(repeats(every))
    deal_pairs(state.at("equal", part), every["document"][again - 1], every["document"][again], state.documents)


def deal_members(state: Counting, group: Group) -> None:
    """Deals the documents to parts by the group of copies that they are in."""
    [members] = read_arrays(state.at("members", group[0]), "members")
    members["group"] = mapped(state.at("lowest") + ".npy")[members["document"]]
    write_dealt(state.at("dealt", group[0]), members, members["group"] % state.parts, state.parts)


def count_members(state: Counting, part: int) -> dict[str, Counter[int]]:
    """Counts a part's groups, and deals the counts to the groups of shards of their documents; returns how often each
    number of a column is there."""
    members = gather([state.at("dealt", number) for number in range(len(state.bounds))], MEMBER, part)
    _, place, size = np.unique(members["group"], return_inverse=True, return_counts=True)
    counted = records_of(COUNTED, document=members["document"], copies=size[place] - 1)
    for name in ("source", "dump"):
        order = np.lexsort((members[name], place))
        group, value = place[order], members[name][order]
        first = (value != 0) & ((np.diff(group, prepend=-1) != 0) | (np.diff(value, prepend=value[:1]) != 0))
        counted[f"copy_{name}s"] = np.bincount(group[first], minlength=len(size))[place]
    target = np.searchsorted(np.array(state.bounds), counted["document"], side="right") - 1
    write_dealt(state.at("counted", part), counted, target, len(state.bounds))
    return {name: Counter(counted[name].tolist()) for name in COPY_COLUMNS}


def _statistics(seen: Sequence[Mapping[str, Counter[int]]], config: Config) -> dict[str, Statistics]:
    """Of the columns that scorers read: over all documents compared, as `Statistics.of` has them of a sample."""
    found = {}
    for scorer in config.quality.of_copies:
        total = sum((each[str(scorer.column)] for each in seen), Counter[int]())
        values, counts = (np.array(each, float) for each in zip(*sorted(total.items()), strict=True))
        mean = float(np.average(values, weights=counts))
        deviation = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
        place = np.searchsorted(np.cumsum(counts), np.linspace(0, counts.sum() - 1, GRID), side="right")
        found[scorer.name] = Statistics(int(counts.sum()), mean, deviation, tuple(values[place].tolist()))
    return found


def write_counts(state: Counting, group: Group) -> list[Output]:
    """The shards' files."""
    number, shards = group
    counted = gather([state.at("counted", part) for part in range(state.parts)], COUNTED, number)
    counted = counted[np.argsort(counted["document"])]
    requests = load_requests(state.work)
    return [_write(files, counted, state, requests) for files in shards]


def _write(files: ShardFiles, counted: np.ndarray, state: Counting, requests: Requests | None) -> Output:
    config, scorers = state.config, state.config.quality.of_copies
    scores = storage.read_table(required(files.scores).path, ["chunk_id", "quality_score"])
    documents = state.first[files.shard.name] + scores["chunk_id"].to_numpy()
    own = np.append(counted, np.zeros(1, COUNTED))[places_of(documents, counted["document"])]
    counts = {name: own[name] for name in COPY_COLUMNS}
    quality = scores["quality_score"].to_numpy()
    if scorers:
        references = tuple(ScorerRef(scorer, "", None, "") for scorer in scorers)
        reference = QualityRef(references, config.quality.combine, state.statistics)
        quality = quality + reference.combined({scorer.name: counts[str(scorer.column)] for scorer in scorers})
    stays = where_by_copies(files, pa.table(counts), state.schema, config, state.work)
    [forgotten] = read_arrays(state.at("forgotten"), "groups")
    place = places_of(mapped(state.at("lowest") + ".npy")[documents], forgotten["document"])
    gone, entries = place >= 0, np.append(forgotten["entry"], -1)[place]
    told = requests.told(entries[gone]) if requests else {}
    said = {entry: json.dumps(why) for entry, why in told.items()}
    detail = pa.array([said.get(entry) for entry in entries.tolist()], pa.string())
    reason = pa.array(np.where(gone, REASON, "where"), mask=stays & ~gone)
    table = pa.table([scores["chunk_id"], *map(pa.array, (*counts.values(), quality)), reason, detail], schema=SCHEMA)
    read = [counts[name] for name in _quotas(config)]
    decisive = sha256(b"".join(each.tobytes() for each in (quality, stays, gone, *read))).hexdigest()[:16]
    decides = decisive if scorers or read or not stays.all() or gone.any() else None
    content = sha256(b"".join(values.tobytes() for values in counts.values()))
    content.update("".join(detail.drop_null().to_pylist()).encode())
    key = STAGE.key(None, files.shard.name, required(files.scores).key, decisive, content.hexdigest(), decides)
    url = storage.join(state.work, "copies", f"{files.shard.name}-{key}.parquet")
    facts: dict[str, Any] = {"decides": decides, "filtered": {"where": int((~stays).sum()), REASON: int(gone.sum())}}
    return storage.find_or_write(url, key, SCHEMA, [table], lambda: facts)
