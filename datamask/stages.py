"""What the stages hand to one another: a shard and the files published about it so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datamask.corpus.plan import Shard
from datamask.storage import Output

Progress = Callable[[int], None]  # called with the number of rows done since the last call


def silent(rows: int) -> None:
    """The Progress that shows nothing."""


@dataclass(frozen=True)
class ShardFiles:
    """A shard with each stage's output; None where the stage has not run yet."""

    shard: Shard
    index: Output | None = None
    embeddings: Output | None = None
    scores: Output | None = None
    filters: Output | None = None
    duplicates: Output | None = None
    masks: Output | None = None
