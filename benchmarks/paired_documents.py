"""What the flow's process holds of an index of many signatures while it looks for what pairs connect.

    python benchmarks/paired_documents.py 10000000 100000000 1000000000 --share 0.2

The reduces of `datamask.filter.duplicates` between the maps that estimate, choose and group pairs, on pairs by chance
among a share of the documents (each in two pairs), a million at a time, as maps hand them on. Resident memory beyond
what the process had before, at most, in a process of its own for each number of documents.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from datamask.filter.duplicate_candidates import PairedDocuments, parts_of_groups, total_of_groups
from datamask.filter.duplicates import HELD, PAIRED

PAIRS = 1 << 20  # that a map hands on
GROUP = 1 << 17  # documents
LETTERS = 1 << 26  # of a part


def pairs_of(documents: int, share: float) -> Iterator[np.ndarray]:
    """(P, 2) pairs, the same at each call."""
    named = int(documents * share)
    for seed, first in enumerate(range(0, named, PAIRS)):
        count = min(PAIRS, named - first)
        places = np.random.default_rng(seed).integers(0, named, (count, 2))
        yield (places * (documents / max(named, 1))).astype(np.int64)


def reduce_pairs(documents: int, share: float) -> int:
    """What the process does; returns how many documents are in pairs."""
    paired = PairedDocuments(documents, lambda: pairs_of(documents, share))
    for _ in paired.spread(paired.lowest, np.arange, documents):
        pass
    part, place = np.zeros(paired.count, np.int64), 0
    for first in range(0, documents, GROUP):
        among = paired.among(first, min(first + GROUP, documents))
        letters = np.full(np.count_nonzero(among), 2000)
        total_of_groups(paired.lowest, letters, place, part)
        place += len(letters)
    parts_of_groups(paired.lowest, part, LETTERS)
    for _ in paired.spread(part, lambda first, last: np.full(last - first, -1, np.int32)):
        pass
    return paired.count


def resident() -> float:
    """Bytes of this process, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument("--share", type=float, default=0.2, help="of the documents that pairs are drawn from")
    parser.add_argument("--alone", action="store_true", help="in this process")
    arguments = parser.parse_args()
    if not arguments.alone:
        print("| documents | in pairs | GB | of these by the model | seconds |\n|--:|--:|--:|--:|--:|")
        for documents in arguments.documents:
            command = [sys.executable, __file__, str(documents), "--share", str(arguments.share), "--alone"]
            subprocess.run(command, check=True)
        return
    reduce_pairs(1_000_000, arguments.share)  # compiles, and holds a block
    [documents], before, began = arguments.documents, resident(), time.perf_counter()
    count = reduce_pairs(documents, arguments.share)
    held, seconds = resident() - before, time.perf_counter() - began
    model = HELD * documents + PAIRED * count
    print(f"| {documents:,} | {count:,} | {held / 1e9:.2f} | {model / 1e9:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
