"""Mutated filter expressions, configurations and releases: each gives a result or one message, and touches no file.

    python benchmarks/fuzz_release.py --examples 10000
    python benchmarks/fuzz_release.py --kind releases --examples 10000 --results hostile.jsonl --seconds 240  # again

Every expression and configuration runs under a time limit and an inotify watch over the folder that the attacks name;
every hostile release goes through verify (with --against), explain, diff and push in a folder that is compared after.
With `--results` the releases go on where the last call stopped; TMPDIR on a file system in memory saves half the time.
"""

from __future__ import annotations

import argparse
import contextlib
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

from pieces import Pieces

from datamask.release.release_folder import ReleaseFolder
from tests.release.fuzz import Watch, check_configuration, configurations, expressions, time_limit, try_expression
from tests.release.fuzz_hostile import check_hostile
from tests.release.made import released
from tests.release.made import settings as made_settings

PIECE = 50  # releases between two lines of --results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="of the releases: where what is done is kept")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the releases: stop after so many")
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
            "filter expressions": (expressions(folder / "secret.txt"), lambda text: try_expression(text, watch)),
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
    end = arguments.seed + arguments.examples
    starts = range(arguments.seed, end, PIECE)
    pieces = Pieces(arguments.results)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, original = released(folder / "made", made_settings(release={"rows_per_file": 60}))

        def piece(first: int) -> dict[str, Any]:
            numbers = range(first, min(first + PIECE, end))
            return attack(original, folder / "made" / "input", folder / "box", numbers)

        with contextlib.suppress(KeyboardInterrupt):  # the table says how far it came
            pieces.run(iter(starts), piece, arguments.seconds)
    outcomes: dict[str, Counter[str]] = {}
    for done in pieces.done:
        for command, found in done["outcomes"].items():
            outcomes.setdefault(command, Counter()).update(found)
    kinds = sorted({kind for counts in outcomes.values() for kind in counts})
    print(f"| hostile releases | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}")
    for command, counts in outcomes.items():
        print(f"| {command} | {' | '.join(f'{counts[kind]:,}' for kind in kinds)} |")
    examples, defects = sum(done["examples"] for done in pieces.done), [d for p in pieces.done for d in p["defects"]]
    seconds, slowest = sum(done["seconds"] for done in pieces.done), max(done["slowest"] for done in pieces.done)
    print(
        f"{examples:,} releases in {seconds:.0f} s of processor, the slowest {slowest:.1f} s, {len(defects)} defects\n"
    )
    if defects:
        raise SystemExit(1)


def attack(original: ReleaseFolder, corpus: Path, box: Path, numbers: range) -> dict[str, Any]:
    """What became of the hostile releases of these numbers."""
    outcomes: dict[str, Counter[str]] = {}
    defects, slowest, started = [], 0.0, time.process_time()
    for number in numbers:
        began = time.perf_counter()
        try:
            with time_limit(f"release {number}"):
                found = check_hostile(original, corpus, box, number)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(at.filename).name}:{at.lineno}"
            defects.append(f"release {number}: {type(error).__name__} {str(error)[:200]} ({place})")
            print(defects[-1], flush=True)
            found = {"defect": type(error).__name__}
        finally:
            shutil.rmtree(box, ignore_errors=True)
        slowest = max(slowest, time.perf_counter() - began)
        for command, outcome in found.items():
            outcomes.setdefault(command, Counter())[outcome] += 1
    seconds = time.process_time() - started
    return {
        "outcomes": outcomes, "defects": defects, "slowest": slowest, "seconds": seconds, "examples": len(numbers)
    }  # fmt: skip


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
