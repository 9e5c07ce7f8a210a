"""Some of the documents that a filter took, each beside the one it fell to, to be read at a glance.

for one in read_dropped(release, "near_duplicate", 20, {"language": "am"}):
    one.id, one.text, one.kept_id, one.kept, one.shared
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.corpus.columns import nearest_column
from datamask.corpus.read import TOPIC, shard_schema
from datamask.errors import InputError, nearest
from datamask.release.differences import Parts, compare, excerpt
from datamask.release.groups import BINS, LENGTH, as_strings, length_bins, with_none
from datamask.release.release_folder import ReleaseFolder
from datamask.release.source import Place, Source

CHARACTERS = 420  # of a document without a pair
GROUPS = ("language", "source", "label", "domain", "dump")  # told of each document, as far as the corpus has them


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
    _check_name(name, manifest["conservation"]["total"], release.path)
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


def _check_name(name: str, total: Mapping[str, Any], path: str) -> None:
    valid = [*total["filtered"], *total["quarantined"], "selected", "not_selected"]
    if name not in valid:
        raise InputError(
            f"--filter {name}: nothing in {path} has this outcome; valid are {', '.join(valid)}{nearest(name, valid)}"
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
    source: Source,
    row: Mapping[str, Any],
    copy: Mapping[str, Any] | None,
    texts: Mapping[Place, Mapping[str, Any]],
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
