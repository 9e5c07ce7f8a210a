"""kill -9 at random moments of filter, export and publish: the old or the new release is whole, a rerun ends the same.

    python benchmarks/kill_release.py --folder /tmp/kill-release --kills 50

An output folder holds two releases, of which one is kept (release.keep). A process makes a third and is killed
somewhere in it, uniformly over the time it takes. Then `latest` must lead to a release that verifies and that is the
old one or the new one, no other folder may look like a release, and the same process run again must end in the very
bytes of a run that nobody killed. (Hidden temporary files in work/ are removed a day later by the next run.)
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.release.made import PROVENANCE, digests, make_corpus, make_masks

ROWS = (3000, 1500, 2500, 2000)
TIMED = ("manifest.json",)  # tells the time


def work(out: Path, step: int) -> None:
    """What is killed: one release, from the stages' files on."""
    from dataclasses import replace

    from datamask.config import validate
    from datamask.filter.filters import filter_corpus
    from datamask.release.publication import publish
    from datamask.release.staging import export

    folder = out.parent
    config = validate(
        {"filter": {"min_tokens": 3 * step}, "release": {"rows_per_file": 300, "row_group_rows": 50, "keep": 1}}
    )
    files = make_corpus(folder, ROWS)
    print("go", flush=True)
    filters = filter_corpus(files, config, str(out / "work"))
    files = [make_masks(replace(f, filters=o), folder, seed=step) for f, o in zip(files, filters, strict=True)]
    release = publish(export(files, config, str(out), PROVENANCE))
    print(release.version, flush=True)


def start(folder: Path, step: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--folder", str(folder), "--step", str(step)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "go":
        raise SystemExit(f"the process for release {step} did not begin")
    return process


def check(folder: Path, versions: list[str], pruned: str) -> str:
    """The version that latest leads to, one of `versions`, once it and all others there are proved whole.

    :raises SystemExit: it is not, or something else looks like a release.
    """
    from datamask.release.release_folder import find_release, latest_version, list_versions
    from datamask.release.verify import verify

    out = str(folder / "out")
    release = find_release(f"{out}/latest")
    if release.version not in versions or release.version != latest_version(out):
        raise SystemExit(f"latest is {release.version}, not one of {versions}")
    for version in list_versions(out):
        problems = verify(find_release(f"{out}/releases/{version}")).problems
        if problems:
            raise SystemExit(f"{version}: {problems}")
    seen = {path.name for path in (folder / "out" / "releases").iterdir() if not path.name.startswith(".")}
    if not seen <= {*versions, pruned}:
        raise SystemExit(f"releases/ holds {seen}")
    return release.version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="scratch")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step is not None:
        work(arguments.folder / "out", arguments.step)
        return
    template, folder = arguments.folder / "template", arguments.folder / "run"
    shutil.rmtree(arguments.folder, ignore_errors=True)
    first = start(folder, 1).communicate()[0].strip()  # pruned by the third: release.keep is 1
    old = start(folder, 2).communicate()[0].strip()
    shutil.copytree(folder, template, symlinks=True)
    process, began = start(folder, 3), time.perf_counter()
    new = process.communicate()[0].strip()
    seconds = time.perf_counter() - began
    reference = digests(folder / "out" / "releases" / new, skip=TIMED)
    check(folder, [old, new], first)
    rng, outcomes, latest = random.Random(arguments.seed), Counter(), Counter()
    for number in range(arguments.kills):
        shutil.rmtree(folder)
        shutil.copytree(template, folder, symlinks=True)
        process = start(folder, 3)
        moment = rng.uniform(0, seconds)
        time.sleep(moment)
        alive = process.poll() is None
        if alive:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        stage = where(folder)
        outcomes["killed in " + stage if alive else "had ended"] += 1
        latest["the old one" if check(folder, [old, new], first) == old else "the new one"] += 1
        again = start(folder, 3).communicate()[0].strip()
        if again != new or check(folder, [old, new], first) != new:
            raise SystemExit(f"kill {number + 1}: the rerun made {again}, not {new}")
        found = digests(folder / "out" / "releases" / new, skip=TIMED)
        if found != reference:
            changed = sorted(name for name in found.keys() | reference.keys() if found.get(name) != reference.get(name))
            raise SystemExit(f"kill {number + 1} at {moment:.2f} s: the rerun's bytes differ: {changed}")
        left = [p for p in (folder / "out" / "releases").iterdir() if p.name.startswith(".")]
        left += [p for p in (folder / "out" / "work" / "staging").iterdir() if not p.name.startswith(".")]
        if left:
            raise SystemExit(f"kill {number + 1}: left behind {left}")
        print(f"  {number + 1} of {arguments.kills}: {moment:.2f} s of {seconds:.2f}, {stage}", end="\r", flush=True)
    print(
        f"{arguments.kills} kills in {seconds:.2f} s of work; every rerun ended in the same bytes, nothing left behind"
    )
    print("| killed | times |\n|---|--:|")
    for name, times in sorted(outcomes.items()):
        print(f"| {name} | {times} |")
    print("| latest, at once after the kill, verified | times |\n|---|--:|")
    for name, times in sorted(latest.items()):
        print(f"| {name} | {times} |")


def where(folder: Path) -> str:
    """How far the killed process had come, from what it left."""
    out = folder / "out"
    if len(list((out / "releases").glob("0003-*"))):
        return "publish, after the rename"
    if list((out / "work" / "staging").glob("*.json")):
        return "publish, before the rename"
    if list((out / "work" / "staging").glob("*/data/*/*.parquet")):
        return "export, data files"
    if list((out / "work" / "staging").glob("*")):
        return "export, decisions"
    return "filter"


if __name__ == "__main__":
    main()
