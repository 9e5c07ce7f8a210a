"""What several packages' tests share."""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from datamask import arithmetic
from datamask.libraries import no_garbage
from datamask.report import drawing
from flows.warm import Server
from tests.object_store import Store, clear_clients, running

# how busy the machine is fails no test: neither one example's time, nor that of making it
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

THREADS = os.environ.get("OMP_NUM_THREADS")  # `make test` sets 1

# Tests write and sync thousands of small files, which on a disk is a fifth of some tests' time.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # bytes; a run leaves .3 GB
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background by a shell: the tests' own processes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # would inherit that, and could not be interrupted


@contextlib.contextmanager
def drawn(draw=drawing.draw_png, place=drawing.place_documents) -> Iterator[None]:
    """Reports have their pictures drawn and their maps laid out by these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "draw_png", draw)
        patch.setattr(drawing, "place_documents", place)
        yield


@pytest.fixture(scope="session", autouse=True)
def blank_pictures() -> Iterator[None]:
    """A report's pictures and map are blank but where a test looks at them: they take two seconds."""
    with drawn(lambda specification: b"\x89PNG", lambda features, seed: features[:, :2]):
        yield


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    """One throw-away Prefect server for all flow tests, with the heartbeat off (it costs a second a flow)."""
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE"] = "50"  # of one each it takes a second a run
    os.environ["PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL"] = "1"
    for unused in ("ANALYTICS_ENABLED", "REGISTER_BLOCKS_ON_START", *(f"SERVICES_{name}_ENABLED" for name in SERVICES)):
        os.environ[f"PREFECT_SERVER_{unused}"] = "false"
    server = Server()
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    server.wait()
    with temporary_settings({PREFECT_API_URL: server.url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield
    server.end()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Sets back what `same_arithmetic` set for the stages that this test ran here: as many threads as there are cores.

    Those of two processes wait for one another on two cores, and each takes a whole processor while it waits.
    """
    if THREADS and getattr(arithmetic._LIMITED, "all", False):
        import torch

        torch.set_num_threads(int(THREADS))
        arithmetic.thread_pools().limit(limits=int(THREADS), user_api="openmp")
        os.environ["OMP_NUM_THREADS"] = THREADS
        arithmetic._LIMITED.all = False  # the next stage sets them again


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


SERVICES = (  # what runs without deployments needs none of; most ask the database every few seconds
    "TRIGGERS", "EVENT_PERSISTER", "SCHEDULER", "LATE_RUNS", "FOREMAN", "CANCELLATION_CLEANUP", "PAUSE_EXPIRATIONS",
    "REPOSSESSOR", "CLEANUP_RECONCILER",
)  # fmt: skip
PREFECT = ("tests/flows/", "tests/deployments/", "tests/examples/", "tests/end_to_end/")  # they need its server


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """While tests are collected modules are loaded, which stay: a sixth of the time was spent on garbage."""
    with no_garbage():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a Prefect server come first: one process of two is busy with them nearly to the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(PREFECT))


class OneServer(LoadFileScheduling):
    """A file goes to the next free process, those that need a Prefect server to one, which starts it once."""

    def _split_scope(self, nodeid: str) -> str:
        return "prefect" if nodeid.startswith(PREFECT) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneServer | None:
    """For `--dist loadgroup`."""
    return OneServer(config, log) if config.getvalue("dist") == "loadgroup" else None
