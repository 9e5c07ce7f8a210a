"""A run's start: a throw-away Prefect server and the libraries that stages need, side by side.

The server takes as long to start as the libraries to load, a process each. Prefect would begin one only when the flow
is called, load the server's code into this process to do so, and begin another in every worker of Dask and Ray. Ours is
the same server with the same database, begun at once, its address given to all.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from datamask.errors import StorageError

LIBRARIES = (
    "flows.curate", "torch", "sklearn.manifold", "datamask.report.report", "datamask.encoders.static",
    "datamask.encoders.encode", "datamask.quality.prepare", "datamask.quality.score", "datamask.release.staging",
    "datamask.selection.sharded.joint", "datamask.selection.solvers.relaxation", "datamask.filter.duplicates",
)  # fmt: skip
POLL = 0.05  # seconds between questions whether the server answers
STARTING = 180.0  # seconds until it answers, on a machine that is busy with other work
STOPPING = 5.0  # seconds it is given to write what it was told


@contextlib.contextmanager
def warmed_up(server: Server | None) -> Iterator[None]:
    """Loads LIBRARIES; inside, runs are told to the server that is set, or else to `server`, which answers by then.

    :raises StorageError: it does not.
    """
    from datamask.quality import words

    for name in LIBRARIES:
        import_module(name)
    words.tables()  # of Unicode: most of a second that the first shard would wait for
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    if server and PREFECT_API_URL.value():  # by a profile
        server.end()
    if server is None or PREFECT_API_URL.value():
        yield
        return
    server.wait()
    # nobody at this server listens for heartbeats, and a flow's end would wait a second for them
    with temporary_settings({PREFECT_API_URL: server.url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


class Server:
    """Prefect's server as a process of its own, until this process ends."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/api"
        own = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
        own["PREFECT_API_BLOCKS_REGISTER_ON_START"] = "false"  # half a second, for blocks that no run of ours has
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("throwaway.py")), str(self.port)],
            env={**os.environ, **own},  # profiles it reads itself
            start_new_session=True,  # Ctrl-C is for this process, which tells the server how its run ended
            stdin=subprocess.PIPE,  # never written to; it closes when this process is gone
        )
        atexit.register(self.end)  # before Prefect's threads register, so after they have told the last event

    @classmethod
    def begin(cls) -> Server | None:
        """A server on its way, or None: another is set. Loads nothing of Prefect where that has not been loaded yet."""
        if os.environ.get("PREFECT_API_URL"):
            return None
        if "prefect" in sys.modules:
            from prefect.settings import PREFECT_API_URL

            if PREFECT_API_URL.value():
                return None
        return cls()

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
        raise StorageError(
            f"Prefect's throw-away server did not start: {why}; `prefect server start` says what is wrong; "
            "is another program's database at PREFECT_HOME, or its disk full?"
        )

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOPPING)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
