"""Pictures drawn by processes of their own, while the report is computed in this one.

vl-convert needs most of a second before its first picture and holds the interpreter's lock while it draws:

    with Drawing() as drawing:       # they start
        …                            # findings are computed
        drawing.begin(specifications)
        …                            # the page is written
        pictures = drawing.finish()
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any, Self

import vl_convert

from datamask.report.themes import PICTURE

OPTIONS: Mapping[str, Any] = {"scale": 2, "config": PICTURE, "allowed_base_urls": []}  # sharp, and no connection opened
PROCESSES = 2  # each starts while the findings are computed, on one core
_PROCESS = """
import base64, json, sys
from vl_convert import vegalite_to_png
vegalite_to_png(
    {"data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": {"x": {"field": "a", "type": "quantitative"}}}
)
asked = json.load(sys.stdin)
drawn = [vegalite_to_png(one, **asked["options"]) for one in asked["pictures"]]
print(json.dumps([base64.b64encode(one).decode() for one in drawn]))
"""


def png(specification: Mapping[str, Any]) -> bytes:
    """A PNG of the Vega-Lite specification, twice its nominal size so that it is sharp. Opens no network connection."""
    return vl_convert.vegalite_to_png(dict(specification), **OPTIONS)


class Drawing:
    """PROCESSES of them, each with every second picture, until the block is left."""

    def __enter__(self) -> Self:
        self._asked: Sequence[Mapping[str, Any]] = ()
        self._answers: list[bytes] = [b""] * PROCESSES
        self._threads: list[Thread] = []  # which ask, once there is something to draw
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _PROCESS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(PROCESSES)
        ]
        return self

    def begin(self, specifications: Sequence[Mapping[str, Any]]) -> None:
        """Has these drawn."""
        self._asked = specifications
        self._threads = [Thread(target=self._ask, args=(number,), daemon=True) for number in range(PROCESSES)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[bytes]:
        """The PNGs of what was asked for; drawn here if a process has failed."""
        for thread in self._threads:
            thread.join()
        if any(process.returncode != 0 for process in self._processes):
            return [png(one) for one in self._asked]
        drawn: list[bytes] = [b""] * len(self._asked)
        for number, answer in enumerate(self._answers):
            drawn[number::PROCESSES] = [base64.b64decode(one) for one in json.loads(answer)]
        return drawn

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        for thread in self._threads:
            thread.join()  # it closes the pipes
        for process in [] if self._threads else self._processes:
            process.communicate()

    def _ask(self, number: int) -> None:
        asked = json.dumps({"pictures": self._asked[number::PROCESSES], "options": OPTIONS})
        self._answers[number] = self._processes[number].communicate(asked.encode())[0]
