"""Many mutated filter expressions and configurations: each gives a result or one message, and touches no file.

    python benchmarks/fuzz_release.py --examples 10000

Every example runs under a time limit and an inotify watch over the folder that the attacks name.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

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
            counts: Counter[bool] = Counter()

            @seed(arguments.seed)
            @settings(
                max_examples=arguments.examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(example=strategy)
            def fuzz(run, example):  # type: ignore[no-untyped-def]
                run(example)

            started = time.perf_counter()
            fuzz(lambda example: counts.update([check(example)]))
            seconds = time.perf_counter() - started
            print(f"| {kind} | {counts.total():,} | {counts[True]:,} | {counts[False]:,} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
