"""No command is mute: while nothing else is said, one line says what is being done and for how long.

    SILENCE.begin("plan: time a sample of each stage")     # by the command line alone
    SILENCE.doing("curate: Prefect's server and the libraries are starting")

On a terminal the line is renewed and goes away as soon as something else is written; in a log it stands, first after
`FIRST` seconds and then every `EACH`. It goes to stderr.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

FIRST = 1.2  # seconds without a word before the first line
EACH = 15.0  # seconds between lines of a log
RENEWED = 0.5  # seconds between two states of the line on a terminal
CLEAR = "\r\x1b[2K"


class Silence:
    """Watches both streams of this process from a thread of its own."""

    def __init__(self) -> None:
        self._what = ""
        self._began = self._heard = 0.0  # by time.monotonic()
        self._shown = False  # whether the line stands on the terminal
        self._lock = threading.RLock()
        self._write: Any = None  # of stderr, before it was listened to
        self._ended = threading.Event()

    def begin(self, what: str) -> None:
        """From now on."""
        self._began = self._heard = time.monotonic()
        self._what = what
        if self._write is not None:
            return
        self._write = sys.stderr.write
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError):  # a stream that takes no attribute: it is not listened to
                stream.write = self._listening(stream.write)  # type: ignore[method-assign]
        threading.Thread(target=self._watch, daemon=True).start()

    def doing(self, what: str) -> None:
        """What is done from now on; nothing where the command line did not begin."""
        self._what = what

    def end(self) -> None:
        """The command is over; its last words follow."""
        with self._lock:
            self._ended.set()
            self._clear()

    def _listening(self, write: Any) -> Any:
        def heard(text: str) -> Any:
            with self._lock:
                self._heard = time.monotonic()
                self._clear()
                return write(text)

        return heard

    def _clear(self) -> None:
        if self._shown:
            self._shown = False
            with contextlib.suppress(OSError, ValueError):
                self._write(CLEAR)

    def _watch(self) -> None:
        terminal = sys.stderr.isatty()
        wait = FIRST
        while not self._ended.wait(RENEWED if terminal else 0.1):
            with self._lock, contextlib.suppress(OSError, ValueError):
                now = time.monotonic()
                if self._ended.is_set() or now - self._heard < wait:
                    continue
                line = f"datamask {self._what} … {now - self._began:.0f} s"
                self._write(f"{CLEAR}{line}" if terminal else f"{line}\n")
                sys.stderr.flush()
                self._shown = terminal
                if not terminal:
                    self._heard, wait = now, EACH


SILENCE = Silence()
