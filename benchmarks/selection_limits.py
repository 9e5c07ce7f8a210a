"""Seconds under limits: tokens, quotas, a length bound beside a plain budget of documents, and another version beside.

    python benchmarks/selection_limits.py pool.npz --documents 20488
    python benchmarks/selection_limits.py pool.npz --documents 20488 --beside /path/to/another/checkout --most 60

pool.npz: `features` (N, d), `quality` (N,), `tokens` (N,) and the columns for quotas, `domain` and `source` (N,). More
documents than it has are drawn around its own: each a document's features, moved a little towards another's. Seconds
are the process's own of one thread, `select` alone; the other version's objective is by this one's calibration (its
bound is by its own); a case that takes more than `--most` is given up.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

CASES: dict[str, dict[str, Any]] = {
    "documents": {},
    "10 % of tokens": {"tokens": True},
    "length 5 %": {"length_tolerance": 0.05},
    "quota, one column": {"quotas": [{"column": "domain", "as_pool": 0.02}]},
    "tokens, quota": {"tokens": True, "quotas": [{"column": "domain", "as_pool": 0.02}]},
    "tokens, length 10 %": {"tokens": True, "length_tolerance": 0.1},
    "two quotas": {"quotas": [{"column": "domain", "as_pool": 0.02}, {"column": "source", "as_pool": 0.02}]},
    "two quotas, length": {
        "quotas": [{"column": "domain", "as_pool": 0.02}, {"column": "source", "as_pool": 0.02}],
        "length_tolerance": 0.05,
    },
    "tokens, two quotas, length": {
        "tokens": True,
        "quotas": [{"column": "domain", "as_pool": 0.02}, {"column": "source", "as_pool": 0.02}],
        "length_tolerance": 0.1,
    },
}


class GivenUp(Exception):
    pass


def pool(path: str, count: int) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        kept = {name: stored[name] for name in ("features", "quality", "tokens", "domain", "source")}
    have = len(kept["quality"])
    if count <= have:
        return {name: values[:count] for name, values in kept.items()}
    rng = np.random.default_rng(0)
    index, other = rng.integers(have, size=(2, count))
    features = np.empty((count, kept["features"].shape[1]), np.float16)
    for start in range(0, count, 16_384):
        part = slice(start, min(start + 16_384, count))
        moved = kept["features"][index[part]].astype(np.float32)
        moved += rng.uniform(0, 0.5, (len(moved), 1)).astype(np.float32) * kept["features"][other[part]]
        features[part] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    drawn = {name: values[index] for name, values in kept.items() if name != "features"}
    drawn["quality"] = drawn["quality"] + 0.05 * rng.standard_normal(count)
    drawn["tokens"] = np.maximum(1, np.round(drawn["tokens"] * np.exp(0.2 * rng.standard_normal(count))))
    return {"features": features, **drawn}


def run(arguments: argparse.Namespace) -> None:
    """A row a case: name, seconds, objective, bound, what is broken."""
    from datamask import select

    def give_up(*_: Any) -> None:
        raise GivenUp

    signal.signal(signal.SIGALRM, give_up)
    for count in arguments.documents:
        data = pool(arguments.pool, count)
        groups = {name: data[name] for name in ("domain", "source")}
        warm = {"tokens": data["tokens"][:500], "groups": {name: values[:500] for name, values in groups.items()}}
        select(data["features"][:500], data["quality"][:500], budget_documents=50, **warm)
        for metric in arguments.metric:
            for name in arguments.case:
                case = dict(CASES[name])
                share = 0.1
                if case.pop("tokens", False):
                    case["budget_tokens"] = int(share * data["tokens"].sum())
                else:
                    case["select_ratio"] = share
                began = time.process_time()
                signal.alarm(arguments.most)
                try:
                    found = select(
                        data["features"],
                        data["quality"],
                        tokens=data["tokens"],
                        groups=groups,
                        algorithm=metric,
                        **case,
                    )
                    scales = {name: dict(scale) for name, scale in getattr(found, "scales", {}).items()}
                    told = json.dumps({"raw": dict(found.statistics), "scales": scales})
                    facts = f"{found.objective:.5f}|{found.upper_bound:.5f}|{told}"
                except GivenUp:
                    facts = "–|–|{}"
                except Exception as error:
                    facts = f"{str(error)[:40]}|–|{{}}"
                finally:
                    signal.alarm(0)
                spent = time.process_time() - began
                seconds = f"> {spent:.0f}" if facts.startswith("–") else f"{spent:.1f}"
                print(f"{count:,}|{metric}|{name}|{seconds}|{facts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pool")
    parser.add_argument("--documents", type=int, nargs="+", default=[20_488])
    parser.add_argument("--metric", nargs="+", default=["Pair_simi", "DiSF"])
    parser.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--most", type=int, default=120, help="seconds of wall time, after which a case is given up")
    parser.add_argument("--beside", help="a checkout of another version, run too")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rows:
        run(arguments)
        return
    trees = [arguments.beside, None] if arguments.beside else [None]
    print("| documents | metric | case |" + " seconds, objective, bound |" * len(trees))
    print("|---|---|---|" + "---|" * len(trees))
    for count in arguments.documents:
        for metric in arguments.metric:
            results = []
            for tree in trees:
                here = [
                    sys.executable,
                    str(Path(__file__).resolve()),
                    arguments.pool,
                    "--rows",
                    "--most",
                    str(arguments.most),
                ]
                here += ["--documents", str(count), "--metric", metric, "--case", *arguments.case]
                path = str(Path(tree or Path(__file__).parents[1]).resolve())
                environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
                found = subprocess.run(here, env=environment, capture_output=True, text=True, cwd=path)
                lines = [line.split("|") for line in found.stdout.splitlines()]
                results.append({line[2]: line[3:] for line in lines if len(line) == 7})
                if found.returncode:
                    print(found.stderr[-500:], file=sys.stderr)
            for name in arguments.case:
                cells = [each.get(name, ["–", "–", "–", "{}"]) for each in results]
                scales = json.loads(cells[-1][3]).get("scales", {})
                for cell in cells[:-1]:  # by the last one's calibration
                    raw = json.loads(cell[3]).get("raw")
                    if raw and scales:
                        cell[1] = f"{sum(s['scale'] * (raw[n] - s['zero']) for n, s in scales.items()):.5f}"
                print(f"| {count:,} | {metric} | {name} | " + " | ".join(", ".join(cell[:3]) for cell in cells) + " |")


if __name__ == "__main__":
    main()
