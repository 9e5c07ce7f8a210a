"""Golden bytes: what a release holds, as sha256, beside what it held when they were last recorded.

    python benchmarks/golden.py                   # the real corpus, the dirty files, 2,000 documents
    python benchmarks/golden.py --corpus small    # 2,000 documents alone, as `make test` does
    python benchmarks/golden.py --record          # after a change of bytes that was meant

The hashes cover `data/`, `decisions/` and the quarantine. They hold for one kind of processor, because sums of floats
differ between kinds; golden.json names it. Exit status 1: bytes differ from what was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from threadpoolctl import threadpool_info

from datamask import Release, curate

RECORDED = Path(__file__).with_name("golden.json")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL = Path(os.environ.get("DATAMASK_REAL") or SHARED / "real")
PARTS = ("data", "decisions", "quarantine")
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "limits": {
        "token_ratio": 0.1,
        "length_tolerance": 0.1,
        "quotas": [{"column": "language", "as_pool": 0.05}],
    },
    "Pair_simi": {"algorithm": "Pair_simi", "lamb": 0.5},
    "DiSF": {"algorithm": "DiSF", "lamb": 0.5},
    "target": {"target": [str(SHARED / "tasks" / "arc_easy.jsonl.gz"), str(SHARED / "tasks" / "piqa.jsonl.gz")]},
}
CORPORA: Mapping[str, Sequence[str]] = {
    "small": [str(REAL / "real-extra.jsonl.gz")],
    "real": [str(REAL / "real-*.parquet")],
    "dirty": [str(REAL / "dirty")],
}


def processor() -> str:
    """The processor's model, and what PyTorch and OpenBLAS take it for: libraries choose their kernels by these."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    facts = dict(line.split("\t", 1) for line in reversed(lines) if "\t" in line)
    told = [facts.get(name, "").strip("\t: ") for name in ("model name", "cpu family", "model")]
    told += [torch.backends.cpu.get_cpu_capability()]
    told += [flag for flag in facts.get("flags", "").split() if flag.startswith("amx")]  # a virtual machine may hide it
    told += sorted({str(found["architecture"]) for found in threadpool_info() if "architecture" in found})
    told += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("OPENBLAS_")]
    return " ".join(filter(None, told)) or platform.machine()


def hashes(release: Release) -> dict[str, str]:
    """sha256 by part of a release: over the names, types and rows of its files, in the order of their names.

    The files' metadata is left out: it holds the release's key, which changes with the version of any stage.
    """
    found = {}
    for part in PARTS:
        total = sha256()
        for path in sorted(Path(release.path).rglob("*.parquet")):
            name = path.relative_to(release.path)
            if Path(name.parts[0]).stem == part:
                table = pq.read_table(path).replace_schema_metadata(None).combine_chunks()
                if "file" in table.column_names:  # of a quarantined row; where the corpus lies is no part of it
                    place = table.column_names.index("file")
                    table = table.set_column(place, "file", pc.replace_substring(table["file"], f"{REAL}/", ""))
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as stream:
                    stream.write_table(table)
                total.update(f"{name}\0".encode() + sink.getvalue())
        found[part] = total.hexdigest()[:16]
    return found


def measure(corpus: str, output: Path, configurations: Sequence[str] = tuple(CONFIGURATIONS)) -> dict[str, dict]:
    """Curates one corpus by each configuration into `output`; what is embedded once serves all.

    :returns: sha256 by configuration and part.
    """
    run = {"allow_failed_shards": True, "quarantine": 1.0} if corpus == "dirty" else {}
    found = {}
    for name in configurations:
        release = curate(CORPORA[corpus], output, select=CONFIGURATIONS[name], run=run, progress=False)
        found[name] = hashes(release)
    return found


def recorded() -> dict[str, Any]:
    """What golden.json holds."""
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {"processor": processor()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", choices=[*CORPORA], nargs="+", default=[*CORPORA])
    parser.add_argument("--record", action="store_true", help="write golden.json anew")
    arguments = parser.parse_args()
    before, differ = recorded(), False
    if before["processor"] != processor() and not arguments.record:
        print(f"recorded on {before['processor']}, and this is {processor()}: floats may differ")
    print("| corpus | configuration | part | recorded | now | |\n|---|---|---|---|---|---|")
    for corpus in arguments.corpus:
        names = ["default"] if corpus == "dirty" else [*CONFIGURATIONS]
        with tempfile.TemporaryDirectory() as folder:
            found = measure(corpus, Path(folder) / "out", names)
        for name, parts in found.items():
            for part, now in parts.items():
                old = before.get(corpus, {}).get(name, {}).get(part, "")
                differ |= old != now
                print(f"| {corpus} | {name} | {part} | {old} | {now} | {'same' if old == now else '**differs**'} |")
        before[corpus] = found
    if arguments.record:
        RECORDED.write_text(json.dumps(before | {"processor": processor()}, indent=1) + "\n")
    return int(differ and not arguments.record)


if __name__ == "__main__":
    sys.exit(main())
