"""Libraries that take seconds to load, loaded while the first stages work."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from importlib import import_module

FIRST = (
    "datamask.run", "datamask.encoders.choose", "datamask.encoders.embed", "datamask.quality.prepare",
    "datamask.quality.score", "datamask.filter.signatures",
)  # fmt: skip  # what the first stages need
REST = (
    "torch", "datamask.encoders.encode", "datamask.selection.cover.counting",
    "datamask.filter.duplicates", "datamask.selection.stage",
    "datamask.selection.solvers.relaxation", "datamask.prices", "datamask.release.staging", "jinja2", "jsonschema",
)  # fmt: skip
DRAWING = ("pyarrow.acero", "datamask.report.report", "datamask.report.page")  # a report that is new


class Rest:
    """The libraries of the later stages, loaded in threads one after another while the first stages work."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.load(REST)

    def load(self, names: Sequence[str]) -> None:
        """Loads these modules too."""
        thread = threading.Thread(target=self._load, args=(names, self._threads[-1:]), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _load(self, names: Sequence[str], before: Sequence[threading.Thread]) -> None:
        for thread in before:
            thread.join()
        with no_garbage(), contextlib.suppress(Exception):  # who needs the module meets the error, and can tell it
            for name in names:
                import_module(name)

    def wait(self) -> None:
        """Returns when all of them are loaded, or could not be."""
        self._threads[-1].join()


REST_OF_THIS_RUN: ContextVar[Rest | None] = ContextVar("REST_OF_THIS_RUN", default=None)


def loaded() -> None:
    """Waits until all libraries are there. No two threads load at once: packages whose modules import each other in a
    circle may be met half loaded then."""
    if rest := REST_OF_THIS_RUN.get():
        rest.wait()


def load_drawing() -> None:
    """Loads what a new report needs, too. A run that finds everything done needs none of it, a third of its start."""
    if rest := REST_OF_THIS_RUN.get():
        rest.load(DRAWING)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Loads what the first stages need; inside, the rest is being loaded: see `loaded`."""
    with no_garbage():
        for name in FIRST:
            import_module(name)
        import_module("datamask.text.word_tables").tables()  # of Unicode
    token = REST_OF_THIS_RUN.set(Rest())
    try:
        yield
    finally:
        REST_OF_THIS_RUN.reset(token)
        gc.unfreeze()


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Inside, modules are loaded, which stay, or sources parsed, which hold no circles: looking for garbage among them
    takes a tenth of the time, or a third, and of the time after as well."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()
