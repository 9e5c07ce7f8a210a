"""Whether duplicates take far more of one language or source than they should: a sign of a wrong setting or encoder."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import Config
from datamask.corpus.columns import texts_of
from datamask.corpus.plan import Shard
from datamask.corpus.read import corpus_schema, read_documents
from datamask.errors import InputError
from datamask.stages import ShardFiles

COLUMNS = ("language", "source")  # of the corpus, where it has them
LEAST = 20  # documents of a group, below which a share says little
NAMED = 5  # groups in a message, worst first

Losses = Counter[tuple[str, str, bool]]  # documents by column, value, and whether they fall

_log = logging.getLogger(__name__)


def alarm_columns(shards: Sequence[Shard], config: Config) -> tuple[tuple[str, ...], pa.Schema]:
    """Those of COLUMNS that the corpus has, and its schema."""
    with_parts = [shard for shard in shards if shard.parts]
    schema = corpus_schema(with_parts, config) if with_parts else pa.schema([])
    return tuple(name for name in COLUMNS if name in schema.names), schema


def read_groups(
    files: ShardFiles, chunk_id: np.ndarray, columns: Sequence[str], schema: pa.Schema | None, config: Config
) -> Iterator[tuple[str, np.ndarray]]:
    """(column, values (n,) str of these documents; null: ""). chunk_id: (n,)."""
    if not columns or not len(chunk_id):
        yield from ((name, np.zeros(0, dtype=str)) for name in columns)
        return
    table = pa.Table.from_batches(list(read_documents(files, config, columns, schema=schema)))
    for name in columns:
        values = pc.fill_null(texts_of(table[name]), "").to_numpy(zero_copy_only=False)
        yield name, values[np.searchsorted(table["chunk_id"].to_numpy(), chunk_id)].astype(str)


def raise_alarm(losses: Losses, share: float, do: str) -> list[str]:
    """A sentence for each group of which more than `share` falls, worst first; logged.

    :raises InputError: there is one, and `do` is "stop".
    """
    over = []
    for name, value in {group[:2] for group in losses}:
        fallen = losses[name, value, True]
        count = fallen + losses[name, value, False]
        if value and count >= LEAST and fallen > share * count:
            over.append((-fallen / count, name, value, f"{name} {value}: {fallen} of {count} documents"))
    sentences = [sentence for *_, sentence in sorted(over)]
    if not sentences:
        return []
    message = (
        f"duplicates take over {share:.0%} of {'; '.join(sentences[:NAMED])}"
        + (f"; and of {len(sentences) - NAMED} other groups" if len(sentences) > NAMED else "")
        + ". Look at pairs in the report; if they are none, raise duplicates.jaccard or duplicates.containment; "
        "if they are, raise duplicates.alarm_share"
    )
    if do == "stop":
        raise InputError(message)
    _log.warning("%s", message)
    return sentences
