"""What several packages' tests share."""

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.object_store import Store, clear_clients, running

# how busy the machine is fails no test: neither one example's time, nor that of making it
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background by a shell: the tests' own processes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # would inherit that, and could not be interrupted


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    """One throw-away Prefect server for all flow tests, with the heartbeat off (it costs a second a flow)."""
    import os

    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=90), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    """A real S3 server on loopback, one for the tests of a module."""
    with running() as store:
        yield store


@pytest.fixture
def store(s3: Store) -> Iterator[Store]:
    """The module's S3 server with no request counted and no fault planned."""
    s3.requests.clear()
    clear_clients()
    yield s3
    s3.fault = lambda number, method, path: None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first; those that need a Prefect server come last, the longest of them before the others."""
    last = {"end_to_end": 1, "flows": 2}
    items.sort(key=lambda item: last.get(item.path.parent.name, 0))
