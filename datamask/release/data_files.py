"""The data files: text read last, streamed from the corpus into parquet that streams well."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config
from datamask.corpus.columns import FINEWEB, RESTATED
from datamask.corpus.read import read_batches
from datamask.read_ahead import read_ahead
from datamask.release.merge import COPIES, REPEAT, TOPICS
from datamask.release.personal import FIELD, PersonalRules, published
from datamask.release.stripes import RowRange, Stripe
from datamask.stages import ShardFiles

ADDED = pa.schema(
    [("quality_score", pa.float32()), ("probability", pa.float32()), ("shard", pa.string()), ("chunk_id", pa.int64())]
)
INDEXED = ("id", "token_count")  # the index's: the input's where it has them, else made or counted
BATCH_ROWS = 4000
KEY_METADATA = b"datamask.release"
ROW_GROUP_BYTES = 32 << 20  # of text: where documents are long, a row group holds fewer rows
PENDING_BYTES = 128 << 20  # of text in a stripe's unwritten row groups, all dumps together
COMPRESSION_LEVEL = 3  # zstd's own default, as DuckDB's and Hugging Face's files have


@dataclass(frozen=True)
class DataLayout:
    """The columns of every data file."""

    corpus: pa.Schema  # as the corpus is read
    release: pa.Schema

    @property
    def made(self) -> list[str]:
        """The columns that datamask adds, in their order."""
        return self.release.names[len(self.corpus.names) :]

    @classmethod
    def of(
        cls,
        corpus: pa.Schema,
        key: str = "",
        repeated: bool = False,
        personal: bool = False,
        copies: bool = False,
        topics: bool = False,
    ) -> DataLayout:
        """FineWeb's columns first, id and token_count always among them; the input's others; ours.

        :param key: the release's, which every file carries.
        :param repeated, personal, copies, topics: with `repeat`, `personal_data`, `COPY_COLUMNS`, `topic`.
        """
        made = [*(COPIES if copies else []), *[REPEAT] * repeated, *[TOPICS] * topics]
        ours = pa.schema([*[FIELD] * personal, *made, *ADDED])
        there = {*corpus.names, *INDEXED}
        first = [corpus.field(n) if n in corpus.names else FINEWEB.field(n) for n in FINEWEB.names if n in there]
        others = [field for field in corpus if field.name not in FINEWEB.names]
        read = pa.schema([*first, *others])
        taken = {*read.names, *ours.names}
        fields = []
        for field in read:
            name = field.name
            if name in ours.names:
                while name in taken:
                    name += "_original"
                taken.add(name)
            fields.append(pa.field(name, field.type))
        return cls(read, pa.schema([*fields, *ours], metadata=sealed(key)))

    def described(self) -> list[dict[str, str]]:
        """Name and type of every column, and `from`, its type in the corpus, where that is another kind of value."""
        found = [{"name": field.name, "type": str(field.type)} for field in self.release]
        for column, field in zip(found, self.corpus, strict=False):
            if restated := (field.metadata or {}).get(RESTATED):
                column["from"] = restated.decode()
        return found


def sealed(key: str) -> dict[bytes, bytes]:
    """The metadata of a release's parquet files: its key."""
    return {KEY_METADATA: key.encode()}


@dataclass(frozen=True)
class WrittenFile:
    """A file of a release, as the manifest lists it."""

    path: str  # inside the release
    bytes: int
    sha256: str
    rows: int | None = None  # of a parquet file

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@contextlib.contextmanager
def written(folder: str, path: str, found: list[WrittenFile]) -> Iterator[Path]:
    """`storage.publish` of folder/path; the file is described in `found` once it is there."""
    with storage.publish(storage.join(folder, path)) as temporary:
        yield temporary
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = temporary.stat().st_size
        rows = pq.read_metadata(temporary).num_rows if path.endswith(".parquet") else None
    found.append(WrittenFile(path, size, digest, rows))


def write_stripe(
    stripe: Stripe,
    shards: Mapping[int, ShardFiles],
    config: Config,
    layout: DataLayout,
    names: Mapping[str | None, str],
    folder: str,
    decisions: Callable[[ShardFiles], pa.Table],
    readers: int = 1,
) -> list[WrittenFile]:
    """Writes the stripe's file for each dump in it.

    :param shards: those of the stripe, by their place.
    :param names: the folder of each dump.
    :param decisions: of a shard: id, token_count, outcome and what else of `layout.made` decisions hold, of every row.
    :param readers: shards read ahead, each in a thread.
    """
    found: list[WrittenFile] = []
    with contextlib.ExitStack() as stack:
        writers: dict[str, _Writer] = {}
        runs = [partial(_documents, run, shards[run.shard], config, layout, decisions) for run in stripe.runs]
        for dump, table in read_ahead(runs, readers, stack):
            name = names[dump]
            if name not in writers:
                path = f"data/{name}/{stripe.number:03d}_00000.parquet"  # FineWeb's names
                temporary = stack.enter_context(written(folder, path, found))
                writers[name] = stack.enter_context(_Writer(temporary, layout.release, config.release.row_group_rows))
            writers[name].add(table)
            if sum(writer.bytes for writer in writers.values()) > PENDING_BYTES:
                max(writers.values(), key=lambda writer: writer.bytes).flush()
    return sorted(found, key=lambda file: file.path)


def _documents(
    run: RowRange, files: ShardFiles, config: Config, layout: DataLayout, decisions: Callable[[ShardFiles], pa.Table]
) -> Iterator[tuple[str | None, pa.Table]]:
    """(dump, rows with the release's columns) of the run's selected documents, in order."""
    decided, shard = decisions(files), files.shard.name
    rules = PersonalRules.of(config.release)
    selected = pc.equal(decided["outcome"], "selected").to_numpy().copy()
    selected[: run.first] = False
    selected[run.last + 1 :] = False
    read = [name for name in layout.corpus.names if name not in INDEXED]
    for batch in read_batches(files.shard, config, read, BATCH_ROWS, layout.corpus, selected):
        ids = batch["chunk_id"].to_numpy()
        chosen = ids[selected[ids[0] : ids[-1] + 1]]
        if not len(chosen):
            continue
        if config.selection.repeat > 1 and config.release.repeated_rows:
            chosen = np.repeat(chosen, decided["repeat"].to_numpy()[chosen])
        documents, facts = batch.take(pa.array(chosen - ids[0])), decided.take(pa.array(chosen))
        columns = [facts[name] if name in INDEXED else documents[name] for name in layout.corpus.names]
        made = {**dict(zip(facts.column_names, facts.columns, strict=True)), "shard": pa.repeat(shard, len(chosen))}
        if rules:
            place = layout.corpus.names.index("text")
            columns[place], made[FIELD.name] = published(columns[place], rules)
        table = pa.table([*columns, *(made[name] for name in layout.made)], schema=layout.release)
        dumps = table["dump"] if "dump" in layout.corpus.names else pa.nulls(len(chosen), pa.string())
        dumps = pc.if_else(pc.equal(dumps, ""), pa.scalar(None, pa.string()), dumps)  # both lie in one folder, in order
        for dump in pc.unique(dumps).to_pylist():
            yield dump, table.filter(pc.is_null(dumps) if dump is None else pc.equal(dumps, dump))


class _Writer:
    """A parquet file whose row groups hold `rows` rows, or fewer where the texts are long."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int) -> None:
        plain = {"text", "id", "url"}  # hardly a value twice: a dictionary is wasted effort
        self.rows = rows
        self.pending: list[pa.Table] = []
        self.held = self.bytes = 0
        self.writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[name for name in storage.leaves(schema) if name not in plain],
            write_statistics=[name for name in storage.leaves(schema) if name != "text"],
        )

    def add(self, table: pa.Table) -> None:
        sizes = np.cumsum(pc.binary_length(table["text"]).to_numpy(), dtype=np.int64)
        start = 0
        while start < table.num_rows:
            before = int(sizes[start - 1]) if start else 0
            room = np.searchsorted(sizes, before + ROW_GROUP_BYTES - self.bytes) + 1
            end = min(table.num_rows, start + self.rows - self.held, max(int(room), start + 1))
            self.pending.append(table.slice(start, end - start))
            self.held += end - start
            self.bytes += int(sizes[end - 1]) - before
            if self.held >= self.rows or self.bytes >= ROW_GROUP_BYTES:
                self.flush()
            start = end

    def flush(self) -> None:
        if self.pending:
            self.writer.write_table(pa.concat_tables(self.pending).combine_chunks(), row_group_size=self.held)
        self.pending, self.held, self.bytes = [], 0, 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *failed: object) -> None:
        if failed[0] is None:
            self.flush()
        self.writer.close()
