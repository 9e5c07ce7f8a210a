"""Why a document is in a release, or is not: its scores and signals, its neighbours, what took it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.errors import InputError, printable, some
from datamask.filter.forgotten import GIVEN, REASON
from datamask.quality.scorers import reasons
from datamask.release.differences import compare
from datamask.release.manifest import source_runs
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
