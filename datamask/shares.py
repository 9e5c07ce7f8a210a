"""How much of a long piece of work is done, told from inside it to whoever runs it, who need not be there.

with hear_shares(show):             # whoever runs it: show(share) is called with a share that grows from 0 to 1
    solve()

def solve():                        # the work itself, in parts of the share of the time that they usually take
    with share_part(0.0, 0.3):
        calibrate()
    with share_part(0.3, 1.0):
        for step in range(steps):
            ...
            tell_share((step + 1) / steps)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class _Listener:
    show: Callable[[float], None]
    each: Callable[[], None]
    share: float = 0.0  # shown so far


_PART: ContextVar[tuple[_Listener | None, float, float]] = ContextVar("_PART", default=(None, 0.0, 1.0))


@contextlib.contextmanager
def hear_shares(show: Callable[[float], None], each: Callable[[], None] = lambda: None) -> Iterator[None]:
    """What the block's work tells goes to `show`. each: called at each step that tells, and may end the work."""
    token = _PART.set((_Listener(show, each), 0.0, 1.0))
    try:
        yield
    finally:
        _PART.reset(token)


@contextlib.contextmanager
def share_part(first: float, last: float) -> Iterator[None]:
    """The block is from share `first` to share `last` of the work around it, and done when it ends."""
    listener, begin, end = _PART.get()
    token = _PART.set((listener, begin + first * (end - begin), begin + last * (end - begin)))
    try:
        yield
        tell_share(1.0)
    finally:
        _PART.reset(token)


def tell_share(share: float) -> None:
    """So much of the work, or of the part of it that goes on, is done; less than was told before is not heard."""
    listener, begin, end = _PART.get()
    if listener is None:
        return
    listener.each()
    reached = begin + min(max(share, 0.0), 1.0) * (end - begin)
    if reached > listener.share:
        listener.share = reached
        listener.show(reached)
