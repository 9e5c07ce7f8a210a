"""Many mutated filter expressions and configurations: each gives a result or one message, and touches no file.

    python benchmarks/fuzz_release.py --examples 10000

Every example runs under a time limit and an inotify watch over the folder that the attacks name.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.release.fuzz import Watch, check_configuration, check_expression, configurations, expressions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
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
            started = time.perf_counter()
            counts = run(strategy, check, arguments)
            seconds = time.perf_counter() - started
            print(f"| {kind} | {counts.total():,} | {counts[True]:,} | {counts[False]:,} | {seconds:.0f} |", flush=True)


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
