"""Whether duplicates take far more of one language or source than they should: a sign of a wrong setting or encoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import Config
from datamask.corpus.read import corpus_schema, read_documents
from datamask.errors import InputError
from datamask.filter.postings import Documents
from datamask.stages import ShardFiles

COLUMNS = ("language", "source")  # of the corpus, where it has them
LEAST = 20  # documents of a group, below which a share says little
NAMED = 5  # groups in a message, worst first

_log = logging.getLogger(__name__)


def groups_of(
    all_files: Sequence[ShardFiles], documents: Documents, earlier: int, config: Config
) -> dict[str, np.ndarray]:
    """Of each column of COLUMNS the corpus has: the value (object) of each document that may fall; null: ""."""
    parts = [files.shard for files in all_files if files.shard.parts]
    schema = corpus_schema(parts, config) if parts else pa.schema([])
    columns = [name for name in COLUMNS if name in schema.names]
    found: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    for number, files in enumerate(all_files, start=earlier):
        mine = documents.chunk_id[documents.shard == number]
        batches = list(read_documents(files, config, columns, schema=schema)) if columns and len(mine) else []
        if not batches:
            continue
        table = pa.Table.from_batches(batches)
        places = np.searchsorted(table["chunk_id"].to_numpy(), mine)
        for name in columns:
            values = pc.fill_null(table[name].cast(pa.string()), "").to_numpy(zero_copy_only=False)
            found[name].append(values[places])
    return {name: np.concatenate(values) for name, values in found.items() if values}


def raise_alarm(groups: Mapping[str, np.ndarray], fallen: np.ndarray, share: float, do: str) -> list[str]:
    """A sentence for each group of which more than `share` falls, worst first; logged.

    :param groups: of `groups_of`. :param fallen: (N,) bool, of the same documents.
    :raises InputError: there is one, and `do` is "stop".
    """
    said = []
    for name, values in groups.items():
        unique, place = np.unique(values.astype(str), return_inverse=True)
        count, lost = np.bincount(place), np.bincount(place, fallen)
        over = [i for i in np.flatnonzero((count >= LEAST) & (lost > share * count)) if unique[i]]
        for i in sorted(over, key=lambda i: (-lost[i] / count[i], unique[i])):
            said.append((lost[i] / count[i], f"{name} {unique[i]}: {int(lost[i])} of {count[i]} documents"))
    sentences = [text for _, text in sorted(said, key=lambda item: -item[0])]
    if not sentences:
        return []
    message = (
        f"duplicates take over {share:.0%} of {'; '.join(sentences[:NAMED])}"
        + (f"; and of {len(sentences) - NAMED} other groups" if len(sentences) > NAMED else "")
        + ". Look at pairs in the report; if they are none, raise duplicates.jaccard or duplicates.containment, or set "
        "duplicates.semantic=off; if they are, raise duplicates.alarm_share"
    )
    if do == "stop":
        raise InputError(message)
    _log.warning("%s", message)
    return sentences
