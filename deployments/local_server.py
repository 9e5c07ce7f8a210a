"""A Prefect server with pool, worker, limits, automation and deployments on loopback: what `make server` runs.

    python deployments/local_server.py up      # starts what is not running; safe to repeat
    python deployments/local_server.py down    # stops what `up` started

State lies in .prefect/ of the repository (PREFECT_HOME, if set, elsewhere).
PREFECT_SERVER_API_AUTH_STRING=user:password protects the server; PORT changes its port, RUNS how many runs the pool
starts at a time (1), and GPUS how many tasks may claim a GPU at a time (1).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]
POOL = "datamask"
HOME = Path(os.environ.setdefault("PREFECT_HOME", str(ROOT / ".prefect")))
RECORD = "{}.pid"  # of a process that `up` started, in HOME: its number, when it began, and the server's port
START_SECONDS = 300  # of a server that lives but does not answer yet; a busy machine takes over a minute


def _running(name: str) -> psutil.Process | None:
    """The process that `up` started, if it still lives: number and start must agree."""
    try:
        number, created, *_ = _record(name).read_text().split()
        process = psutil.Process(int(number))
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return process if alive and process.create_time() == float(created) else None
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None


def _record(name: str) -> Path:
    return HOME / RECORD.format(name)


def _port() -> int:
    """PORT, or that of the server that runs already; one of them has to go where they differ."""
    asked = int(os.environ.get("PORT") or 0)
    there = int([*_record("server").read_text().split(), "4200"][2]) if _running("server") else 0
    if asked and there and asked != there:
        sys.exit(
            f"the server that make server started here runs at http://127.0.0.1:{there} already; stop it first "
            f"(make server-down), or give the second one a folder of its own: PREFECT_HOME=… make server PORT={asked}"
        )
    return asked or there or 4200


PORT = 4200 if sys.argv[1:] == ["down"] else _port()
URL = f"http://127.0.0.1:{PORT}"
SETTINGS = {
    "PREFECT_API_URL": f"{URL}/api",
    "PREFECT_UI_API_URL": f"{URL}/api",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PYTHONPATH": str(ROOT),
}
AUTH = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or os.environ.get("PREFECT_API_AUTH_STRING")
if AUTH:
    SETTINGS |= {"PREFECT_SERVER_API_AUTH_STRING": AUTH, "PREFECT_API_AUTH_STRING": AUTH}
os.environ.update(SETTINGS)
for name in ("no_proxy", "NO_PROXY"):  # the server is on loopback, which no proxy reaches
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost,::1"]))


def up() -> None:
    """Starts server and worker unless they run, and creates what they need unless it is there."""
    HOME.mkdir(parents=True, exist_ok=True)
    if not _healthy():
        if not _running("server"):  # else it is still starting
            _start("server", "server", "start", "--host", "127.0.0.1", "--port", str(PORT))
        _await_server()
    from registration import register  # loads Prefect, which reads the settings above

    register()
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


# ---------------------------------------------------------------- processes


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
    _record(name).write_text(f"{process.pid} {psutil.Process(process.pid).create_time()} {PORT}")


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
    sys.exit(
        f"the server did not answer at {URL} within {START_SECONDS} s; see {HOME / 'server.log'}. It still runs: "
        "make server again waits for it, make server-down stops it"
    )


if __name__ == "__main__":
    actions = {"up": up, "down": down}
    if len(sys.argv) != 2 or sys.argv[1] not in actions:
        sys.exit(f"usage: python {sys.argv[0]} {{{'|'.join(actions)}}}")
    actions[sys.argv[1]]()
