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
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from datamask.errors import MachineError, StorageError
from datamask.libraries import loading, no_garbage
from datamask.surroundings import writable
from flows.prefect_settings import api_url, load_prefect

# what Prefect would load when a flow is called
OF_PREFECT = ("prefect.utilities.visualization", "prefect.flow_engine", "prefect.task_engine", "fastapi.encoders")
KNOWN = "is another program's database at PREFECT_HOME, or its disk full? `prefect server start` says more"
POLL = 0.05  # seconds between questions whether the server answers
STARTING = 180.0  # seconds until it answers, on a machine that is busy with other work
STOPPING = 5.0  # seconds it is given to write what it was told


@contextlib.contextmanager
def warmed_up(server: Server | None) -> Iterator[None]:
    """Loads what the first stages need; inside, runs are told to the server that is set, or else to `server`, which
    answers by then, and the rest is being loaded: see `loaded`.

    :raises StorageError: the server does not answer.
    """
    with no_garbage():
        load_prefect()
        for name in ("flows.curate", *OF_PREFECT):
            import_module(name)
        from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with loading():
        if server and PREFECT_API_URL.value():  # by a profile
            server.end()
            server = None
        if server is None:
            yield
            return
        server.wait()
        # nobody at this server listens for heartbeats, and a flow's end would wait a second for them
        with temporary_settings({PREFECT_API_URL: server.url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield


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
