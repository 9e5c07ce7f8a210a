"""Mutated filter expressions, configurations and releases: each gives a result or one message, and touches no file.

    python benchmarks/fuzz_release.py --examples 10000
    python benchmarks/fuzz_release.py --kind releases --examples 10000 --seed 0

Every expression and configuration runs under a time limit and an inotify watch over the folder that the attacks name;
every hostile release goes through verify (with --against), explain, diff and push in a folder that is compared after.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' own mutations

from tests.release.fuzz import Watch, check_configuration, check_expression, configurations, expressions, time_limit
from tests.release.fuzz_hostile import check_hostile
from tests.release.made import released
from tests.release.made import settings as made_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=["expressions", "configurations", "releases"], action="append")
    arguments = parser.parse_args()
    chosen = arguments.kind or ["expressions", "configurations", "releases"]
    if "releases" in chosen:
        hostile(arguments)
    if chosen == ["releases"]:
        return
    print("| input | examples | valid | refused with a message | seconds |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "secret.txt").write_text("secret")
        watch = Watch(folder)
        kinds = {
            "filter expressions": (expressions(folder / "secret.txt"), lambda text: check_expression(text, watch)),
            "configurations": (configurations(), lambda data: check_configuration(data, folder, watch)),
        }
        for kind, (strategy, check) in kinds.items():
            if kind.split()[-1] not in chosen:
                continue
            started = time.perf_counter()
            counts = run(strategy, check, arguments)
            seconds = time.perf_counter() - started
            print(f"| {kind} | {counts.total():,} | {counts[True]:,} | {counts[False]:,} | {seconds:.0f} |", flush=True)


def hostile(arguments: argparse.Namespace) -> None:
    """The table of what became of the hostile releases; a defect is told with the number that makes it."""
    started = time.perf_counter()
    outcomes: dict[str, Counter[str]] = {}
    slowest = 0.0
    defects: list[str] = []
    done = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, original = released(folder / "made", made_settings(release={"rows_per_file": 60}))
        for number in range(arguments.seed, arguments.seed + arguments.examples):
            box = folder / "box"
            began = time.perf_counter()
            try:
                with time_limit(f"release {number}"):
                    found = check_hostile(original, folder / "made" / "input", box, number)
            except KeyboardInterrupt:
                break  # the table says how far it came
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(at.filename).name}:{at.lineno}"
                defects.append(f"release {number}: {type(error).__name__} {str(error)[:200]} ({place})")
                print(defects[-1], flush=True)
                found = {"defect": type(error).__name__}
            done += 1
            slowest = max(slowest, time.perf_counter() - began)
            for command, outcome in found.items():
                outcomes.setdefault(command, Counter())[outcome] += 1
            shutil.rmtree(box)
    kinds = sorted({kind for counts in outcomes.values() for kind in counts})
    print(f"| hostile releases | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}")
    for command, counts in outcomes.items():
        print(f"| {command} | {' | '.join(f'{counts[kind]:,}' for kind in kinds)} |")
    seconds = time.perf_counter() - started
    print(f"{done:,} releases in {seconds:.0f} s, the slowest {slowest:.1f} s, {len(defects)} defects\n")
    if defects:
        raise SystemExit(1)


def run(strategy: SearchStrategy[Any], check: Callable[[Any], bool], arguments: argparse.Namespace) -> Counter[bool]:
    """How many examples were valid, and how many refused; the first that is neither raises."""
    counts: Counter[bool] = Counter()

    @seed(arguments.seed)
    @settings(
        max_examples=arguments.examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def fuzz(example: Any) -> None:
        counts[check(example)] += 1

    fuzz()
    return counts


if __name__ == "__main__":
    main()
