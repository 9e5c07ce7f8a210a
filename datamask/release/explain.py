"""Why a document is in a release, or is not: its scores and signals, its neighbours, what took it; and some of the
documents that a filter took, each beside the one it fell to, to be read at a glance.

for one in read_dropped(release, "near_duplicate", 20, {"language": "am"})[0]:
    one.id, one.text, one.kept_id, one.kept, one.shared
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.corpus.columns import nearest_column
from datamask.corpus.read import TOPIC, shard_schema
from datamask.errors import InputError, nearest, printable, some
from datamask.filter.forgotten import GIVEN, REASON
from datamask.quality.scorers import reasons
from datamask.release.differences import Parts, compare, excerpt
from datamask.release.manifest import source_runs
from datamask.release.merge import BINS, LENGTH, as_strings, length_bins, with_none
from datamask.release.release_folder import QUARANTINE, ReleaseFolder
from datamask.release.source import EXACT, Place, Source

NEIGHBOURS = 5
QUARANTINED = 5  # rows named that hold what was asked for
SETTINGS = {  # what a filter takes by; a name that is not here is one of `filter.own`
    "where": "filter.where",
    "language": "filter.languages",
    "min_tokens": "filter.min_tokens",
    "max_tokens": "filter.max_tokens",
    "contaminated": "filter.contamination",
    "exact_duplicate": "filter.exact_duplicates",
    "near_duplicate": "duplicates.jaccard",
    "contained": "duplicates.containment",
    "target_leak": "select.coverage.leaks",
}
CHARACTERS = 420  # of a document without a pair
GROUPS = ("language", "source", "label", "domain", "dump")  # told of each document, as far as the corpus has them


@dataclass
class Explanation:
    """What is known of one row; what lies in the work folder only while that is kept."""

    decision: dict[str, Any]  # the row of decisions/
    quarantine: dict[str, Any] | None = None  # file, row, excerpt
    setting: str | None = None  # of a filtered row: the setting that took it and its value, as --set takes them
    scores: dict[str, float] = field(default_factory=dict)  # every scorer's score and signals
    rules: list[str] = field(default_factory=list)  # what pulled its scores down: faults, and published rules it fails
    detail: dict[str, Any] | None = None  # the test item it holds: item, part, words, found, span
    copy_of: dict[str, Any] | None = None  # the row it fell to, with the similarity that was measured
    pair: dict[str, Any] | None = None  # both texts in parts, what differs marked; share of words in both
    neighbours: list[dict[str, Any]] = field(default_factory=list)  # nearest selected rows, by cosine
    missing: list[str] = field(default_factory=list)  # what could not be told, and why


def explain(release: ReleaseFolder, name: str, neighbours: int = NEIGHBOURS) -> list[Explanation]:
    """Each row whose id, shard/chunk_id, or file:row is `name`.

    :raises InputError: there is none.
    """
    manifest = release.manifest()
    places = _places(manifest, name)
    shards = sorted(manifest["conservation"]["shards"])
    decisions = [row for shard in shards for row in _rows(release, shard, name, places)]
    if not decisions:
        rows = manifest["conservation"]["total"]["rows"]
        raise InputError(
            f"no row {name!r} among the {rows} that {release.path} decided about; give an id, SHARD/CHUNK_ID or "
            f"FILE:ROW (rows count from 0){_quarantined_with(release, name)}"
        )
    return [_explain(release, manifest, decision, neighbours) for decision in decisions]


def _places(manifest: Mapping[str, Any], name: str) -> list[Place]:
    """The rows that `name` calls FILE:ROW, the file by its path or the end of it."""
    path, _, number = name.rpartition(":")
    if not path or not number.isdecimal():
        return []
    row = int(number)
    return [
        (run.shard, run.chunk_id + row - run.row)
        for run in source_runs(manifest)
        if run.row is not None and 0 <= row - run.row < run.rows and f"/{printable(run.file)}".endswith(f"/{path}")
    ]


def _rows(release: ReleaseFolder, shard: str, name: str, places: Sequence[Place]) -> list[dict[str, Any]]:
    ids = release.decisions(shard, ["id"])["id"]
    found = np.flatnonzero(pc.fill_null(pc.equal(ids, name), False).to_numpy())
    prefix, _, number = name.rpartition("/")
    if prefix == shard and number.isdecimal() and int(number) < len(ids):
        found = np.union1d(found, [int(number)])
    found = np.union1d(found, [place for of, place in places if of == shard]).astype(np.int64)
    return release.decisions(shard).take(pa.array(found)).to_pylist() if len(found) else []


def _quarantined_with(release: ReleaseFolder, name: str) -> str:
    """The quarantined rows in whose beginning `name` is a word: what is broken may have no id of its own."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    found = []
    for batch in release.batches(QUARANTINE, ["file", "row", "excerpt"]):
        found += [f"{one['file']}:{one['row']}" for one in batch.to_pylist() if word.search(one["excerpt"] or "")]
    return printable(f"; it stands in the quarantined {some(found, QUARANTINED)}") if found else ""


def _explain(
    release: ReleaseFolder, manifest: dict[str, Any], decision: dict[str, Any], neighbours: int
) -> Explanation:
    found = Explanation(decision)
    shard, chunk_id = decision["shard"], decision["chunk_id"]
    if decision["outcome"] == "quarantined":
        for batch in release.batches(QUARANTINE, ["shard", "chunk_id", "file", "row", "excerpt"]):
            same = pc.and_(pc.equal(batch["shard"], shard), pc.equal(batch["chunk_id"], chunk_id))
            for row in batch.filter(same).to_pylist():
                found.quarantine = {name: row[name] for name in ("file", "row", "excerpt")}
        if found.quarantine is None:
            found.missing.append(f"file and row: {QUARANTINE} does not have it; see datamask verify {release.path}")
        return found
    work = Source(release, manifest)
    scores = work.row(shard, "scores", chunk_id)
    if scores is None:
        found.missing.append(f"scores: {work.absent(shard, 'scores')}")
    else:
        found.scores = {name: value for name, value in scores.items() if name != "chunk_id"}
        found.scores["quality_score"] = decision["quality_score"]  # with the scorers that read counts of copies
        found.rules = reasons(found.scores)
    if decision.get("detail"):
        found.detail = json.loads(decision["detail"])
    if decision["reason"] == REASON:
        row = work.row(shard, "copies", chunk_id)
        told = json.loads(row["detail"]) if row and row["detail"] else {"list": "?", "entry": "?"}
        by = "" if told["list"] == GIVEN else f", by {told['list']}"
        found.setting = f"forgotten{by}: {told['entry']}, or as a copy of what that names"
    elif decision["outcome"] == "filtered":
        found.setting = _setting(decision["reason"], manifest["settings"])
        _beside(work, (shard, chunk_id), decision["reason"], found)
    vector = work.row(shard, "embeddings", chunk_id)
    if vector is None:
        found.missing.append(f"neighbours: {work.absent(shard, 'embeddings')}")
    else:
        found.neighbours = _neighbours(work, decision, vector["feature_arr"], neighbours)
    return found


def _setting(reason: str, settings: Mapping[str, Any]) -> str:
    """The setting by which a filter took a row, with its value: `duplicates.containment=0.9`."""
    name = SETTINGS.get(reason, "filter.own")
    value: Any = settings
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return f"{name}={json.dumps(value, ensure_ascii=False)}"


def _beside(work: Source, place: Place, reason: str, found: Explanation) -> None:
    """The row it fell to, and both texts, where some stage's file names one."""
    if reason == EXACT:
        if absent := [shard for shard in work.shards if not work.has(shard, "index")]:
            found.missing.append(f"the copy that was kept: {work.absent(absent[0], 'index')}")
    elif "duplicate" in reason and not work.has(place[0], "duplicates"):
        found.missing.append(f"the document it is a duplicate of: {work.absent(place[0], 'duplicates')}")
    found.copy_of = work.kept_copies([place], reason).get(place)
    if found.copy_of is None or found.copy_of["shard"] not in work.shards:  # none, or of an earlier release
        return
    kept = found.copy_of["shard"], found.copy_of["chunk_id"]
    found.copy_of |= work.decision(*kept)
    texts = work.documents([place, kept], ["text"])
    if len(texts) < 2:
        found.missing.append(f"the texts: {work.corpus[2]}")
        return
    both = compare(texts[place].get("text") or "", texts[kept].get("text") or "")
    found.pair = {"dropped": both.first, "kept": both.second, "shared": both.shared}


def _neighbours(work: Source, decision: dict[str, Any], vector: list[float], count: int) -> list[dict[str, Any]]:
    """The selected rows whose embeddings are nearest, itself left out."""
    mine = np.asarray(vector, dtype=np.float32)
    best: list[tuple[float, str, int]] = []
    for shard in work.shards:
        for ids, similar in _similarities(work, shard, mine):
            for place in np.argsort(-similar)[: count + 1]:
                if (shard, int(ids[place])) != (decision["shard"], decision["chunk_id"]):
                    best.append((float(similar[place]), shard, int(ids[place])))
        best = sorted(best, key=lambda item: (-item[0], item[1:]))[:count]
    return [{**work.decision(shard, place), "cosine": similar} for similar, shard, place in best]


def _similarities(work: Source, shard: str, vector: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(chunk_ids, cosines) of a shard's selected rows, a row group at a time."""
    if not work.has(shard, "embeddings"):
        return
    selected = pc.equal(work.release.decisions(shard, ["outcome"])["outcome"], "selected").to_numpy()
    with storage.open_parquet(work.path(shard, "embeddings")) as file:
        for batch in file.iter_batches(20_000, columns=["chunk_id", "feature_arr"]):
            ids = batch["chunk_id"].to_numpy()
            values = batch["feature_arr"].flatten().to_numpy(zero_copy_only=False).reshape(len(ids), -1)
            chosen = selected[ids]
            if chosen.any():
                yield ids[chosen], values[chosen].astype(np.float32) @ vector


# ---------------------------------------------------------------- some that a filter took


@dataclass(frozen=True)
class Dropped:
    """A document and, where it fell to another, that one beside it."""

    shard: str
    chunk_id: int
    id: str
    outcome: str
    reason: str | None
    quality_score: float | None
    token_count: int | None
    groups: Mapping[str, str] = field(default_factory=dict)
    text: Parts = field(default_factory=list)  # in parts where there is a pair; else its beginning
    kept_id: str | None = None
    kept: Parts = field(default_factory=list)
    similarity: float | None = None
    detail: Mapping[str, Any] | None = None  # the test item it holds
    shared: float | None = None  # of the words of both (Jaccard)


def read_dropped(
    release: ReleaseFolder, name: str, count: int, only: Mapping[str, str] | None = None, seed: int = 0
) -> tuple[list[Dropped], int, str]:
    """(`count` of the documents with this reason, drawn at random; how many there are; why texts are missing, or "").

    :param name: a filter, a reason of the quarantine, `selected` or `not_selected`.
    :param only: column=value that the corpus, or of topics the release, must have there.
    :raises InputError: no such reason in this release, no such column, or the corpus that has it is gone.
    """
    manifest = release.manifest()
    total = manifest["conservation"]["total"]
    valid = [*total["filtered"], *total["quarantined"], "selected", "not_selected"]
    if name not in valid:
        there = f"valid are {', '.join(valid)}{nearest(name, valid)}"
        raise InputError(f"--filter {name}: nothing in {release.path} has this outcome; {there}")
    source = Source(release, manifest)
    shards, _, why = source.corpus
    wanted = {column: value for column, value in (only or {}).items() if not _is_length(column, value)}
    if wanted and not shards:
        raise InputError(f"{', '.join(wanted)}: the corpus that has this column is not at hand: {why}")
    if wanted:
        _check_columns(source, wanted)
    rows, number = _draw(source, name, count, only or {}, seed)
    places = [_place(row) for row in rows]
    pairs = source.kept_copies(places, name)
    texts = source.documents([*places, *map(_place, pairs.values())], ["text", *GROUPS])
    return (
        [_dropped(source, row, pairs.get(place), texts) for row, place in zip(rows, places, strict=True)],
        number,
        why,
    )


def _check_columns(source: Source, only: Mapping[str, str]) -> None:
    shards, config, _ = source.corpus
    assert config is not None
    there = dict.fromkeys(
        name for shard in shards.values() for name in shard_schema(shard, config).names if name != "text"
    )
    there |= dict.fromkeys([TOPIC] if any("topics" in keys for keys in source.keys.values()) else [])
    for column, value in only.items():
        if column not in there and column == LENGTH:
            raise InputError(f"--only {column}={value}: valid are {', '.join(BINS)}")
        if column not in there:
            raise InputError(
                f"--only {column}: no such column in the corpus; valid are {', '.join(there)}"
                f"{nearest_column(column, [*there])}"
            )


def _draw(
    source: Source, name: str, count: int, only: Mapping[str, str], seed: int
) -> tuple[list[dict[str, Any]], int]:
    """Rows of decisions/, drawn evenly from all shards: those with the smallest of random keys."""
    best: list[tuple[float, dict[str, Any]]] = []
    number = 0
    for shard in source.shards:
        table = source.release.decisions(shard)
        key = table["outcome"] if name in ("selected", "not_selected") else table["reason"]
        table = table.filter(pc.fill_null(pc.equal(key, name), False))
        if only and table.num_rows:
            table = table.filter(_matches(source, shard, table, only))
        number += table.num_rows
        keys = np.random.default_rng([seed, zlib.crc32(shard.encode())]).random(table.num_rows)
        for place in np.argsort(keys)[:count]:
            best.append((float(keys[place]), table.slice(int(place), 1).to_pylist()[0]))
        best = sorted(best, key=lambda item: item[0])[:count]
    return [row for _, row in best], number


def _is_length(column: str, value: str) -> bool:
    """Whether a group is one of those by length, which are made of token counts."""
    return column == LENGTH and value in BINS


def _matches(source: Source, shard: str, table: pa.Table, only: Mapping[str, str]) -> pa.Array:
    """(rows,) bool: which rows of a shard's decisions have these values, as the report calls them."""
    columns = {TOPIC: table[TOPIC]} if TOPIC in table.column_names else {}
    if any(_is_length(column, value) for column, value in only.items()):
        columns[LENGTH] = pa.chunked_array([length_bins(table["token_count"])])
    hit = np.ones(table.num_rows, bool)
    if asked := [column for column in only if column not in columns]:
        places = [(shard, chunk_id) for chunk_id in table["chunk_id"].to_pylist()]
        rows = source.documents(places, asked)
        hit &= bool(rows)  # the shard is at hand
        columns |= {column: pa.chunked_array([[rows.get(at, {}).get(column) for at in places]]) for column in asked}
    for column, value in only.items():
        hit &= pc.equal(with_none(as_strings(columns[column])), value).to_numpy()
    return pa.array(hit)


def _place(row: Mapping[str, Any]) -> Place:
    return row["shard"], row["chunk_id"]


def _dropped(
    source: Source, row: Mapping[str, Any], copy: Mapping[str, Any] | None, texts: Mapping[Place, Mapping[str, Any]]
) -> Dropped:
    """:param copy: of `Source.kept_copies`."""
    mine = texts.get(_place(row), {})
    names = ("shard", "chunk_id", "id", "outcome", "reason", "quality_score", "token_count")
    facts: dict[str, Any] = {name: row[name] for name in names}
    facts["detail"] = json.loads(row["detail"]) if row.get("detail") else None
    facts["groups"] = {name: excerpt(str(mine[name]), 60) for name in GROUPS if mine.get(name) not in (None, "")}
    alone = Dropped(**facts, text=[["same", excerpt(mine.get("text"), CHARACTERS)]] if mine else [])
    if copy is None:
        return alone
    kept, similarity = _place(copy), copy.get("similarity")
    if kept[0] not in source.shards:  # a document of an earlier release
        return replace(alone, kept_id="/".join(map(str, kept)), similarity=similarity)
    found = replace(alone, text=[], kept_id=source.decision(*kept)["id"], similarity=similarity)
    if not mine or kept not in texts:
        return found
    both = compare(mine.get("text") or "", texts[kept].get("text") or "")
    return replace(found, text=both.first, kept=both.second, shared=both.shared)
