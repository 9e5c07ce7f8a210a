"""Ctrl-C from a command's first moment to its last: one line at once, one exit status, no traceback.

While modules are loaded, nothing has begun, and the process ends on the spot. Once the command runs, the first Ctrl-C
raises KeyboardInterrupt, so that what is being written ends, and a second one ends the process. Imports nothing that
takes time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

AGAIN = 0.02  # seconds until one that was lost is repeated
ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # `kill`, and a terminal or a connection that closes
STATUS = 128 + signal.SIGINT
CONTINUES = "the same command continues from here"
NOT_BEGUN = "datamask: interrupted before anything was begun"
STOPPING = "datamask: stopping; what is done is kept"
STOPPED = f"datamask: stopped; {CONTINUES}"


class Interrupts:
    """The process's handler of SIGINT, and how often it was called."""

    def __init__(self) -> None:
        self.count = 0
        self.running = False  # False: modules are being loaded
        self.stopping = STOPPING  # what the first one is answered
        self.written: Callable[[str], str] = "{}\n".format  # how the answer is written
        self._again = False  # the next one repeats one that was lost

    def install(self) -> None:
        """From now on Ctrl-C is answered here, unless somebody else sees to it, or this is not the main thread."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, self._handle)
            except ValueError:  # not the main thread
                return

    def begin(self) -> None:
        """The command runs from now on."""
        self.count, self.running = 0, True
        self.install()
        if sys.unraisablehook is sys.__unraisablehook__:
            sys.unraisablehook = self._unraisable

    @contextlib.contextmanager
    def saying(self, line: str) -> Iterator[None]:
        """Inside, the first Ctrl-C is answered with this line, and what else ends a process with that of the end."""
        before, self.stopping = self.stopping, line
        main = threading.current_thread() is threading.main_thread()
        ours = [number for number in ENDINGS if main and signal.getsignal(number) is signal.SIG_DFL]
        try:
            for number in ours:
                signal.signal(number, self._terminate)
            yield
        finally:
            self.stopping = before
            for number in ours:
                signal.signal(number, signal.SIG_DFL)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """As without a handler, but for the line."""
        with contextlib.suppress(OSError):  # the terminal is gone
            os.write(2, self.written(STOPPED).encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _unraisable(self, ignored: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised in a destructor or a callback of the garbage collector: a Ctrl-C is repeated
        until it meets another place, and what else was torn by it is no news."""
        if not self.count:
            sys.__unraisablehook__(ignored)
        elif isinstance(ignored.exc_value, KeyboardInterrupt):
            self._again = True
            threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT)).start()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._again:
            self._again = False
            raise KeyboardInterrupt
        self.count += 1
        if not self.running:
            _leave(self.written(NOT_BEGUN))
        if self.count > 1:
            _leave(self.written(STOPPED))
        os.write(2, self.written(self.stopping).encode())
        raise KeyboardInterrupt


def _leave(line: str) -> None:
    os.write(2, line.encode())
    os._exit(STATUS)


INTERRUPTS = Interrupts()
