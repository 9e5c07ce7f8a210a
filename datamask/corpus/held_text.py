"""Text that a run has decoded, held in this process for the stages that read it again.

    with holding(HeldText.for_this_machine()):
        for batch in read_batches(shard, config, ["text"]): ...      # from the file
        for batch in read_batches(shard, config, ["text"]): ...      # from memory

What has come in stays until the run ends: a corpus that is larger than the room is read in the same order again and
again, of which a cache that lets the oldest go would hold nothing. So a corpus of a few hundred megabytes is decoded
once, and a large one by each stage that reads it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator
from contextvars import ContextVar

import psutil
import pyarrow as pa

ROOM = 512 << 20  # bytes of text
SHARE = 16  # of the machine's memory that is free, so that a small machine holds less


class HeldText:
    """Columns of text by row group, as far as there is room."""

    def __init__(self, room: int) -> None:
        """:param room: bytes."""
        self._room = room
        self._held: dict[Hashable, pa.Array | None] = {}  # None: too large
        self._decoding: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @classmethod
    def for_this_machine(cls) -> HeldText:
        return cls(min(ROOM, psutil.virtual_memory().available // SHARE))

    def column(self, name: Hashable, size: int, parts: Iterator[pa.Array]) -> pa.Array | None:
        """The column of this name, decoded by the first that asks for it; None: there is no room for it.

        :param size: bytes that it takes at least.
        :param parts: the column in order; decoded as they are asked for.
        """
        with self._lock:
            if name in self._held or size > self._room:
                return self._held.get(name)
            decoding = self._decoding.setdefault(name, threading.Lock())
        with decoding:
            if name not in self._held:
                found = self._within_room(parts)
                with self._lock:
                    self._held[name] = found
                    self._room -= found.nbytes if found else 0
        return self._held[name]

    def _within_room(self, parts: Iterator[pa.Array]) -> pa.Array | None:
        """The parts as one array; None: what a dictionary or repetition packs is larger than the room."""
        found: list[pa.Array] = []
        taken = 0
        for part in parts:
            found.append(part)
            taken += part.nbytes
            if taken > self._room:
                return None
        return pa.concat_arrays(found)


HELD_TEXT: ContextVar[HeldText | None] = ContextVar("HELD_TEXT", default=None)


@contextlib.contextmanager
def holding(text: HeldText | None) -> Iterator[None]:
    token = HELD_TEXT.set(text)
    try:
        yield
    finally:
        HELD_TEXT.reset(token)
