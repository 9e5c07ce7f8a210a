"""Every kind of selection on curated corpora: the gap and the processor seconds of the stage `prices`.

    datamask curate --input CORPUS --output OUT
    python benchmarks/selection_cells.py OUT [OUT …] --target ITEMS.jsonl [--only default Pair_simi]

Without limits, under a bound on length and under a quota of languages. Plain calls of one process, without reading the
words of the texts, which is a stage of its own. What was found with a seed is kept: give another to measure again.
"""

from __future__ import annotations

import argparse
import itertools
import time

from datamask.config import load_config
from datamask.selection.stage import learn_prices, with_their_atoms
from datamask.stages import recorded

KINDS = {
    "default": [],
    "target": [],
    "Pair_simi": ["select.algorithm=Pair_simi"],
    "DiSF": ["select.algorithm=DiSF"],
}
UNITS = {"tokens": [], "documents": ["select.select_ratio=0.1"]}
LIMITS = {
    "no limit": [],
    "length": ["select.length_tolerance=0.1"],
    "quota": ["select.quotas=[{column: language, as_pool: 0.1}]"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", nargs="+", help="of `datamask curate`")
    parser.add_argument("--target", help="a file of texts that `target` chooses for; without it there is no such row")
    parser.add_argument("--only", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| candidates | objective | budget | " + " | ".join(LIMITS) + " |")
    print("|--:|---|---" + "|--:" * len(LIMITS) + "|", flush=True)
    for output, kind, unit in itertools.product(given.outputs, given.only, UNITS):
        if kind == "target" and not given.target:
            continue
        files, config, work = recorded(output)
        target = [f"select.target=[{given.target}]"] if kind == "target" else []
        cells = []
        for limit in LIMITS.values():
            changes = [*KINDS[kind], *target, *UNITS[unit], *limit, f"select.seed={given.seed}"]
            settings = load_config(None, changes, config.model_dump(mode="json"))
            ready, began = with_their_atoms(files, settings, work), time.process_time()
            found = learn_prices(ready, settings, work).facts
            cells.append(f"{found['gap']:.2%}, {time.process_time() - began:.0f} s")
        print("| " + " | ".join([f"{found['documents']:,}", kind, unit, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
