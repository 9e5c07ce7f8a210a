"""One reading of a shard's text for all that is measured in it.

    for batch in ShardReading(shard, config).batches(["text", "url"]):
        batch.rows["url"], batch.documents.strings

    outputs = in_one_reading(ShardReading(shard, config), [sign, index])     # each called with its share of the reading

Stages that read together run in a thread each. The rows are read when every stage has asked for its columns, or has
ended because its file is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.quarantine import reason_columns, reasons
from datamask.corpus.read import index_differs, read_batches
from datamask.errors import ConservationError
from datamask.storage import Output, read_table

T = TypeVar("T")
AHEAD = 2  # batches that the fastest stage may be ahead of the slowest
_END = object()


class Batch:
    """Rows of a shard: chunk_id, and the columns that were asked for. What several stages make of them is made once."""

    def __init__(self, rows: pa.RecordBatch, find_reason: Callable[[pa.RecordBatch], pa.Array]) -> None:
        """:param find_reason: why each row is no document, null for those that are; asked at most once."""
        self.rows = rows
        self._find_reason = find_reason
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    @property
    def reason(self) -> pa.Array:
        """(rows,) why each row is no document, null for those that are."""
        return self._once("reason", lambda: self._find_reason(self.rows))

    @property
    def documents(self) -> Batch:
        return self._once("documents", self._kept)

    @property
    def strings(self) -> list[str]:
        return self._once("strings", self.rows["text"].to_pylist)

    def _kept(self) -> Batch:
        if self.reason.null_count == self.rows.num_rows:
            return self
        return Batch(self.rows.filter(self.reason.is_null()), lambda rows: pa.nulls(rows.num_rows, pa.string()))


class ShardReading:
    def __init__(self, shard: Shard, config: Config, index: Output | None = None) -> None:
        """:param index: the shard's, which says what rows are documents; None: there is none yet."""
        self._shard, self._config, self._index = shard, config, index

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All rows; `columns`: as for `read_batches`, at least, beside chunk_id.

        :raises InputError: index and shard differ in rows, or see `read_batches`.
        """
        shard, index = self._shard, self._index
        if index is None:
            needed = reason_columns(shard, self._config)
            find_reason = partial(reasons, scores=needed)
            for rows in read_batches(shard, self._config, list(dict.fromkeys([*columns, "text", "_reason", *needed]))):
                yield Batch(rows, find_reason)
            return
        known = read_table(index.path, ["reason"])["reason"].combine_chunks()
        first = 0
        for rows in read_batches(shard, self._config, columns):
            if first + rows.num_rows <= len(known):
                yield Batch(rows, partial(_slice, known, first))
            first += rows.num_rows
        if first != len(known):
            raise index_differs(shard, len(known))


@dataclass(frozen=True)
class Window:
    rows: pa.Table  # chunk_id, and the columns that were asked for
    texts: list[str]

    @property
    def chunk_ids(self) -> np.ndarray:
        """(documents,) int64."""
        return self.rows["chunk_id"].to_numpy()


def windows(reading: ShardReading, columns: Sequence[str], documents: int, characters: int) -> Iterator[Window]:
    """The documents in runs, each of so many or up to the one by which it has so many characters; so they do not depend
    on how the rows are read.

    :param columns: beside chunk_id and text
    """
    held: list[pa.RecordBatch] = []
    texts: list[str] = []
    size = 0
    for batch in reading.batches(["text", *columns]):
        rows, first = batch.documents.rows.select(["chunk_id", *columns]), 0
        for row, text in enumerate(batch.documents.strings, 1):
            texts.append(text)
            size += len(text)
            if len(texts) == documents or size >= characters:
                yield Window(pa.Table.from_batches([*held, rows[first:row]]), texts)
                held, texts, size, first = [], [], 0, row
        held.append(rows[first:])
    if texts:
        yield Window(pa.Table.from_batches(held), texts)


def count_documents(index: Output) -> int:
    return int(read_table(index.path, ["reason"])["reason"].null_count)


def conserved(batches: Iterable[pa.RecordBatch], documents: int, where: str, work: str) -> Iterator[pa.RecordBatch]:
    """Batches that a stage makes of a shard, which are to have a row a document, in order.

    :param work: what the stage does, for messages
    :raises ConservationError: they have fewer or more, or another order.
    """
    rows, last = 0, -1
    for batch in batches:
        ids = np.append(last, batch["chunk_id"].to_numpy())
        if (np.diff(ids) <= 0).any():
            raise ConservationError(f"{where}: documents out of order after chunk_id {last}")
        rows, last = rows + batch.num_rows, ids[-1]
        yield batch
    if rows != documents:
        raise ConservationError(f"{where}: {documents} documents to {work}, {rows} rows made")


def in_one_reading(reading: ShardReading, stages: Sequence[Callable[[ShardReading], T]]) -> list[T]:
    """What each stage returns, where the rows are read once for all.

    :raises Exception: that the first stage of those that failed has ended in; the others have gone on to their end.
    """
    shares = [_Share() for _ in stages]
    with ThreadPoolExecutor(len(stages), thread_name_prefix="datamask-stage") as pool:
        ended = [
            pool.submit(copy_context().run, _in_its_share, stage, own)
            for stage, own in zip(stages, shares, strict=True)
        ]
        _hand_out(reading, shares)
    return [future.result() for future in ended]


def _in_its_share(stage: Callable[[ShardReading], T], own: _Share) -> T:
    try:
        return stage(own)
    finally:
        own.stop()


def _hand_out(reading: ShardReading, shares: Sequence[_Share]) -> None:
    end: Any = _END
    try:
        for own in shares:
            own.asked.wait()
        if columns := list(dict.fromkeys(name for own in shares for name in own.columns)):
            for batch in reading.batches(columns):
                taken = [own.hand(batch) for own in shares]
                if not any(taken):
                    break
    except BaseException as error:  # of the reading, raised in each stage
        end = error
    for own in shares:
        own.items.put(end)


def _slice(known: pa.Array, first: int, rows: pa.RecordBatch) -> pa.Array:
    return known.slice(first, rows.num_rows)


class _Share(ShardReading):
    """A stage's share of a reading: the batches as another thread reads them."""

    def __init__(self) -> None:
        self.columns: Sequence[str] = ()  # that the stage asks for; none: it reads nothing
        self.asked = threading.Event()
        self.items: SimpleQueue[Any] = SimpleQueue()
        self._room, self._stopped = threading.Semaphore(AHEAD), False

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        self.columns = columns
        self.asked.set()
        while (item := self.items.get()) is not _END:
            self._room.release()
            if isinstance(item, BaseException):
                raise item
            yield item

    def hand(self, batch: Batch) -> bool:
        """Waits for room; whether the stage still takes batches."""
        if self._stopped or not self._room.acquire() or self._stopped:
            return False
        self.items.put(batch)
        return True

    def stop(self) -> None:
        self._stopped = True
        self.asked.set()
        self._room.release()
