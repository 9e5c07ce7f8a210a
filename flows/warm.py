"""A run's start: Prefect's throw-away server and the libraries that stages need, side by side.

The server takes as long to start as the libraries to load, a process each, and Prefect would begin it only when the
flow is called, and wait; loaded later, the libraries would hold up the first stage that needs them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from importlib import import_module

LIBRARIES = ("flows.curate", "torch", "sentence_transformers", "sklearn.manifold", "datamask.report.report")


def warm_up() -> None:
    """Starts the server, if no other is set, loads LIBRARIES meanwhile, and returns when the server answers.

    What fails here is left to Prefect, which starts the server itself and says what is wrong.
    """
    server = None if os.environ.get("PREFECT_API_URL") else _begin_server()
    for name in LIBRARIES:
        import_module(name)
    if server:
        server.join()


def _begin_server() -> threading.Thread | None:
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, PREFECT_TEST_MODE

    if PREFECT_API_URL.value() or PREFECT_TEST_MODE.value() or not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return None
    server = SubprocessASGIServer()  # the one that Prefect's client asks for
    if server.running:
        return None

    def start() -> None:
        with contextlib.suppress(Exception):  # Prefect tries again, and tells
            server.start()

    thread = threading.Thread(target=start, name="server", daemon=True)
    thread.start()
    return thread
