"""Export's first round: what became of every row of a shard, and what its selected rows are, for the cut of stripes.

Of a shard stay a decisions file in the release and an array file between the rounds; what is returned is counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from datamask import storage
from datamask.corpus.plan import Part
from datamask.corpus.read import read_batches
from datamask.duck import connect
from datamask.maps import read_arrays, write_arrays
from datamask.release.data_files import WrittenFile, sealed, written
from datamask.release.merge import Conservation, count_values, decide, schema_of
from datamask.release.quarantine import row_runs
from datamask.stages import ShardFiles

if TYPE_CHECKING:
    from datamask.release.staging import Exporting

CENSUS_ROWS = 100_000  # read at a time for dump and language


@dataclass(frozen=True)
class ShardDecided:
    """A shard's part of the manifest."""

    conservation: Conservation
    decisions: WrittenFile
    sources: tuple[Part, ...]
    selection: str  # file of the selected rows' chunk_id, dump (place in `dumps`) and bytes of text
    dumps: tuple[tuple[str | None, int], ...]  # value and selected rows, in the order of the places
    languages: Mapping[str, int]


_FACTS = TypeAdapter(ShardDecided)


def decisions_path(files: ShardFiles) -> str:
    return f"decisions/{files.shard.name}.parquet"


def decide_shards(state: Exporting, shards: Sequence[ShardFiles]) -> list[ShardDecided]:
    """The decisions on all rows of some shards.

    :raises ConservationError: the rows of one do not add up.
    """
    found = [_recorded(files, state) for files in shards]
    if all(found):
        return [each for each in found if each]
    with connect(state.config.filter.memory_limit) as connection:
        return [each or _decide(files, state, connection) for files, each in zip(shards, found, strict=True)]


def _decide(files: ShardFiles, state: Exporting, connection: duckdb.DuckDBPyConnection) -> ShardDecided:
    decided, sums = decide(files, connection)
    written_files: list[WrittenFile] = []
    with written(state.staged.folder, decisions_path(files), written_files) as temporary:
        sections = {"select", "filter", "quality", "duplicates"}
        schema = schema_of(state.config.model_dump(mode="json", include=sections), files.topics is not None)
        table = decided.select(schema.names).cast(schema).replace_schema_metadata(sealed(state.staged.key))
        pq.write_table(table, temporary, compression="zstd")
    selected = pc.equal(decided["outcome"], "selected").to_numpy()
    chunk_ids = np.flatnonzero(selected)
    times = _rows(decided, state)
    dumps, values, languages = _census(files, state, times)
    found = ShardDecided(
        sums,
        written_files[0],
        tuple(run.part for run in row_runs(files.shard)),
        _selection(files, state),
        tuple((value, int(times[chunk_ids[dumps == place]].sum())) for place, value in enumerate(values)),
        languages,
    )
    write_arrays(
        found.selection,
        chunk_id=chunk_ids,
        dump=dumps,
        bytes=(decided["bytes"].to_numpy() * times)[chunk_ids],
        facts=np.frombuffer(_FACTS.dump_json(found), np.uint8),
    )
    return found


def _rows(decided: pa.Table, state: Exporting) -> np.ndarray:
    """(rows read,) rows of the data files that each becomes."""
    if state.config.selection.repeat > 1 and state.config.release.repeated_rows:
        return decided["repeat"].to_numpy()
    return pc.equal(decided["outcome"], "selected").to_numpy().astype(np.int32)


def _census(
    files: ShardFiles, state: Exporting, times: np.ndarray
) -> tuple[np.ndarray, tuple[str | None, ...], dict[str, int]]:
    """(each selected row's dump as a place among the values, the values, rows by language). times: (rows read,)."""
    schema = state.layout.corpus
    read = [name for name in ("dump", "language") if name in schema.names]
    languages: Counter[str] = Counter()
    values: dict[str | None, int] = {}
    parts: list[np.ndarray] = []
    if read and times.any():
        for batch in read_batches(files.shard, state.config, read, CENSUS_ROWS, schema, times > 0):
            ids = batch["chunk_id"].to_numpy()
            here = times[ids[0] : ids[-1] + 1]
            chosen = batch.filter(pa.array(here > 0))
            if "language" in read:
                languages_here = batch["language"].take(pa.array(np.repeat(np.arange(len(here)), here)))
                languages.update(count_values(languages_here.drop_null()))
            if "dump" in read:
                encoded = chosen["dump"].fill_null("").dictionary_encode()
                met = [value or None for value in encoded.dictionary.to_pylist()]
                codes = np.array([values.setdefault(value, len(values)) for value in met], dtype=np.int32)
                parts.append(codes[encoded.indices.to_numpy()])
    if parts:
        return np.concatenate(parts), tuple(values), dict(languages)
    return np.zeros(int((times > 0).sum()), np.int32), (None,), dict(languages)


# ---------------------------------------------------------------- the file between the rounds


def _selection(files: ShardFiles, state: Exporting) -> str:
    return storage.join(state.folder, f"{files.shard.name}.npz")


def _recorded(files: ShardFiles, state: Exporting) -> ShardDecided | None:
    url = _selection(files, state)
    if not storage.exists(url):
        return None
    found = replace(_FACTS.validate_json(read_arrays(url, "facts")[0].tobytes()), selection=url)
    there = storage.size_of(storage.join(state.staged.folder, found.decisions.path))
    return found if there == found.decisions.bytes else None
