"""A long measurement in pieces: each piece's result is a line of a file, and the next call goes on after them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

Piece = dict[str, Any]


class Pieces:
    """What is done, in order, in a file of JSON lines; without a file in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.done: list[Piece] = []
        if path and path.exists():
            self.done = [json.loads(line) for line in path.read_text().splitlines()]

    def run(self, names: Iterator[Any], work: Callable[[Any], Piece], seconds: float) -> bool:
        """Works off the names that are not done yet; False if `seconds` were over before the last one."""
        ends = monotonic() + seconds
        known = {json.dumps(piece["name"]) for piece in self.done}
        for name in names:
            if json.dumps(name) in known:
                continue
            if monotonic() > ends:
                return False
            self.done.append({"name": name, **work(name)})
            if self.path:
                with self.path.open("a") as file:
                    file.write(json.dumps(self.done[-1]) + "\n")
        return True
