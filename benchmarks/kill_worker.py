"""kill -9 of Prefect's worker at random moments on a real server: retries end in the same bytes, no run stays Running.

    python benchmarks/kill_worker.py --input CORPUS [--kills 10] [--seed 0] [--config '{"corpus": {"group_bytes": 0}}']

`make server`'s script starts server, worker and deployments on a free port with a home of their own. Half of the kills
take the worker alone: its run is a process of its own and goes on. The other half take the worker with the run's
process, as a lost machine does: the heartbeat automation marks the run as crashed, and `prefect flow-run retry` takes
it up. Each kill has an output folder of its own. Ends with 1 if bytes differ, a whole file was redone, or a run is left
in Running.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from kill_flow import changed, digests, stage_files

ROOT = Path(__file__).parents[1]
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Server:
    """`make server`'s script, on a free port with a home of its own."""

    def __init__(self, home: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self.home, self.url = home, f"http://127.0.0.1:{port}/api"
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        self._environment |= {"PREFECT_HOME": str(home), "PORT": str(port), "PREFECT_API_URL": self.url}

    def script(self, action: str) -> None:
        command = [sys.executable, "deployments/local_server.py", action]
        subprocess.run(command, cwd=ROOT, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def prefect(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        subprocess.run(command, cwd=ROOT, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def start(self, out: Path, input: str, config: dict[str, Any]) -> str:
        deployment = httpx.get(f"{self.url}/deployments/name/curate/curate", timeout=30).json()["id"]
        parameters = {"input": input, "output": str(out), "config": config}
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        answer = httpx.post(f"{self.url}/deployments/{deployment}/create_flow_run", json=body, timeout=30)
        return str(answer.raise_for_status().json()["id"])

    def state(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/flow_runs/{run}", timeout=30).json()["state"]
        return found

    def await_end(self, run: str, seconds: float = 300) -> dict[str, Any]:
        ends = time.monotonic() + seconds
        while (state := self.state(run))["type"] not in ENDED and time.monotonic() < ends:
            time.sleep(0.5)
        return state

    def running(self) -> int:
        body = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}}
        return int(httpx.post(f"{self.url}/flow_runs/count", json=body, timeout=30).json())

    def kill_worker(self, and_its_run: bool) -> None:
        worker = psutil.Process(int((self.home / "worker.pid").read_text().split()[0]))
        family = [worker, *(worker.children(recursive=True) if and_its_run else [])]
        for process in family:
            process.kill()
        psutil.wait_procs(family, timeout=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", default='{"corpus": {"group_bytes": 0}}')
    arguments = parser.parse_args()
    config = json.loads(arguments.config)
    folder = Path(tempfile.mkdtemp(prefix="datamask-kill-"))
    chance = random.Random(arguments.seed)
    server = Server(folder / "home")
    wrong = 0
    try:
        server.script("up")
        run = server.start(folder / "undisturbed", arguments.input, config)
        assert server.await_end(run)["type"] == "COMPLETED", server.state(run)
        expected, total = digests(folder / "undisturbed" / "latest"), len(stage_files(folder / "undisturbed"))
        killed = []
        for number in range(arguments.kills):
            out = folder / f"killed-{number}"
            run = server.start(out, arguments.input, config)
            files, pause = chance.randint(0, total - 1), chance.uniform(0, 1)
            while server.state(run)["type"] not in ("RUNNING", *ENDED) or (
                len(stage_files(out)) < files and server.state(run)["type"] == "RUNNING"
            ):
                time.sleep(0.05)
            time.sleep(pause)
            lost = bool(number % 2)
            server.kill_worker(and_its_run=lost)
            before = stage_files(out)
            server.script("up")  # what `make server` again does: a new worker
            killed.append((run, out, lost, before))
            if not lost:
                server.await_end(run)
        print("| kill of | whole files | run | of them redone | bytes |\n|---|--:|---|--:|---|")
        for run, out, lost, before in killed:
            ended = server.await_end(run)
            story = ended["name"] + (f" ({ended['message']})" if ended["message"] else "")
            if ended["type"] != "COMPLETED":
                server.prefect("flow-run", "retry", run)
                time.sleep(2)
                story += f", retried: {server.await_end(run)['name']}"
            redone = changed(before, stage_files(out))
            same = (out / "latest").exists() and digests(out / "latest") == expected
            wrong += redone + (not same)
            what = "worker and run" if lost else "worker"
            print(f"| {what} | {len(before)} | {story} | {redone} | {'same' if same else 'OTHER'} |", flush=True)
        left = server.running()
        print(f"\n{left} runs left in Running; {total} files of the stages in a whole run")
    finally:
        server.script("down")
        shutil.rmtree(folder)
    sys.exit(1 if wrong or left else 0)


if __name__ == "__main__":
    main()
