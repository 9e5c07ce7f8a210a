"""A Prefect server with pool, worker, limits, automation and deployments on loopback: what `make server` runs.

    python deployments/local_server.py up      # starts what is not running; safe to repeat
    python deployments/local_server.py down    # stops what `up` started

State lies in .prefect/ of the repository (PREFECT_HOME, if set, elsewhere).
PREFECT_SERVER_API_AUTH_STRING=user:password protects the server; PORT and GPUS change its port and the number of
tasks that may claim a GPU at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil

if TYPE_CHECKING:
    from prefect.automations import Automation

ROOT = Path(__file__).resolve().parents[1]
POOL = "datamask"
PORT = int(os.environ.get("PORT", "4200"))
URL = f"http://127.0.0.1:{PORT}"
GPUS = int(os.environ.get("GPUS", "1"))
HOME = Path(os.environ.setdefault("PREFECT_HOME", str(ROOT / ".prefect")))
START_SECONDS = 60
HEARTBEAT = 30  # seconds; the least Prefect takes
SILENCE = 90  # seconds without a heartbeat after which a run counts as lost

SETTINGS = {
    "PREFECT_API_URL": f"{URL}/api",
    "PREFECT_UI_API_URL": f"{URL}/api",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT),
    "PYTHONPATH": str(ROOT),
}
AUTH = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or os.environ.get("PREFECT_API_AUTH_STRING")
if AUTH:
    SETTINGS |= {"PREFECT_SERVER_API_AUTH_STRING": AUTH, "PREFECT_API_AUTH_STRING": AUTH}
os.environ.update(SETTINGS)


def up() -> None:
    """Starts server and worker unless they run, and creates what they need unless it is there."""
    HOME.mkdir(parents=True, exist_ok=True)
    if not _healthy():
        _start("server", "server", "start", "--host", "127.0.0.1", "--port", str(PORT))
        _await_server()
    _create()
    _prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    if not _running("worker"):
        _start("worker", "worker", "start", "--pool", POOL, "--name", "local")
    print(f"Prefect's UI: {URL}   (logs and state: {HOME}; stop: make server-down)")
    print(f"for the prefect command here: export PREFECT_API_URL={URL}/api")


def down() -> None:
    """Stops the worker, then the server; what others started is left alone."""
    for name in ("worker", "server"):
        process = _running(name)
        if process:
            family = [process, *process.children(recursive=True)]
            process.terminate()
            _, left = psutil.wait_procs(family, timeout=20)
            for one in left:
                one.kill()
            print(f"stopped the {name}")
        _record(name).unlink(missing_ok=True)


def _create() -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound
    from prefect.variables import Variable

    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", description="Runs flows on this machine"))
        client.create_concurrency_limit(tag="gpu", concurrency_limit=GPUS)  # replaces one that is there
    Variable.set("datamask_home", str(ROOT), overwrite=True)
    automation = lost_runs()
    known = _automations().get(automation.name)
    if not known:
        automation.create()
    elif known.description != automation.description:  # an update forgets which runs it waits for, so only if need be
        automation.id = known.id
        automation.update()


def lost_runs() -> Automation:
    """Crashes a run whose process went silent, so that none stays in Running for ever (Prefect's zombie detection).

    It counts from Running on, for a process may die before its first heartbeat, and for our flows alone: others may
    have no heartbeat.
    """
    from prefect.automations import Automation
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    return Automation(
        name="datamask lost runs",
        description=f"A run of ours without a heartbeat for {SILENCE} s is marked as crashed; run it again to go on.",
        trigger=EventTrigger(
            after={"prefect.flow-run.Running", "prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *ends},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification(
                {"prefect.resource.role": ["flow"], "prefect.resource.name": ["curate", "refresh", "ablate"]}
            ),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message=f"no heartbeat for {SILENCE} s: its process or machine is gone"
            )
        ],
    )


# ---------------------------------------------------------------- processes


def _record(name: str) -> Path:
    return HOME / f"{name}.pid"


def _start(name: str, *arguments: str) -> None:
    with (HOME / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    _record(name).write_text(f"{process.pid} {psutil.Process(process.pid).create_time()}")


def _running(name: str) -> psutil.Process | None:
    """The process that `up` started, if it still lives: number and start must agree."""
    try:
        number, created = _record(name).read_text().split()
        process = psutil.Process(int(number))
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return process if alive and process.create_time() == float(created) else None
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None


def _healthy() -> bool:
    try:
        return httpx.get(f"{URL}/api/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


def _await_server() -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        if _healthy():
            return
        if not _running("server"):
            sys.exit(f"the server did not start (is port {PORT} taken? make server PORT=…); see {HOME / 'server.log'}")
        time.sleep(0.3)
    sys.exit(f"the server did not answer at {URL} within {START_SECONDS} s; see {HOME / 'server.log'}")


def _prefect(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "prefect", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"prefect {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def _automations() -> dict[str, Automation]:
    from prefect.client.orchestration import get_client
    from prefect.utilities.asyncutils import run_coro_as_sync

    async def read() -> dict[str, Automation]:
        async with get_client() as client:
            return {automation.name: automation for automation in await client.read_automations()}

    return run_coro_as_sync(read()) or {}


if __name__ == "__main__":
    actions = {"up": up, "down": down}
    if len(sys.argv) != 2 or sys.argv[1] not in actions:
        sys.exit(f"usage: python {sys.argv[0]} {{{'|'.join(actions)}}}")
    actions[sys.argv[1]]()
