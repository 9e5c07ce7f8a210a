"""Pictures drawn by a process of its own, while the report is computed in this one.

vl-convert needs most of a second before its first picture and holds the interpreter's lock while it draws:

    with Drawing() as drawing:       # it starts
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


def draw_png(specification: Mapping[str, Any]) -> bytes:
    """A PNG of the Vega-Lite specification, twice its nominal size so that it is sharp. Opens no network connection."""
    return vl_convert.vegalite_to_png(dict(specification), **OPTIONS)


class Drawing:
    """The process, until the block is left."""

    _thread: Thread | None = None  # which asks, once there is something to draw

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    def begin(self, specifications: Sequence[Mapping[str, Any]]) -> None:
        """Has these drawn."""
        self._asked, self._answer = specifications, b""
        self._thread = Thread(target=self._ask, daemon=True)
        self._thread.start()

    def finish(self) -> list[bytes]:
        """The PNGs of what was asked for; drawn here if the process has failed."""
        if self._thread:
            self._thread.join()
        if self._process.returncode == 0:
            return [base64.b64decode(one) for one in json.loads(self._answer)]
        return [draw_png(one) for one in self._asked]

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            if self._thread:
                self._thread.join()  # it closes the pipes
            else:
                self._process.communicate()

    def _ask(self) -> None:
        asked = json.dumps({"pictures": self._asked, "options": OPTIONS})
        self._answer = self._process.communicate(asked.encode())[0]
