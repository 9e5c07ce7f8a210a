"""Every kind of selection on curated corpora: objective, bound, gap and processor seconds, as the stage `prices` finds
them.

    datamask curate --input CORPUS --output OUT
    python benchmarks/selection_cells.py OUT [OUT …] --target ITEMS.jsonl [--only default Pair_simi]

Plain calls of one process, without reading the words of the texts, which is a stage of its own. `by groups` is where
the corpus was too large for one problem. What was found with a seed is kept: give another to measure again.
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
    "none": [],
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
    print("| candidates | objective | budget | limit | value | bound | gap | processor s | by groups |")
    print("|--:|---|---|---|--:|--:|--:|--:|---|", flush=True)
    for output in given.outputs:
        files, config, work = recorded(output)
        for kind, unit, limit in itertools.product(given.only, UNITS, LIMITS):
            if kind == "target" and not given.target:
                continue
            target = [f"select.target=[{given.target}]"] if kind == "target" else []
            changes = [*KINDS[kind], *target, *UNITS[unit], *LIMITS[limit], f"select.seed={given.seed}"]
            settings = load_config(None, changes, config.model_dump(mode="json"))
            ready, began = with_their_atoms(files, settings, work), time.process_time()
            found = learn_prices(ready, settings, work).facts
            spent = time.process_time() - began
            cells = [f"{found['documents']:,}", kind, unit, limit, f"{found['objective']:.5f}"]
            cells += [f"{found['upper_bound']:.5f}", f"{found['gap']:.2%}", f"{spent:.1f}"]
            print("| " + " | ".join([*cells, "yes" if "undecided" in found else ""]) + " |", flush=True)


if __name__ == "__main__":
    main()
