"""kill -9 at random moments: the flow's process, then restart; the end must be an undisturbed run's, byte for byte.

    python benchmarks/kill_flow.py --input CORPUS [--kills 30] [--seed 0] [--set section.name=value …]

A moment is a random number of the stages' files and a random pause, so that it falls anywhere in the work whatever
the machine's load. Prints a line per kill: when, the files that were there before and after, and how many of them the
next run wrote anew (none: only unfinished shards are redone). Ends with 1 if the bytes differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from datamask.pipeline import STAGES

FOLDERS = {stage.folder for stage in STAGES.values() if stage.folder} - {STAGES["export"].folder}  # which is not kept


def start(arguments: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "datamask", "curate", *arguments, "--output", str(out), "--json"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)  # the session it leads: itself and what it started
    process.wait()


def await_files(process: subprocess.Popen[bytes], out: Path, files: int, pause: float) -> bool:
    """Waits until so many whole files are there, and `pause` seconds more; False if the process ended before."""
    while process.poll() is None:
        if len(stage_files(out)) >= files:
            time.sleep(pause)
            return process.poll() is None
        time.sleep(0.02)
    return False


def stage_files(out: Path) -> dict[str, tuple[int, int]]:
    """Path: (inode, time of writing) of every whole file of the stages."""
    found = {}
    for folder in FOLDERS:
        for path in (out / "work" / folder).rglob("*"):
            if path.is_file() and not any(part.startswith(".") for part in path.parts):
                status = path.stat()
                found[str(path.relative_to(out))] = (status.st_ino, status.st_mtime_ns)
    return found


def changed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> int:
    """How many files of before are gone or written anew."""
    return sum(after.get(path) != facts for path, facts in before.items())


def digests(release: Path) -> dict[str, str]:
    """Path: sha256 of what a release's key stands for (the page and the card tell times as well)."""
    paths = [path for kind in ("data", "decisions") for path in (release / kind).rglob("*.parquet")]
    return {
        str(path.relative_to(release)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in [*paths, release / "quarantine.parquet"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    given = ["--input", arguments.input, *[part for one in arguments.set for part in ("--set", one)]]
    folder = Path(tempfile.mkdtemp(prefix="datamask-kill-"))
    chance = random.Random(arguments.seed)
    try:
        began = time.perf_counter()
        assert start(given, folder / "undisturbed").wait() == 0, "the undisturbed run failed"
        length = time.perf_counter() - began
        expected, total = digests(folder / "undisturbed" / "latest"), len(stage_files(folder / "undisturbed"))
        print(f"undisturbed: {length:.1f} s, {total} files of the stages, {len(expected)} of the release\n", flush=True)
        print("| kill | at files | files before | whole after | rewritten |\n|---:|---:|---:|---:|---:|")
        out, redone, ended, checked = folder / "killed", 0, 0, 0
        for number in range(1, arguments.kills + 1):
            before = stage_files(out)
            process = start(given, out)
            whole = chance.randint(len(before), total)
            pause = chance.uniform(0, 1 if whole > len(before) else length / 2)
            if await_files(process, out, whole, pause):
                kill(process)
            else:
                ended += 1
            after = stage_files(out)
            redone += (rewritten := changed(before, after))
            print(f"| {number} | {whole} + {pause:.1f} s | {len(before)} | {len(after)} | {rewritten} |", flush=True)
            if len(after) == total or number == arguments.kills:  # run on to the end, and the next from nothing
                assert start(given, out).wait() == 0, "the run after a kill failed"
                redone += (rewritten := changed(after, stage_files(out)))
                versions = sorted(path.name for path in (out / "releases").iterdir())
                assert digests(out / "latest") == expected, "a release differs from the undisturbed one"
                assert len(versions) == 1, versions
                checked += 1
                print(f"| to the end | | {len(after)} | {total} | {rewritten} |", flush=True)
                shutil.rmtree(out)
        print(f"\n{checked} times run on to the end: one release each, the same bytes; {redone} whole files redone;")
        print(f"{ended} of {arguments.kills} runs came to their end before the kill")
        sys.exit(1 if redone else 0)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
