"""What a machine reads on stderr: a line of JSON for each line of the log, and for the error a command ends with.

    {"time": "…", "level": "error", "message": "…", "status": 2, "setting": "select.lamb", "valid": [], "next": […]}

The fields of an error are those that it was raised with; its message says the same, and all else, in words.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TextIO


def error_record(message: str, status: int, fields: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """What a failed command says, as fields; those that its error was raised without are null or empty.

    :param fields: that the error was raised with.
    """
    known = {"setting": None, "path": None, "valid": [], "next": [], **fields}
    return record("error", message.removeprefix("datamask: "), status=status, **known)


def record(level: str, message: str, **facts: Any) -> dict[str, Any]:
    """A line of the log: time, level, message, and what a machine reads instead of the message."""
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "message": message, **facts}


class JsonLines(io.TextIOBase):
    """A stream whose lines of prose are written to another as records; whole records pass as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Lines are written as they end."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in filter(str.strip, lines):
                self._stream.write(f"{line}\n" if line.startswith('{"time": "') else as_line(line))
            return len(text)

    def flush(self) -> None:
        """What has been written is on its way."""
        self._stream.flush()

    def fileno(self) -> int:
        """Of the stream beneath."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream beneath."""
        return self._stream.encoding


def as_line(prose: str) -> str:
    """A line of prose as a record that ends in a line feed."""
    said = prose.strip().removeprefix("datamask: ")
    return dumped(record("warning" if "warning" in said[:80].lower() else "info", said)) + "\n"


def dumped(found: dict[str, Any]) -> str:
    """A record as a line of ASCII, which no terminal or log takes amiss."""
    return json.dumps(found, default=str)


def asked_for(arguments: Sequence[str]) -> tuple[bool, bool]:
    """Whether the command line asks for errors as JSON, and for every line so."""
    log = "--log-format=json" in arguments or ("--log-format", "json") in pairwise(arguments)
    return log or "--json" in arguments, log
