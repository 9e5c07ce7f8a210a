"""What the flow's process holds of an index of many signatures while it looks for what pairs connect.

    python benchmarks/paired_documents.py 10000000 100000000 1000000000 --share 0.2 --folder SCRATCH

The reduces of `datamask.filter.duplicates` between the maps that estimate, choose and group pairs, on pairs by chance
among a share of the documents (each in two pairs), dealt as maps do, a million at a time. Resident memory beyond what
the process had before, at most, in a process of its own for each number of documents.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from datamask.filter.connected import ConnectedDocuments, deal_pairs
from datamask.filter.duplicate_candidates import part_of
from datamask.maps import write_joined

PAIRS = 1 << 20  # that a map deals


def deal(folder: Path, documents: int, share: float) -> list[str]:
    """Files of pairs, as the maps write them."""
    named, found = int(documents * share), []
    for number, first in enumerate(range(0, named, PAIRS)):
        count = min(PAIRS, named - first)
        places = np.random.default_rng(number).integers(0, named, (2, count))
        one, other = (places * (documents / named)).astype(np.int64)
        found.append(str(folder / f"pairs-{number}"))
        deal_pairs(found[-1], one, other, documents)
    return found


def reduce_pairs(folder: Path, urls: list[str], documents: int) -> int:
    """What the process does for both kinds of pairs; returns how many documents are in pairs."""
    kind = np.int32 if documents < 1 << 31 else np.int64
    for name in ("copies", "part"):
        found = ConnectedDocuments(str(folder / name), urls, documents)
        if name == "copies":
            column = found.column(lambda first, last: np.arange(first, last, dtype=kind))
        else:
            column = found.column(lambda first, last: np.full(last - first, -1, np.int32), lambda low: part_of(low, 99))
        write_joined(str(folder / f"{name}.npy"), column, documents)
    return found.count


def resident() -> float:
    """Bytes of this process, at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument("--share", type=float, default=0.2, help="of the documents that pairs are drawn from")
    parser.add_argument("--folder", help="for files, 20 bytes a document (default: a temporary one)")
    parser.add_argument("--alone", action="store_true", help="in this process")
    given = parser.parse_args()
    if not given.alone:
        print("| documents | in pairs | GB | seconds |\n|--:|--:|--:|--:|", flush=True)
        for documents in given.documents:
            command = [sys.executable, __file__, str(documents), "--share", str(given.share), "--alone"]
            subprocess.run([*command, *(["--folder", given.folder] if given.folder else [])], check=True)
        return
    [documents] = given.documents
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        folder = Path(temporary)
        urls = deal(folder, documents, given.share)
        before, began = resident(), time.perf_counter()
        count = reduce_pairs(folder, urls, documents)
        held, seconds = resident() - before, time.perf_counter() - began
    print(f"| {documents:,} | {count:,} | {held / 1e9:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
