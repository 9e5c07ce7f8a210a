"""Why a document is in a release, or is not: its scores and signals, its price, its neighbours, what took it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.errors import InputError
from datamask.quality.reasons import reasons
from datamask.release.layout import QUARANTINE, Release
from datamask.release.merge import DECISIONS

NEIGHBOURS = 5


@dataclass
class Explanation:
    """What is known of one row; what lies in the work folder only while that is kept."""

    decision: dict[str, Any]  # the row of decisions/
    quarantine: dict[str, Any] | None = None  # file, row, excerpt
    scores: dict[str, float] = field(default_factory=dict)  # every scorer's score and signals
    rules: list[str] = field(default_factory=list)  # what pulled its scores down: faults, and published rules it fails
    copy_of: dict[str, Any] | None = None  # the row that was kept of an exact or semantic duplicate
    neighbours: list[dict[str, Any]] = field(default_factory=list)  # nearest selected rows, by cosine
    price_rank: dict[str, int] | None = None  # place by price among the rows that could be selected, of how many
    missing: list[str] = field(default_factory=list)  # what could not be told, and why

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explain(release: Release, name: str, neighbours: int = NEIGHBOURS) -> list[Explanation]:
    """Each row whose id, or shard/chunk_id, is `name`.

    :raises InputError: there is none.
    """
    manifest = release.manifest()
    decisions = [row for shard in sorted(manifest["conservation"]["shards"]) for row in _rows(release, shard, name)]
    if not decisions:
        rows = manifest["conservation"]["total"]["rows"]
        raise InputError(
            f"no row {name!r} among the {rows} that {release.path} decided about; give an id, or SHARD/CHUNK_ID"
        )
    return [_explain(release, manifest, decision, neighbours) for decision in decisions]


def _rows(release: Release, shard: str, name: str) -> list[dict[str, Any]]:
    path = storage.join(release.path, f"decisions/{shard}.parquet")
    ids = storage.read_table(path, ["id"])["id"]
    found = np.flatnonzero(pc.fill_null(pc.equal(ids, name), False).to_numpy())
    prefix, _, number = name.rpartition("/")
    if prefix == shard and number.isdecimal() and int(number) < len(ids):
        found = np.union1d(found, [int(number)])
    return storage.read_table(path, DECISIONS.names).take(pa.array(found)).to_pylist() if len(found) else []


def _explain(release: Release, manifest: dict[str, Any], decision: dict[str, Any], neighbours: int) -> Explanation:
    found = Explanation(decision)
    shard, chunk_id = decision["shard"], decision["chunk_id"]
    if decision["outcome"] == "quarantined":
        table = storage.read_table(storage.join(release.path, QUARANTINE))
        same = pc.and_(pc.equal(table["shard"], shard), pc.equal(table["chunk_id"], chunk_id))
        [row] = table.filter(same).to_pylist()
        found.quarantine = {name: row[name] for name in ("file", "row", "excerpt")}
        return found
    work = _Work(release, manifest)
    scores = work.row(shard, "scores", chunk_id)
    if scores is None:
        found.missing.append(f"scores: {work.absent(shard, 'scores')}")
    else:
        found.scores = {name: value for name, value in scores.items() if name != "chunk_id"}
        found.rules = reasons(found.scores)
    if decision["reason"] == "exact_duplicate":
        found.copy_of = _exact_copy(release, work, manifest, shard, chunk_id, found)
    elif decision["reason"] == "semantic_duplicate":
        row = work.row(shard, "duplicates", chunk_id)
        if row is None:
            found.missing.append(f"the document it is a duplicate of: {work.absent(shard, 'duplicates')}")
        else:
            copy = _decision(release, row["duplicate_of_shard"], row["duplicate_of"])
            found.copy_of = {**copy, "similarity": row["similarity"]}
    if decision["outcome"] in ("selected", "not_selected") and decision["price"] is not None:
        found.price_rank = _price_rank(release, manifest, decision["price"])
    vector = work.row(shard, "embeddings", chunk_id)
    if vector is None:
        found.missing.append(f"neighbours: {work.absent(shard, 'embeddings')}")
    else:
        found.neighbours = _neighbours(release, work, manifest, decision, vector["feature_arr"], neighbours)
    return found


class _Work:
    """The stages' files of a release, where its output folder still has them."""

    def __init__(self, release: Release, manifest: dict[str, Any]) -> None:
        self.folder = storage.join(release.path.rstrip("/").rsplit("/", 2)[0], "work")
        self.keys = {item["shard"]: item["keys"] for item in manifest["inputs"]}

    def path(self, shard: str, stage: str) -> str:
        return storage.join(self.folder, stage, f"{shard}-{self.keys[shard].get(stage)}.parquet")

    def has(self, shard: str, stage: str) -> bool:
        return stage in self.keys[shard] and storage.exists(self.path(shard, stage))

    def table(self, shard: str, stage: str, columns: list[str] | None = None) -> pa.Table | None:
        return storage.read_table(self.path(shard, stage), columns) if self.has(shard, stage) else None

    def row(self, shard: str, stage: str, chunk_id: int) -> dict[str, Any] | None:
        table = self.table(shard, stage)
        if table is None:
            return None
        rows = table.filter(pc.equal(table["chunk_id"], chunk_id)).to_pylist()
        return rows[0] if rows else None

    def absent(self, shard: str, stage: str) -> str:
        return f"{self.path(shard, stage)} is not there any more; curate again to have it back"


def _decision(release: Release, shard: str, chunk_id: int) -> dict[str, Any]:
    table = storage.read_table(storage.join(release.path, f"decisions/{shard}.parquet"), DECISIONS.names)
    [row] = table.slice(chunk_id, 1).to_pylist()
    return {name: row[name] for name in ("shard", "chunk_id", "id", "outcome", "quality_score")}


def _exact_copy(
    release: Release, work: _Work, manifest: dict[str, Any], shard: str, chunk_id: int, found: Explanation
) -> dict[str, Any] | None:
    """The row with the same text that no filter took; a semantic duplicate of a third may itself have gone."""
    mine = work.row(shard, "index", chunk_id)
    if mine is None:
        found.missing.append(f"the copy that was kept: {work.absent(shard, 'index')}")
        return None
    for other in sorted(manifest["conservation"]["shards"]):
        table = work.table(other, "index", ["chunk_id", "text_hash"])
        if table is None:
            found.missing.append(f"copies in shard {other}: {work.absent(other, 'index')}")
            continue
        for place in table.filter(pc.equal(table["text_hash"], mine["text_hash"]))["chunk_id"].to_pylist():
            row = _decision(release, other, place)
            if row["outcome"] != "filtered":
                return row
    return None


def _price_rank(release: Release, manifest: dict[str, Any], price: float) -> dict[str, int]:
    above = of = 0
    for shard in manifest["conservation"]["shards"]:
        table = storage.read_table(storage.join(release.path, f"decisions/{shard}.parquet"), ["outcome", "price"])
        candidates = table.filter(pc.is_in(table["outcome"], value_set=pa.array(["selected", "not_selected"])))
        above += pc.sum(pc.greater(candidates["price"], pa.scalar(price, pa.float32()))).as_py() or 0
        of += candidates.num_rows
    return {"rank": above + 1, "of": of}


def _neighbours(
    release: Release, work: _Work, manifest: dict[str, Any], decision: dict[str, Any], vector: list[float], count: int
) -> list[dict[str, Any]]:
    """The selected rows whose embeddings are nearest, itself left out."""
    mine = np.asarray(vector, dtype=np.float32)
    best: list[tuple[float, str, int]] = []
    for shard in sorted(manifest["conservation"]["shards"]):
        for ids, similar in _similarities(release, work, shard, mine):
            for place in np.argsort(-similar)[: count + 1]:
                if (shard, int(ids[place])) != (decision["shard"], decision["chunk_id"]):
                    best.append((float(similar[place]), shard, int(ids[place])))
        best = sorted(best, key=lambda item: (-item[0], item[1:]))[:count]
    return [{**_decision(release, shard, place), "cosine": similar} for similar, shard, place in best]


def _similarities(
    release: Release, work: _Work, shard: str, vector: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(chunk_ids, cosines) of a shard's selected rows, a row group at a time."""
    if not work.has(shard, "embeddings"):
        return
    outcome = storage.read_table(storage.join(release.path, f"decisions/{shard}.parquet"), ["outcome"])["outcome"]
    selected = pc.equal(outcome, "selected").to_numpy()
    with storage.open_parquet(work.path(shard, "embeddings")) as file:
        for batch in file.iter_batches(20_000, columns=["chunk_id", "feature_arr"]):
            ids = batch["chunk_id"].to_numpy()
            values = batch["feature_arr"].flatten().to_numpy(zero_copy_only=False).reshape(len(ids), -1)
            chosen = selected[ids]
            if chosen.any():
                yield ids[chosen], values[chosen].astype(np.float32) @ vector
