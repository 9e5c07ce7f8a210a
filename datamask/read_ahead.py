"""One item ahead: the next is made in a thread while the last is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """`items`, the next one made in another thread while the last is used: at most two are held."""
    iterator = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(1, thread_name_prefix="datamask-ahead") as pool:
        following = pool.submit(next, iterator, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, iterator, end)
            yield item
