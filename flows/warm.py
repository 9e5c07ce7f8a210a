"""A run's start: a throw-away Prefect server and the libraries that stages need, side by side.

The server takes as long to start as the libraries to load, a process each. Prefect would begin one only when the flow
is called, load the server's code into this process to do so, and begin another in every worker of Dask and Ray. Ours is
the same server with the same database, begun at once, its address given to all.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path

from datamask.errors import MachineError, StorageError
from datamask.surroundings import writable
from flows.prefect_settings import api_url, load_prefect

FIRST = (
    "flows.curate", "datamask.corpus", "datamask.encoders.static", "datamask.quality.prepare", "datamask.quality.score",
    "datamask.filter.signatures",
    "prefect.utilities.visualization", "prefect.flow_engine", "prefect.task_engine", "fastapi.encoders",
)  # fmt: skip  # what the first stages need, and what Prefect would load when a flow is called
REST = (
    "torch", "sklearn.manifold", "datamask.encoders.encode", "datamask.selection.cover.counting",
    "datamask.filter.duplicates", "datamask.selection.sharded.joint", "datamask.selection.solvers.relaxation",
    "datamask.release.staging", "datamask.report.report",
)  # fmt: skip
KNOWN = "is another program's database at PREFECT_HOME, or its disk full? `prefect server start` says more"
POLL = 0.05  # seconds between questions whether the server answers
STARTING = 180.0  # seconds until it answers, on a machine that is busy with other work
STOPPING = 5.0  # seconds it is given to write what it was told


class Rest:
    """The libraries of the later stages, loaded in a thread of their own while the first stages work."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def _load(self) -> None:
        with contextlib.suppress(Exception):  # who needs the module meets the error, where it can be told
            for name in REST:
                import_module(name)

    def wait(self) -> None:
        """Returns when all of them are loaded, or could not be."""
        self._thread.join()


REST_OF_THIS_RUN: ContextVar[Rest | None] = ContextVar("REST_OF_THIS_RUN", default=None)


def loaded() -> None:
    """Waits until all libraries are there. No two threads load at once: packages whose modules import each other in a
    circle may be met half loaded then."""
    if rest := REST_OF_THIS_RUN.get():
        rest.wait()


@contextlib.contextmanager
def warmed_up(server: Server | None) -> Iterator[None]:
    """Loads what the first stages need; inside, runs are told to the server that is set, or else to `server`, which
    answers by then, and the rest is being loaded: see `loaded`.

    :raises StorageError: the server does not answer.
    """
    with no_garbage():
        load_prefect()
        from datamask.quality import batch_words as words

        for name in FIRST:
            import_module(name)
        words.tables()  # of Unicode
        from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        token = REST_OF_THIS_RUN.set(Rest())
        if server and PREFECT_API_URL.value():  # by a profile
            server.end()
            server = None
        if server:
            server.wait()
    try:
        if server is None:
            yield
            return
        # nobody at this server listens for heartbeats, and a flow's end would wait a second for them
        with temporary_settings({PREFECT_API_URL: server.url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
    finally:
        REST_OF_THIS_RUN.reset(token)


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Inside, modules are loaded, which stay: looking for garbage among them takes a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Server:
    """Prefect's server as a process of its own, until this process ends."""

    def __init__(self) -> None:
        home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
        if not writable(home):
            raise MachineError(f"PREFECT_HOME={home} cannot be written; set it to a folder that can")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/api"
        own = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
        # half a second and more, for blocks that no run of ours has: they need not be compared with the last start's
        own["PREFECT_API_BLOCKS_REGISTER_ON_START"] = own["PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION"] = "false"
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  # what it says of its end; as long as it lives
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("throwaway.py")), str(self.port)],
            env={**os.environ, **own},  # profiles it reads itself
            start_new_session=True,  # Ctrl-C is for this process, which tells the server how its run ended
            stdin=subprocess.PIPE,  # never written to; it closes when this process is gone
            stderr=self._words,
        )
        atexit.register(self.end)  # before Prefect's threads register, so after they have told the last event

    _of_this_process: Server | None = None

    @classmethod
    def begin(cls) -> Server | None:
        """This process's server, begun if it does not run yet; None: another is set.

        Loads nothing of Prefect where that has not been loaded yet.
        """
        if api_url():
            return None
        if "prefect" in sys.modules:
            from prefect.settings import PREFECT_API_URL

            if PREFECT_API_URL.value():
                return None
        if cls._of_this_process is None or cls._of_this_process.process.poll() is not None:
            cls._of_this_process = cls()
        return cls._of_this_process

    def wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + STARTING
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:  # it listens once it has started
                    return
            time.sleep(POLL)
        ended = self.process.poll()
        self.end()
        why = f"it did not answer for {STARTING:.0f} s" if ended is None else f"it ended with status {ended}"
        raise StorageError(f"Prefect's throw-away server did not start: {why}{self._last_words()}; {KNOWN}")

    def _last_words(self) -> str:
        """The last line that the server wrote, in brackets."""
        self._words.seek(0)
        lines = [line for line in self._words.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f" ({lines[-1].strip()[:200]})" if lines else ""

    def end(self) -> None:
        """Stops the server; it is killed if it takes longer than `STOPPING` seconds."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOPPING)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
