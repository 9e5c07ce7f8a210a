"""A stage that sees the whole corpus, as rounds of maps with small reduces between them.

    def find(all_files, config, work, maps=here):
        counts = maps(count, State(config, folder), groups(all_files))      # a round: any worker, any order
        total = sum(counts)                                                 # its reduce: in the calling process
        return maps(write, State(config, folder, total), all_files)

The function of a round lies at the top of its module and is called with the round's state and an item; both, and what
it returns, are small and picklable. What is large it publishes as a file under a name that follows from state and item,
and an item whose file is there returns at once: so a stage that was killed goes on where it stopped, and an item that
is tried again, on whatever machine, gives the same. Rounds regroup rows through files laid out by part (`write_dealt`,
`gather`), as Spark's sort shuffle does: one file for each item of a round, read in slices by the items of the next.

What a map found in its own rows alone does not depend on what else the corpus holds: it is named by the key of these
rows and of the settings, and `keeping` keeps it for the next run, which has little new. So that shards come into the
same groups again, where a group ends is for the shards' own names to say (`groups`).

An item that takes long tells how much of it is done (`datamask.shares`).

`here` calls the items one after another; `flows/` has a Mapper that makes them Prefect tasks on threads, Dask or Ray.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from datamask import npy, storage
from datamask.errors import one_line
from datamask.locks import locked
from datamask.stages import KEPT, ROUNDS, SCRATCH, ShardFiles

State = TypeVar("State")
Item = TypeVar("Item")
Result = TypeVar("Result")

GROUPS = 64  # of shards, at least, as far as the bounds allow
GROUP_ROWS = (1 << 13, 1 << 17)  # rows of a group of shards: enough to be worth a task, few enough to be held


class Mapper(Protocol):
    """Calls work(state, item) for every item, in any order, on any workers; the results in the items' order."""

    def __call__(
        self,
        work: Callable[[State, Item], Result],
        state: State,
        items: Sequence[Item],
        rows: Sequence[int] | None = None,
        rest: bool = False,
    ) -> list[Result]:
        """:param rows: what each item counts for in the stage's progress.
        :param rest: these items are all that is left of the stage.
        :raises: what an item raises for good.
        """
        ...


def here(
    work: Callable[[State, Item], Result],
    state: State,
    items: Sequence[Item],
    rows: Sequence[int] | None = None,
    rest: bool = False,
) -> list[Result]:
    """One item after another, in this thread."""
    return [work(state, item) for item in items]


class Threads:
    """A Mapper with threads of this process, for rounds that mostly wait or compress."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __call__(
        self,
        work: Callable[[State, Item], Result],
        state: State,
        items: Sequence[Item],
        rows: Sequence[int] | None = None,
        rest: bool = False,
    ) -> list[Result]:
        with ThreadPoolExecutor(self.threads, thread_name_prefix=getattr(work, "__name__", "map")) as pool:
            futures = [pool.submit(work, state, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
            pool.shutdown(cancel_futures=True)
        for future in futures:
            if not future.cancelled() and (error := future.exception()):
                raise error
        return [future.result() for future in futures]


def groups(all_files: Sequence[ShardFiles], bounds: tuple[int, int] = GROUP_ROWS) -> list[tuple[int, ...]]:
    """Places of consecutive shards that an item handles together, so that tiny shards do not mean as many files.

    Where a group ends follows from the last shard's name and rows, as often as makes groups of half the room (content-
    defined chunking, Muthitacharoen, Chen & Mazières, SOSP 2001), and where the room is full. So a new shard changes
    the group it comes into and hardly another; the room is a power of two, which a growing corpus seldom changes.

    :param bounds: rows of a group of several shards, at least (as far as there are as many) and at most.
    """
    total = sum(files.shard.rows or 0 for files in all_files)
    room = 1 << (min(max(total // GROUPS, bounds[0]), bounds[1]).bit_length() - 1)
    found: list[list[int]] = []
    held = room + 1  # of the last group; more than the room: it has ended
    for place, files in enumerate(all_files):
        rows = files.shard.rows or 0
        if held + rows > room:
            found.append([])
            held = 0
        found[-1].append(place)
        held += rows
        if zlib.crc32(files.shard.name.encode()) * room < 2 * max(rows, 1) << 32:
            held = room + 1
    return [tuple(group) for group in found]


def parts_of(total: int, most: int) -> int:
    """How many parts of at most about `most` rows: a power of two, which a growing corpus seldom changes."""
    return 1 << max(0, -(-total // most) - 1).bit_length()


@contextlib.contextmanager
def keeping(work: str, stage: str, key: str, names: Collection[str]) -> Iterator[str]:
    """The folder of what this stage's maps keep for the next run; at the block's end what is not among `names` goes.

    On a disk it goes when no run has asked for it for a day: another may be at it. `<key>.json` there says what this
    run kept, for `datamask clean`.

    :param key: of the stage over the whole corpus.
    """
    folder = storage.join(work, KEPT, stage)
    storage.touch_files(folder, names)
    yield folder
    storage.write_json(storage.join(folder, f"{key}.json"), sorted(names))
    storage.remove_others(folder, {*names, f"{key}.json"})


@contextlib.contextmanager
def rounds(work: str, stage: str, key: str) -> Iterator[str]:
    """The folder that the stage's rounds share; it goes when the block ends, and stays for another try if it fails.

    Another run may be at the same rounds, and writes the same files: on a disk the folder goes with the last of them.
    """
    name = f"{stage}-{key}"
    folder = storage.join(work, ROUNDS, name)
    if storage.is_remote(work):
        yield folder
        remove_folder(folder)
        return
    lock = Path(storage.filesystem(storage.join(work, SCRATCH))[1]) / f"{name}.lock"
    with storage.storage_errors(str(lock), "write"):
        lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, shared=True):
        yield folder
    with contextlib.suppress(BlockingIOError), locked(lock, wait=False):
        remove_folder(folder)
        lock.unlink(missing_ok=True)


def remove_folder(folder: str) -> None:
    """Removes a folder with all it holds, if it is there and nobody else removes it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        storage.remove(folder)


# ---------------------------------------------------------------- files between rounds


def write_arrays(url: str, **arrays: np.ndarray) -> None:
    """Publishes arrays by name."""
    with storage.publish(url, durable=False) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


@contextlib.contextmanager
def _whole_arrays(url: str) -> Iterator[None]:
    """What NumPy raises of a file that lost its end or its content, as a machine without power leaves it, is ours."""
    try:
        yield
    except (EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise storage.DamagedFileError(f"{url}: damaged ({one_line(error)}); remove it and run again") from error


def read_arrays(url: str, *names: str) -> list[np.ndarray]:
    """Some of `write_arrays`' arrays.

    :raises DamagedFileError: they are not all there.
    """
    if not names:
        return []
    with storage.open_input(url) as file, _whole_arrays(url):
        return list(npy.load_named(file, *names).values())


def write_array(url: str, array: np.ndarray) -> None:
    """Publishes one array, for `mapped`."""
    with storage.publish(url, durable=False) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_joined(url: str, parts: Iterable[np.ndarray], length: int) -> None:
    """Publishes arrays one after another as one, for `mapped`; one of them is held at a time.

    :param length: of all together.
    """
    parts = iter(parts)
    first = next(parts)
    header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False}
    with storage.publish(url, durable=False) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (length, *first.shape[1:])})
        for part in chain([first], parts):
            file.write(np.ascontiguousarray(part, first.dtype).view(np.uint8).data)


def mapped(url: str) -> np.ndarray:
    """`write_array`'s array: on a disk what is looked at is read, of an object store all of it."""
    with storage.storage_errors(url), _whole_arrays(url):
        if not storage.is_remote(url):
            return npy.load_array(storage.filesystem(url)[1], mapped=True)
        with storage.open_input(url) as file:
            return npy.load_array(io.BytesIO(file.read()))


@dataclass(frozen=True, eq=False)
class Handed:
    """Arrays that one round hands to the next: in a file, or, where there is no folder, as they are."""

    url: str = ""
    arrays: Mapping[str, np.ndarray] | None = None

    def read(self, *names: str) -> list[np.ndarray]:
        """The arrays of these names, in this order."""
        return read_arrays(self.url, *names) if self.arrays is None else [self.arrays[name] for name in names]

    def names(self) -> list[str]:
        """The names of all arrays."""
        if self.arrays is not None:
            return list(self.arrays)
        with storage.open_input(self.url) as file, _whole_arrays(self.url):
            return npy.array_names(file)


def hand_on(folder: str | None, name: str, **arrays: np.ndarray) -> Handed:
    """Hands arrays on, under a name that follows from what they are."""
    if folder is None:
        return Handed(arrays=arrays)
    url = storage.join(folder, f"{name}.npz")
    write_arrays(url, **arrays)
    return Handed(url)


def handed(folder: str | None, name: str) -> Handed | None:
    """What was handed on under this name by an earlier attempt."""
    if folder is None or not storage.exists(url := storage.join(folder, f"{name}.npz")):
        return None
    return Handed(url)


def partition_of(hashes: np.ndarray, partitions: int) -> np.ndarray:
    """(H,) int32: the range of so many that each hash is in, by its first 32 bits."""
    mixed = (hashes >> np.uint64(32)) * np.uint64(partitions)
    return (mixed >> np.uint64(32)).astype(np.int32)


def places_of(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """(n,) int64: where each of the values (n,) is among the ascending ones; −1: nowhere."""
    if not len(ascending):
        return np.full(len(values), -1)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[place] == values, place, -1)


def records_of(dtype: np.dtype, **columns: Any) -> np.ndarray:
    """Records (n,) of a structured type: these columns, (n,) each, and 0 in its others."""
    found = np.zeros(len(next(iter(columns.values()))), dtype)
    for name, values in columns.items():
        found[name] = values
    return found


def write_dealt(url: str, records: np.ndarray, part: np.ndarray, parts: int) -> None:
    """Publishes records (n,), of one structured type, laid out by their part (n,), within a part in their order."""
    part = np.asarray(part, np.int64)
    order = np.argsort(part.astype(np.min_scalar_type(parts)), kind="stable")  # numbers so small are sorted by radix
    deal_laid(url, records[order], np.append(0, np.cumsum(np.bincount(part, minlength=parts))))


def deal_laid(url: str, records: np.ndarray, bounds: np.ndarray) -> None:
    """As `write_dealt`, of records, (n, …) of one type, that lie by part already.

    :param bounds: (parts + 1,) int64, where each part begins and the last ends.
    """
    with storage.publish(url, durable=False) as temporary, temporary.open("wb") as file:
        file.write(np.int64(len(bounds) - 1).tobytes() + np.ascontiguousarray(bounds, np.int64).tobytes())
        file.write(np.ascontiguousarray(records).view(np.uint8).data)


def gather(urls: Sequence[str], dtype: Any, first: int, last: int | None = None) -> np.ndarray:
    """The records of a part, or of parts `first` to `last` − 1, of `write_dealt`'s files, in the files' order."""
    kind = np.dtype(dtype)
    found = [read_dealt(url, kind, first, first + 1 if last is None else last)[0] for url in urls]
    return np.concatenate(found) if found else np.zeros(0, kind)


def read_dealt(url: str, dtype: Any, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """(records of parts `first` to `last` − 1 of one file, where each of these parts begins and the last ends)."""
    kind = np.dtype(dtype)
    with storage.open_slices(url) as read:
        parts = int(np.frombuffer(_whole(read(0, 8), 8, url), np.int64)[0])
        if parts < last:  # zeros, for one, are no file without records
            raise storage.DamagedFileError(f"{url}: damaged; remove it and run again")
        bounds = np.frombuffer(_whole(read(8 * (1 + first), size := 8 * (last - first + 1)), size, url), np.int64)
        start, stop = int(bounds[0]), int(bounds[-1])
        if start == stop:
            return np.zeros(0, kind), bounds - start
        size = (stop - start) * kind.itemsize
        data = _whole(read(8 * (2 + parts) + start * kind.itemsize, size), size, url)
    return np.frombuffer(data, kind), bounds - start


def _whole(data: bytes, size: int, url: str) -> bytes:
    if len(data) != size:
        raise storage.DamagedFileError(f"{url}: cut short; remove it and run again")
    return data
