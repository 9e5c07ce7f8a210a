"""What a release's output folder still holds about its rows: the stages' files, and the corpus they were made from.

A release alone has the text of what was selected. Scores, pairs of duplicates and neighbours are looked up in work/,
the text of what was left out in the corpus itself; what is not there any more is said, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.identify import wanted
from datamask.corpus.plan import Shard
from datamask.corpus.read import documents_at
from datamask.errors import ConfigError, DamagedFileError, InputError
from datamask.pipeline import STAGES
from datamask.release.release_folder import ReleaseFolder
from datamask.stages import recorded

Place = tuple[str, int]  # a shard's name and a row of it
EXACT = "exact_duplicate"  # the filter whose kept copy is found by the text's hash


class Source:
    """The stages' files of a release, where its output folder still has them."""

    def __init__(self, release: ReleaseFolder, manifest: Mapping[str, Any]) -> None:
        self.release = release
        self.out = release.path.rstrip("/").rsplit("/", 2)[0]
        self.folder = storage.join(self.out, "work")
        self.keys = {item["shard"]: item["keys"] for item in manifest["inputs"]}
        self._fingerprints = {item["shard"]: item["fingerprint"] for item in manifest["inputs"]}
        self.shards = sorted(manifest["conservation"]["shards"])

    def path(self, shard: str, stage: str) -> str:
        return storage.join(self.folder, stage, f"{shard}-{self.keys[shard].get(stage)}.parquet")

    def has(self, shard: str, stage: str) -> bool:
        return stage in self.keys[shard] and storage.exists(self.path(shard, stage))

    def table(self, shard: str, stage: str, columns: list[str] | None = None) -> pa.Table | None:
        return storage.read_table(self.path(shard, stage), columns) if self.has(shard, stage) else None

    def row(self, shard: str, stage: str, chunk_id: int) -> dict[str, Any] | None:
        """A document's row in a stage's file, None if the file or the row is not there."""
        return self.rows(shard, stage, [chunk_id]).get(chunk_id)

    def rows(self, shard: str, stage: str, chunk_ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Those of the rows that the stage's file has, by chunk_id; none where the file is gone."""
        table = self.table(shard, stage)
        if table is None:
            return {}
        found = table.filter(pc.is_in(table["chunk_id"], value_set=pa.array(list(chunk_ids), pa.int64())))
        return {row["chunk_id"]: row for row in found.to_pylist()}

    def absent(self, shard: str, stage: str) -> str:
        """A sentence saying that a stage's file is gone and what to do."""
        return f"{self.path(shard, stage)} is not there any more; curate again to have it back"

    # ------------------------------------------------------------ decisions

    def decision(self, shard: str, chunk_id: int) -> dict[str, Any]:
        """:raises DamagedFileError: there is no such row."""
        table = self.release.decisions(shard)
        if not 0 <= chunk_id < table.num_rows:
            raise DamagedFileError(f"a row {shard}/{chunk_id} is named, which {self.release.path} does not have")
        [row] = table.slice(chunk_id, 1).to_pylist()
        return {
            name: row[name] for name in ("shard", "chunk_id", "id", "outcome", "reason", "quality_score", "token_count")
        }

    def kept_copies(self, places: Sequence[Place], reason: str) -> dict[Place, dict[str, Any]]:
        """The row that each fell to, as far as a file says so: its shard, which may be an earlier release's, and
        chunk_id; and the similarity that was measured, and the kind."""
        if reason == EXACT:
            same = self.same_text(places)
            return {place: {"shard": shard, "chunk_id": chunk_id} for place, (shard, chunk_id) in same.items()}
        found: dict[Place, dict[str, Any]] = {}
        for shard in {shard for shard, _ in places}:
            rows = self.rows(shard, "duplicates", [chunk_id for name, chunk_id in places if name == shard])
            for chunk_id, row in rows.items():
                kept = {"shard": row["duplicate_of_shard"], "chunk_id": row["duplicate_of"]}
                found[shard, chunk_id] = {**kept, "similarity": row["similarity"], "kind": row["kind"]}
        return found

    def same_text(self, places: Iterable[Place]) -> dict[Place, Place]:
        """For rows that fell to an exact copy, a row with the same text, where the index is there: one that stays, or
        that fell later, to what took it then."""
        wanted: dict[bytes, list[Place]] = {}
        for shard in self.shards:
            ids = [chunk_id for name, chunk_id in places if name == shard]
            for chunk_id, row in self.rows(shard, "index", ids).items() if ids else ():
                wanted.setdefault(row["text_hash"], []).append((shard, chunk_id))
        hashes = pa.array(list(wanted), pa.binary(16))
        stays: dict[Place, Place] = {}
        fell: dict[Place, Place] = {}
        for shard in self.shards if wanted else ():
            table = self.table(shard, "index", ["chunk_id", "text_hash"])
            if table is None:
                continue
            same = table.filter(pc.is_in(table["text_hash"], value_set=hashes))
            decided = self.release.decisions(shard, ["outcome", "reason"]).take(same["chunk_id"]).to_pylist()
            for row, now in zip(same.to_pylist(), decided, strict=True):
                if now["outcome"] == "quarantined" or now["reason"] == EXACT:
                    continue
                for place in wanted[row["text_hash"]]:
                    (fell if now["outcome"] == "filtered" else stays).setdefault(place, (shard, row["chunk_id"]))
        return fell | stays

    # ------------------------------------------------------------ the corpus

    @cached_property
    def corpus(self) -> tuple[dict[str, Shard], Config | None, str]:
        """(shards by name, the release's settings to read them by, why some or all are missing or "")."""
        try:
            files, last, _ = recorded(self.out)
            config = validate(self.release.settings())
        except (ConfigError, InputError) as error:
            return {}, None, str(error)
        made, now = ([STAGES["convert"].chosen(each), wanted(each)] for each in (config, last))
        shards = [f.shard for f in files if made == now or not (f.shard.converted_from or wanted(config))]
        shards = [shard if wanted(config) else replace(shard, beside=None) for shard in shards]
        same = {shard.name: shard for shard in shards if shard.fingerprint == self._fingerprints.get(shard.name)}
        gone = ", ".join(sorted(set(self.shards) - same.keys())[:3])
        why = f"the last run in {self.out} read another corpus than this release, or read it otherwise: {gone}"
        return same, config, why if gone else ""

    def documents(self, places: Iterable[Place], names: Sequence[str]) -> dict[Place, dict[str, Any]]:
        """Columns of rows of the corpus, by place; without those whose shard is not there any more.

        :raises InputError: a file of the corpus cannot be read.
        """
        shards, config, _ = self.corpus
        return documents_at(shards.values(), config, places, names) if config else {}
