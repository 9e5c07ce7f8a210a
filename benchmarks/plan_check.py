"""`datamask plan` held against a run of the whole corpus: seconds and storage per stage, predicted and measured.

python benchmarks/plan_check.py --input '../shared/data/real/real-0*.parquet' [--workers 1] [--set name=value …]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from datamask.pipeline import STAGES


def run(*arguments: str) -> tuple[dict, float]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "datamask.cli", *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout), time.perf_counter() - began


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    settings = [part for one in arguments.set for part in ("--set", one)]
    folder = Path(tempfile.mkdtemp(prefix="datamask-plan-check-"))
    try:
        plan, took = run("plan", arguments.input, "--workers", str(arguments.workers), *settings)
        print(
            f"plan: {took:.0f} s, a sample of {plan['sampled']:,}; the corpus: {plan['documents']:,} predicted", end=""
        )
        out = folder / "out"
        settings += ["--set", f"run.workers={arguments.workers}"]
        found, wall = run("curate", "--input", arguments.input, "--output", str(out), *settings)
        print(f", {found['documents']['read']:,} counted; {arguments.workers} workers\n")
        print("| stage | seconds of work predicted | measured | | MB predicted | measured |\n|---|--:|--:|--:|--:|--:|")
        measured = {line["stage"]: line["seconds"] for line in found["stages"]}
        total = [0.0, 0.0]
        for stage in plan["stages"]:
            name, predicted = stage["stage"], 3600 * stage["worker_hours"]
            seconds = measured.pop(name, 0.0)
            total[0] += predicted
            total[1] += seconds
            place = out / "work" / (STAGES[name].folder or name)
            if name in ("export", "report"):
                data = size(Path(found["release"]) / "data") + size(Path(found["release"]) / "decisions")
                written = data if name == "export" else size(Path(found["release"])) - data
            else:
                written = size(place)
            ratio = f"{predicted / seconds:.2f}" if seconds >= 0.5 else ""
            print(
                f"| {name} | {predicted:.1f} | {seconds:.1f} | {ratio} "
                f"| {stage['storage_bytes'] / 1e6:.1f} | {written / 1e6:.1f} |"
            )
        print(f"| all | {total[0]:.1f} | {total[1]:.1f} | {total[0] / total[1]:.2f} | | {size(out) / 1e6:.1f} |")
        print(f"\nnot predicted: {measured}; wall: {3600 * plan['hours']:.0f} s predicted,", end=" ")
        print(f"{found['seconds']:.0f} s measured, {wall:.0f} s the command")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
