"""The same corpus on threads, twice, Dask and Ray, and with a worker process of Dask and Ray killed in mid-run.

    python benchmarks/engines.py --input CORPUS [--set section.name=value …] [--no-kill]

Each run begins with nothing; then the last one's command is given again, which must find everything done. Each engine
starts a private cluster with two worker processes. The kill (-9) comes when a third of the shards indexed so far are
embedded; a worker that is at work is chosen. Every release must have the bytes of the first one from threads, and whole
files that were there at the kill must not be written again. Ends with 1 if not.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from kill_flow import changed, digests, stage_files

WORKERS = {"dask": "spawn_main", "ray": "ray::"}  # words in a worker's command line


def curate(given: list[str], out: Path, engine: str) -> subprocess.Popen[bytes]:
    arguments = ["--output", str(out), "--json", "--set", f"run.engine={engine}", "--set", "run.workers=2"]
    with out.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "datamask.cli", "curate", *given, *arguments], stdout=log, stderr=log
        )


def finish(process: subprocess.Popen[bytes], out: Path) -> None:
    if process.wait():
        sys.exit(out.with_suffix(".log").read_text())


def memory(process: psutil.Process) -> float:
    """GiB of the tree, shared pages counted once."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 2**30


def workers(process: psutil.Process, engine: str) -> list[psutil.Process]:
    """The engine's worker processes at work, the busiest first."""
    found = []
    for one in process.children(recursive=True):
        try:
            words = " ".join(one.cmdline())
            if WORKERS[engine] in words and "IDLE" not in words:
                found.append((sum(one.cpu_times()[:2]), one))
        except psutil.Error:
            continue
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--engines", nargs="+", default=["dask", "ray"])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--no-kill", action="store_true", help="no worker is killed")
    arguments = parser.parse_args()
    settings = ["corpus.group_bytes=0", *arguments.set]
    given = ["--input", arguments.input, *[part for one in settings for part in ("--set", one)]]
    folder = Path(tempfile.mkdtemp(prefix="datamask-engines-"))
    wrong = 0
    try:
        print("| engine | seconds | GiB, all processes | killed at | whole files redone | bytes |")
        print("|---|--:|--:|---|--:|---|")
        kills = (False,) if arguments.no_kill else (False, True)
        runs = [("threads", False)] * 2 + [(one, kill) for one in arguments.engines for kill in kills]
        for number, (engine, kill) in enumerate(runs):
            out = folder / f"{engine}-{number}"
            began, most, victim, before = time.perf_counter(), 0.0, "", {}
            process = curate(given, out, engine)
            tree = psutil.Process(process.pid)
            while process.poll() is None:
                most = max(most, memory(tree))
                embedded = len(list((out / "work" / "embeddings").glob("[!.]*.parquet")))
                shards = len(list((out / "work" / "index").glob("[!.]*.parquet")))
                if kill and not victim and embedded >= max(1, shards // 3) and (found := workers(tree, engine)):
                    before = stage_files(out)
                    found[0].kill()
                    victim = f"{embedded} embedded shards, {len(before)} files"
                time.sleep(0.2)
            finish(process, out)
            seconds = time.perf_counter() - began
            if number == 0:
                expected = digests(out)
            same, redone = digests(out) == expected, changed(before, stage_files(out))
            wrong += redone + (not same) + (kill and not victim)
            print(
                f"| {engine} | {seconds:.0f} | {most:.1f} | {victim or 'not'} | {redone} | "
                f"{'same' if same else 'OTHER'} |",
                flush=True,
            )
        before = stage_files(out)
        finish(curate(given, out, engine), out)
        redone = changed(before, stage_files(out))
        wrong += redone
        print(f"\nThe same command again, on {engine}: {redone} files written anew.")
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
