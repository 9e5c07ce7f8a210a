"""The data files: text read last, streamed from the corpus into parquet that streams well."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
ENOUGH = 8  # a stripe with an eighth of a file's rows or bytes ends where a new dump begins
NO_DUMP = "unspecified"  # folder of documents without a dump
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}(?<!\.)")


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
        others = [corpus.field(n) for n in corpus.names if n not in FINEWEB.names]
        read = pa.schema([*first, *others])
        taken = {*read.names, *ours.names}
        renamed = []
        for name, type_ in zip(read.names, read.types, strict=True):
            if name in ours.names:
                while name in taken:
                    name += "_original"
                taken.add(name)
            renamed.append(pa.field(name, type_))
        return cls(read, pa.schema([*renamed, *ours], metadata=sealed(key)))

    def described(self) -> list[dict[str, str]]:
        """Name and type of every column, and `from`, its type in the corpus, where that is another kind of value."""
        found = [{"name": column.name, "type": str(column.type)} for column in self.release]
        for column, read in zip(found, self.corpus, strict=False):
            if restated := (read.metadata or {}).get(RESTATED):
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


# ---------------------------------------------------------------- which documents go into which file
# Decided before any text is read. A stripe is a run of selected documents in the corpus's order. It is written in one
# pass, as one file for each dump in it: data/<dump>/<stripe>_00000.parquet. So the text is read once however the dumps
# are mixed, stripes can be written side by side, and neither their bounds nor their bytes depend on how many are. A
# stripe ends just before any dump's file would grow beyond its bounds, and where a new dump begins once there is enough
# in it: a corpus that lies dump by dump, as FineWeb does, has a stripe per dump, or several.


@dataclass
class RowRange:
    """A stripe's part of one shard: selected rows `first` to `last` (chunk_ids, both included)."""

    shard: int  # place in the list of shards
    first: int
    last: int


@dataclass
class Stripe:
    """The runs of documents that are written as one unit."""

    number: int
    runs: list[RowRange] = field(default_factory=list)
    rows: int = 0


def cut_stripes(
    selections: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], rows_per_file: int, bytes_per_file: int
) -> Iterator[Stripe]:
    """Stripes such that no dump has more than `rows_per_file` rows or `bytes_per_file` bytes of text in one of them.

    A single longer document has a file of its own.

    :param selections: for each shard in order (chunk_ids ascending, dump codes, bytes of text) of its selected rows;
        a dump has the same code in every shard.
    """
    stripe, held = Stripe(0), _Held(rows_per_file, bytes_per_file)
    for shard, (chunk_ids, dumps, sizes) in enumerate(selections):
        start = 0
        while start < len(chunk_ids):
            end = held.end(dumps[start:], sizes[start:])
            if end:
                stop = start + end
                stripe.runs.append(RowRange(shard, int(chunk_ids[start]), int(chunk_ids[stop - 1])))
                stripe.rows += end
                held.add(dumps[start:stop], sizes[start:stop])
                start = stop
            if start < len(chunk_ids):
                yield stripe
                stripe, held = Stripe(stripe.number + 1), _Held(rows_per_file, bytes_per_file)
    if stripe.rows:
        yield stripe


class _Held:
    """What a stripe holds of each dump so far."""

    def __init__(self, rows_per_file: int, bytes_per_file: int) -> None:
        self.most = rows_per_file, bytes_per_file
        self.held: dict[int, tuple[int, int]] = {}  # dump: rows, bytes

    def end(self, dumps: np.ndarray, sizes: np.ndarray) -> int:
        """How many of these rows the stripe still takes."""
        end = len(dumps)
        enough_rows, enough_bytes = (most / ENOUGH for most in self.most)
        rows_before, bytes_before = (
            (sum(counts) for counts in zip(*self.held.values(), strict=True)) if self.held else (0, 0)
        )
        bytes_at = bytes_before + np.cumsum(sizes) - sizes  # held before each row
        for dump in np.unique(dumps).tolist():
            places = np.flatnonzero(dumps == dump)
            rows, size = self.held.get(dump, (0, 0))
            over = np.arange(rows + 1, rows + 1 + len(places)) > self.most[0]
            over |= size + np.cumsum(sizes[places]) > self.most[1]
            if not rows:
                first = int(places[0])
                over[0] = rows_before + first >= enough_rows or bytes_at[first] >= enough_bytes
            if over.any():
                end = min(end, int(places[np.argmax(over)]))
        return end

    def add(self, dumps: np.ndarray, sizes: np.ndarray) -> None:
        for dump in np.unique(dumps).tolist():
            mine = dumps == dump
            rows, size = self.held.get(dump, (0, 0))
            self.held[dump] = rows + int(mine.sum()), size + int(sizes[mine].sum())


def folder_names(dumps: Iterable[str | None]) -> dict[str | None, str]:
    """Value: folder name; no value, however odd, leads out of data/ or into another's folder.

    The same values give the same names, in whatever order they come.
    """
    values = set(dumps)
    names: dict[str | None, str] = {None: NO_DUMP} if None in values else {}
    taken = {NO_DUMP}
    for dump in sorted(value for value in values if value is not None):
        name, said = dump, dump
        while not _SAFE.fullmatch(name) or name.casefold() in taken:  # file systems may not tell upper from lower case
            readable = re.sub(r"[^A-Za-z0-9_+-]+", "-", dump).strip("-+_")[:80] or "dump"
            name = f"{readable}-{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
            said += "/"  # another value may be called as this one's folder would be
        taken.add(name.casefold())
        names[dump] = name
    return names
