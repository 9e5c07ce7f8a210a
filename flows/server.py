"""What is told of a Prefect server that cannot be reached, refuses, or goes away while a run is at it."""

from __future__ import annotations

import os

from datamask.errors import DatamaskError, ServerGoneError, StorageError, causes, one_line
from datamask.interrupts import CONTINUES
from flows.prefect_settings import URL, api_url

STARTS = "make server starts one; without {} a run has one of its own"
LIBRARIES = ("httpx", "httpcore", "websockets")


def trouble(error: BaseException) -> StorageError | None:
    """The message for an error that Prefect's client made of trouble with its server; None: it has another cause."""
    if isinstance(error, DatamaskError):
        return None
    url, place = api_url() or ("", "")
    given = "" if os.environ.get(URL) else f" ({URL} of {place})"
    server = f"the Prefect server at {url}{given}" if url else "Prefect's throw-away server"
    for cause in causes(error):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if status in (401, 403):
            return StorageError(f"{server} refused ({status}); set PREFECT_API_AUTH_STRING to its password")
        if status is not None and _of_a_client(cause):
            what = "failed" if status >= 500 else "is of another version, or is none"
            return StorageError(f"{server} {what} ({one_line(cause)}); see docs/operations.md, For a team")
        answered = getattr(cause.__cause__, "response", None) is not None
        if str(cause).startswith("Failed to reach API") and not answered:  # Prefect's, where a flow run begins
            return StorageError(f"{server} does not answer; {STARTS.format(URL) if url else CONTINUES}")
        if "ephemeral Prefect API server" in str(cause):
            home = os.environ.get("PREFECT_HOME", "~/.prefect")
            return StorageError(f"{server} did not start; look at {home}, or start one: make server")
        if _of_a_client(cause) or _not_connected(cause):
            return ServerGoneError(f"{server} does not answer any more ({one_line(cause)}); {CONTINUES}")
    return None


def by_the_server(error: BaseException | None) -> bool:
    """Whether a request to the Prefect server is what failed: the client has tried again for as long as it may."""
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    return bool(url) and any(_asked(cause).startswith(str(url)) for cause in causes(error))


def stop_trying() -> None:
    """From now on in this context, which is the run's, no request is sent again: there is nobody to tell its end to."""
    from prefect.context import SettingsContext
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES

    if now := SettingsContext.get():
        settings = now.settings.copy_with_update({PREFECT_CLIENT_MAX_RETRIES: 0})
        SettingsContext(profile=now.profile, settings=settings).__enter__()


def _asked(error: BaseException) -> str:
    """The address that a request of httpx went to; empty for other errors."""
    try:
        return str(error.request.url) if _of_a_client(error) else ""  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # it carries none
        return ""


def _of_a_client(error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] in LIBRARIES for kind in type(error).__mro__)


def _not_connected(error: BaseException) -> bool:
    """asyncio's and the system's, of a connection to another address of this machine."""
    return isinstance(error, ConnectionRefusedError) or (
        isinstance(error, OSError) and "Connect call failed" in str(error)
    )
