"""The process that places documents on the map and draws pictures, beside the one that computes the report.

with Drawing() as drawing:       # it starts
    place = drawing.place(features, seed)
    drawing.begin(specifications)
    …                            # the page is written
    pictures = drawing.finish()
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from datamask.report import drawer
from datamask.report.charts import PICTURE

OPTIONS: Mapping[str, Any] = {"scale": 2, "config": PICTURE, "allowed_base_urls": []}  # sharp, and no connection opened
_PROCESS = ("-P", drawer.__file__)


def draw_png(specification: Mapping[str, Any]) -> bytes:
    """A PNG of the Vega-Lite specification, twice its nominal size so that it is sharp. Opens no network connection."""
    return drawer.draw_picture(specification, OPTIONS)


class Drawing:
    """The processes, until the block is left; what they cannot do, because they have failed, is done here."""

    def __init__(self) -> None:
        self._placing, self._drawing = _Process("place_documents"), _Process("draw_picture")
        self._pictures: list[Future[bytes]] = []

    def place(self, features: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
        return self._placing.submit(features, seed).result()

    @property
    def begun(self) -> int:
        return len(self._pictures)

    def begin(self, specifications: Sequence[Mapping[str, Any]]) -> None:
        self._pictures += [self._drawing.submit(one, OPTIONS) for one in specifications]

    def finish(self) -> list[bytes]:
        return [picture.result() for picture in self._pictures]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._placing.finish()
        self._drawing.finish()


class _Process:
    """Calls one function of `drawer`, one call after another."""

    def __init__(self, name: str) -> None:
        self._name, self._ended = name, False
        self._asking = ThreadPoolExecutor(1, thread_name_prefix=name)
        command = [sys.executable, *_PROCESS, name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def submit(self, *arguments: Any) -> Future[Any]:
        return self._asking.submit(self._answer, arguments)

    def finish(self) -> None:
        self._ended = True
        self.process.kill()
        self._asking.shutdown(cancel_futures=True)
        with suppress(OSError):  # what it was asked was not read
            self.process.communicate()  # closes the pipes

    def _answer(self, arguments: tuple[Any, ...]) -> Any:
        try:
            pickle.dump(arguments, self.process.stdin)  # type: ignore[arg-type]  # a pipe
            self.process.stdin.flush()  # type: ignore[union-attr]
            return pickle.load(self.process.stdout)  # type: ignore[arg-type]
        except (OSError, EOFError, pickle.UnpicklingError):
            if self._ended:
                raise
        return getattr(drawer, self._name)(*arguments)
