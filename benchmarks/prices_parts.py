"""Where the time of the stage `prices` goes: processor seconds of its parts, on a curated corpus solved as one problem.

    python benchmarks/prices_parts.py --corpus out/curated [--search 1 3.3] [--set select.lamb=0.5]

A part's seconds are those of all its calls, on all threads; the parts below `solve` lie within it, and the two halves
of the mask's search within the calibration and the search. A first call on few documents compiles the loops.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from datamask.config import load_config
from datamask.maps import Handed
from datamask.selection import arrays, calibration, candidates, stage
from datamask.selection.candidates import group_of, read_candidates
from datamask.selection.cover import greedy_search, solve
from datamask.selection.cover.counting import with_atoms
from datamask.stages import recorded

PARTS: list[tuple[str, Any, str]] = [
    ("read features", candidates.CandidateGroup, "features"),
    ("read words", candidates, "read_ngrams"),
    ("solve", arrays, "solve_problem"),
    ("calibration", calibration, "diversity_span"),
    ("fractional optimum and bound (calibration's too)", solve, "maximise"),
    ("search for the mask", solve, "to_mask"),
    ("rounds of comparing (calibration's too)", greedy_search.Search, "rounds"),
    ("following to a mask (calibration's too)", greedy_search, "sharpen"),
]


def timed(work: Callable[..., Any], seconds: dict[str, float], name: str) -> Callable[..., Any]:
    def run(*given: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return work(*given, **named)
        finally:
            seconds[name] = seconds.get(name, 0.0) + time.process_time() - began

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--search", type=float, nargs="+", default=[1.0], help="values of select.coverage.search")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    all_files, config, work = recorded(arguments.corpus)
    config = load_config(None, arguments.set, config.model_dump(mode="json"))
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    ordered = [with_atoms(files, config, work) for files in ordered]
    group = group_of(ordered, (read_candidates(files, config) for files in ordered), config)
    arrays = {name: values[:300] for name, values in (group.facts.arrays or {}).items()}
    facts = Handed(arrays={**arrays, "ends": group.facts.read("ends")[0].clip(max=300)})
    stage.select_jointly(replace(group, facts=facts, count=min(300, len(group))), config.selection)
    seconds: dict[str, float] = {}
    for name, module, function in PARTS:
        setattr(module, function, timed(getattr(module, function), seconds, name))
    names = [*(name for name, *_ in PARTS), "in all", "gap"]
    columns = []
    for longer in arguments.search:
        seconds.clear()
        coverage = config.selection.coverage.model_copy(update={"search": longer})
        began = time.process_time()
        _, found = stage.select_jointly(group, config.selection.model_copy(update={"coverage": coverage}))
        seconds["in all"] = time.process_time() - began
        columns.append([*(f"{seconds.get(name, 0.0):.1f}" for name in names[:-1]), f"{found['gap']:.2%}"])
    print("| part, processor s | " + " | ".join(f"search {longer:g}" for longer in arguments.search) + " |")
    print("|---" + "|--:" * len(columns) + "|")
    for name, *cells in zip(names, *columns, strict=True):
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
