"""Several sources read at the same time and consumed one after the other, in bounded memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

Item = TypeVar("Item")
HELD = 4  # items read ahead of each source


class _Stopped(Exception):
    """The consumer has gone."""


def read_ahead(sources: Sequence[Callable[[], Iterable[Item]]], readers: int, stack: ExitStack) -> Iterator[Item]:
    """The items of all sources in order; the next `readers` sources are read in threads, HELD items ahead each.

    :param stack: its end stops the threads, consumed or not.
    """
    stopped = threading.Event()
    pool = stack.enter_context(ThreadPoolExecutor(readers, thread_name_prefix="read"))
    stack.callback(stopped.set)  # before the pool waits for its threads
    waiting: list[tuple[queue.Queue[Item | None], Future[None]]] = []
    remaining = iter(sources)

    def start() -> None:
        if (source := next(remaining, None)) is not None:
            items: queue.Queue[Item | None] = queue.Queue(HELD)
            waiting.append((items, pool.submit(_fill, source, items, stopped)))

    for _ in range(readers):
        start()
    while waiting:
        items, future = waiting.pop(0)
        while (item := items.get()) is not None:
            yield item
        future.result()
        start()


def _fill(source: Callable[[], Iterable[Item]], items: queue.Queue[Item | None], stopped: threading.Event) -> None:
    def put(item: Item | None) -> None:
        while not stopped.is_set():
            try:
                return items.put(item, timeout=0.2)
            except queue.Full:
                continue
        raise _Stopped

    try:
        for item in source():
            put(item)
    finally:
        if not stopped.is_set():
            put(None)
