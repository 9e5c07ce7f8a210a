"""What several packages' tests share."""

import pytest


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
