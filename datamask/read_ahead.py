"""What is read next is made in threads while the last is used, in bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
HELD = 4  # items made ahead of each of several sources
_END: Any = object()


def one_ahead(items: Iterable[T]) -> Iterator[T]:
    """`items`, the next one made in another thread while the last is used: at most two are held."""
    with ExitStack() as stack:
        yield from read_ahead([lambda: items], 1, stack, held=1)


def read_ahead(
    sources: Sequence[Callable[[], Iterable[T]]], readers: int, stack: ExitStack, held: int = HELD
) -> Iterator[T]:
    """The items of all sources in order; the next `readers` sources are read in threads, `held` items ahead each.

    :param stack: its end stops the threads, consumed or not.
    """
    begun: list[_Reader[T]] = []
    waiting: list[tuple[_Reader[T], Future[None]]] = []
    pool = stack.enter_context(ThreadPoolExecutor(readers, thread_name_prefix="datamask-ahead"))
    remaining = iter(sources)

    def stop() -> None:
        for source in begun:
            source.stop()

    stack.callback(stop)  # before the pool waits for its threads

    def start() -> None:
        if (make := next(remaining, None)) is not None:
            source = _Reader(make, held)
            begun.append(source)
            waiting.append((source, pool.submit(copy_context().run, source.run)))

    for _ in range(readers):
        start()
    while waiting:
        source, future = waiting.pop(0)
        while (item := source.items.get()) is not _END:
            source.room.release()
            yield item
        future.result()
        begun.remove(source)
        start()


class _Reader(Generic[T]):
    """One source, made by a thread as far as there is room."""

    def __init__(self, make: Callable[[], Iterable[T]], held: int) -> None:
        self.make = make
        self.items: SimpleQueue[T] = SimpleQueue()
        self.room = threading.Semaphore(held)
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            iterator = iter(self.make())
            while self.room.acquire() and not self.stopped.is_set():
                if (item := next(iterator, _END)) is _END:
                    return
                self.items.put(item)
        finally:
            self.items.put(_END)

    def stop(self) -> None:
        self.stopped.set()
        self.room.release()
