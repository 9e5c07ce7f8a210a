"""What an operator reads when something is torn: Ctrl-C in a stage, a full disk, a killed server or
worker, two runs at once.

    python benchmarks/operator_screen.py --input CORPUS [--interrupt index --interrupt prices] [--engine dask]
    python benchmarks/operator_screen.py --input CORPUS --server --twice
    python benchmarks/operator_screen.py --input CORPUS --engine dask --lose encoder --lose embed  # kill -9
    python benchmarks/operator_screen.py --input CORPUS --disk 1 --disk 3 --disk 6      # MB; mounts a tmpfs: root alone

Each prints the screen as it was, the exit status, and the seconds from the blow to the end. Ctrl-C goes to the whole
group of processes, as a terminal sends it. Ends with 1 if a screen holds a Python traceback, or the run that follows
does not come through.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

LIMIT = 600  # seconds of a run
PAUSE = 0.4  # seconds into a stage
SHOWN: list[str] = []  # the lines of the table
SMALL = ["corpus.group_bytes=0", "encoder.dimensions=64", "encoder.vocabulary=800", "encoder.fit_documents=500"]


class Run:
    """`datamask curate` in a session of its own, its screen in a file."""

    def __init__(self, arguments: argparse.Namespace, out: Path, **environment: str) -> None:
        self.screen = Path(tempfile.mkstemp(prefix="screen-")[1])
        settings = [*SMALL, f"run.engine={arguments.engine}", "run.workers=2"]
        command = [sys.executable, "-m", "datamask", "curate", "--input", arguments.input, "--output", str(out)]
        command += [part for setting in settings for part in ("--set", setting)]
        with self.screen.open("wb") as screen:
            self.process = subprocess.Popen(
                command, stdout=screen, stderr=screen, start_new_session=True, env={**os.environ, **environment}
            )

    def await_word(self, word: str) -> bool:
        """Waits until the screen holds the word; False if the run ended before."""
        until = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < until:
            if word in self.screen.read_text():
                return True
            time.sleep(0.05)
        return False

    def end(self) -> tuple[int, float]:
        """Exit status, and seconds until then."""
        began = time.monotonic()
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            status = self.process.wait()
        return status, time.monotonic() - began

    def show(self, title: str, status: int, seconds: float) -> bool:
        """Prints the screen; False if it holds a traceback."""
        text = self.screen.read_text()
        last = text.rstrip().rpartition("\n")[2]
        SHOWN.append(f"| {title} | {status} | {len(text):,} | `{last}` |")
        print(f"\n## {title}: exit {status} after {seconds:.0f} s, {len(text):,} characters\n\n{text.rstrip()[-3000:]}")
        sys.stdout.flush()
        return "Traceback" not in text


BEFORE = {  # a stage, and the last line that the screen shows before it
    "start-up": "", "convert": "plan ", "tokenizer": "convert ", "quality": "convert ", "encoder": "tokenizer ",
    "signatures": "tokenizer ", "index": "tokenizer ", "atoms": "tokenizer ", "embed": "index ", "score": "embed ",
    "filter": "score ", "duplicates": "filter ", "prices": "duplicates ", "mask": "prices ", "export": "mask ",
    "report": "export ", "publish": "report ",
}  # fmt: skip


def interrupted(arguments: argparse.Namespace, folder: Path) -> bool:
    """One Ctrl-C after the other on one output, each run going on where the last was stopped; then one to the end."""
    good = True
    for stage in arguments.interrupt:
        run = Run(arguments, folder / "out")
        if not run.await_word(BEFORE[stage]):
            good = run.show(f"no Ctrl-C in {stage}: it had ended", *run.end()) and good
            continue
        time.sleep(PAUSE)
        os.killpg(run.process.pid, signal.SIGINT)
        status, seconds = run.end()
        good = run.show(f"Ctrl-C in {stage} ({arguments.engine})", status, seconds) and good
        good = good and status in (130, -signal.SIGINT)  # both are 130 to a shell
    last = Run(arguments, folder / "out")
    status, seconds = last.end()
    return last.show("the same command to its end", status, seconds) and good and status == 0


def worker_lost(arguments: argparse.Namespace, folder: Path) -> bool:
    """kill -9 of a Dask worker in each stage, each time on an output of its own: the same data as a run undisturbed."""
    good, expected = True, None
    for stage in ["", *arguments.lose]:
        out = folder / f"lost-{stage}"
        run = Run(arguments, out)
        killed = "no worker"
        if stage and run.await_word(BEFORE[stage]):
            time.sleep(PAUSE)
            workers = [
                child
                for child in psutil.Process(run.process.pid).children(recursive=True)
                if "spawn_main" in " ".join(child.cmdline())
            ]
            worker = max(workers, key=lambda child: sum(child.cpu_times()[:2]))
            worker.kill()
            killed = f"worker {worker.pid} of {len(workers)} killed"
        status, seconds = run.end()
        good = run.show(f"{killed} in {stage or 'any stage'} ({arguments.engine})", status, seconds) and good
        data = {
            str(path.relative_to(out / "latest" / "data")): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((out / "latest" / "data").rglob("*.parquet"))
        }
        expected = expected or data
        print(f"\n{len(data)} files of data, {'the same' if data == expected else 'OTHER'} bytes", flush=True)
        good = good and status == 0 and data == expected
    return good


def disk_full(arguments: argparse.Namespace, folder: Path) -> bool:
    """An output on a disk of so many MB; then the same command on one that is large enough."""
    good, out = True, folder / "disk"
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(out)], check=True)
    try:
        SMALL.append("run.room=off")  # else the run is refused before it begins
        for megabytes in [*sorted(arguments.disk), 1000]:
            subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(out)], check=True)
            run = Run(arguments, out / "out")
            status, seconds = run.end()
            good = run.show(f"a disk of {megabytes:,} MB", status, seconds) and good
            good = good and status == (0 if megabytes == 1000 else 5)
    finally:
        subprocess.run(["umount", str(out)], check=True)
    return good


def server_killed(arguments: argparse.Namespace, folder: Path) -> bool:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = {"PREFECT_HOME": str(folder / "home"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **home}, start_new_session=True,
    )  # fmt: skip
    try:
        for _ in range(LIMIT):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.5)
        run = Run(arguments, folder / "out-server", PREFECT_API_URL=f"http://127.0.0.1:{port}/api", **home)
        run.await_word("encoder ")
        os.killpg(server.pid, signal.SIGKILL)
        return run.show("the Prefect server killed after the encoder", *run.end())
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)


def twice(arguments: argparse.Namespace, folder: Path) -> bool:
    runs = [Run(arguments, folder / "out-twice") for _ in range(2)]
    shown = [run.show(f"two runs at once, number {n}", *run.end()) for n, run in enumerate(runs, start=1)]
    releases = sorted(path.name for path in (folder / "out-twice" / "releases").iterdir())
    print(f"releases: {releases}; latest: {(folder / 'out-twice' / 'latest').resolve().name}")
    return all(shown) and len(releases) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--engine", default="threads", choices=["threads", "dask", "ray"])
    parser.add_argument("--interrupt", action="append", default=[], choices=list(BEFORE))
    parser.add_argument("--lose", action="append", default=[], choices=list(BEFORE))
    parser.add_argument("--disk", action="append", type=int, default=[], help="MB")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--twice", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="datamask-operator-") as name:
        folder = Path(name)
        good = [interrupted(arguments, folder)] if arguments.interrupt else []
        if arguments.lose:
            good.append(worker_lost(arguments, folder))
        if arguments.disk:
            good.append(disk_full(arguments, folder))
        if arguments.server:
            good.append(server_killed(arguments, folder))
        if arguments.twice:
            good.append(twice(arguments, folder))
    print("\n| blow | exit | characters on the screen | last line |\n|---|--:|--:|---|")
    print("\n".join(SHOWN))
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
