"""Seconds of the report of a curation that is there, wall and processor, in a fresh process each time.

    python benchmarks/report_real.py out/real --checkout . --checkout ../before --repeat 2

Each checkout's own code writes the report of the same recorded stages' files, one after the other, so that they meet
the same machine. Wall time says little on a busy one; processor seconds, with those of child processes, do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile

_ONE = """
import json, resource, sys, time
from datamask import storage
from datamask.release import Staged
from datamask.release.release_folder import find_release
from datamask.report import write_report
from datamask.stages import recorded
import sklearn.manifold, datamask.report.report
place, out = sys.argv[1:]
files, config, work = recorded(place)
certificate = find_release(place).manifest()["provenance"]["certificate"]
def used():
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)
wall, processor = time.perf_counter(), used()
write_report(Staged(out + "/release", out, "key"), files, config, certificate)
print(json.dumps([time.perf_counter() - wall, used() - processor]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", help="an output folder whose work/ is there")
    parser.add_argument("--checkout", action="append", default=None, help="a checkout to measure; several times")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{'checkout':<24}{'wall s':>10}{'processor s':>14}")
    for _ in range(arguments.repeat):
        for checkout in arguments.checkout or ["."]:
            with tempfile.TemporaryDirectory() as out:
                command = [sys.executable, "-c", _ONE, arguments.place, out]
                ended = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
            wall, processor = json.loads(ended.stdout.splitlines()[-1])
            print(f"{checkout:<24}{wall:>10.1f}{processor:>14.1f}", flush=True)


if __name__ == "__main__":
    main()
