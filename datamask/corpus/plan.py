"""The shard plan: which rows of which files form a shard: a file, a run of row groups, or a group of files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A file, or a run of a parquet file's row groups."""

    path: str
    format: str  # parquet, jsonl, jsonl.gz, jsonl.zst
    fingerprint: str  # of the whole file's content
    bytes: int
    row_groups: tuple[int, int] | None = None  # first, one past the last; None: all
    rows: int | None = None  # None: not known before the file is converted


@dataclass(frozen=True)
class Shard:
    """A unit of work. `chunk_id` is a row's number in it, so (name, chunk_id) names a document for ever."""

    name: str  # unique in the corpus, safe as a file name, the same whatever the order of the inputs
    parts: tuple[Part, ...]
    fingerprint: str  # of the content of its rows, not of where they lie


@dataclass(frozen=True)
class FailedFile:
    """A file that cannot be read, and why, in the user's words."""

    path: str
    error: str


@dataclass(frozen=True)
class Plan:
    shards: tuple[Shard, ...]  # by name
    failures: tuple[FailedFile, ...] = ()
