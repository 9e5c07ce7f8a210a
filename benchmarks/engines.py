"""The same corpus on threads, twice, Dask and Ray, and with a worker process of Dask and Ray killed in mid-run.

    python benchmarks/engines.py --input CORPUS [--set section.name=value …] [--no-kill] [--rounds]

Each run begins with nothing; then the last one's command is given again, which must find everything done. Each engine
starts a private cluster with two worker processes. The kill (-9) comes when a third of the shards indexed so far are
embedded. With `--rounds` there is one more in each stage of rounds, once it has handed on its first file, and no run
is without kills but one on threads. The worker that works most is chosen. Every release must have the bytes of the
first one from threads, and whole files that were there at a kill must not be written again. Ends with 1 if not.
`--keep FOLDER` keeps the outputs there.
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

from datamask.config import load_config
from datamask.run import wanted

WORKERS = {"dask": "spawn_main", "ray": "ray::"}  # words in a worker's command line
OTHERS = ("IDLE", "Agent")  # Ray's, that do no task; with its agents Ray itself would die


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
            if WORKERS[engine] in words and not any(other in words for other in OTHERS):
                found.append((sum(one.cpu_times()[:2]), one))
        except psutil.Error:
            continue
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def kill_a_worker(process: psutil.Process, engine: str) -> bool:
    """Kills the worker process that worked most in a tenth of a second; False if there is none."""
    found = workers(process, engine)
    used = {one.pid: sum(one.cpu_times()[:2]) for one in found if one.is_running()}
    time.sleep(0.1)
    for one in sorted(found, key=lambda one: used.get(one.pid, 0) - sum(one.cpu_times()[:2])):
        one.kill()
        return True
    return False


def due(out: Path, stage: str) -> bool:
    """Whether a run has come as far as its kill in this stage."""
    work = out / "work"
    if stage == "embed":
        embedded, shards = (len(list((work / name).glob("[!.]*.parquet"))) for name in ("embeddings", "index"))
        return embedded >= max(1, shards // 3)
    handed = any((work / "rounds").glob(f"{stage}-*/[!.]*"))
    return handed or (stage == "prices" and any((work / "prices").glob("[!.]*")))  # a small corpus is one item


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--engines", nargs="+", choices=["dask", "ray"], default=["dask", "ray"])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--no-kill", action="store_true", help="no worker is killed")
    parser.add_argument("--rounds", action="store_true", help="a worker is killed in each stage of rounds too")
    parser.add_argument("--keep", type=Path, help="a folder for the outputs, which stay")
    arguments = parser.parse_args()
    settings = ["corpus.group_bytes=0", *arguments.set]
    given = ["--input", arguments.input, *[part for one in settings for part in ("--set", one)]]
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="datamask-engines-"))
    folder.mkdir(exist_ok=True)
    in_rounds = [stage.name for stage in wanted(load_config(overrides=settings)) if stage.by == "rounds"]
    stages = ["embed", *([*in_rounds, "export", "report"] if arguments.rounds else [])]
    wrong = 0
    try:
        print("| engine | seconds | GiB, all processes | killed in | whole files redone | bytes |")
        print("|---|--:|--:|---|--:|---|")
        kills = (False,) if arguments.no_kill else (True,) if arguments.rounds else (False, True)
        runs = [("threads", False)] * (1 if arguments.rounds else 2) + [
            (one, kill) for one in arguments.engines for kill in kills
        ]
        for number, (engine, kill) in enumerate(runs):
            out = folder / f"{engine}-{number}"
            began, most, killed, before = time.perf_counter(), 0.0, [], {}
            process = curate(given, out, engine)
            tree = psutil.Process(process.pid)
            while process.poll() is None:
                most = most if kill else max(most, memory(tree))  # which takes a while
                for stage in [one for one in stages if kill and one not in killed and due(out, one)]:
                    there = stage_files(out)
                    if kill_a_worker(tree, engine):
                        before |= there
                        killed.append(stage)
                time.sleep(0.2 if not kill else 0.02)
            finish(process, out)
            seconds = time.perf_counter() - began
            if number == 0:
                expected = digests(out / "latest")
            same, redone = digests(out / "latest") == expected, changed(before, stage_files(out))
            wrong += redone + (not same) + (kill and set(killed) != set(stages))
            print(
                f"| {engine} | {seconds:.0f} | {f'{most:.1f}' if most else ''} | {', '.join(killed) or 'not'} | "
                f"{redone} | {'same' if same else 'OTHER'} |",
                flush=True,
            )
        before = stage_files(out)
        finish(curate(given, out, engine), out)
        redone = changed(before, stage_files(out))
        wrong += redone
        print(f"\nThe same command again, on {engine}: {redone} files written anew.")
    finally:
        if not arguments.keep:
            shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
