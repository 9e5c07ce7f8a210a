"""The default quality score's processor seconds, beside another version's, in turn on the same documents.

    git worktree add --detach OLD 527eb12
    python benchmarks/quality_time.py --data '../shared/data/real/real-*.parquet' --before OLD

Each version scores in a process of its own that imports it, one thread, after a warm-up; texts are read before the
clock runs. `fit`: what counts the sample that the content score compares with, once a run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

SCORE = """
import sys, time
import duckdb, numpy as np
rows = duckdb.sql(f"select text, language from read_parquet('{sys.argv[1]}') where trim(text) <> ''").fetchall()
rows = [row for row in rows if not row[0].isspace()][: int(sys.argv[2])]
texts, languages = [row[0] for row in rows], [row[1] for row in rows]
from datamask.quality.documents import Documents
began = time.process_time()
try:
    from datamask.quality import pool
    from datamask.quality.content import ContentScorer
    scorer, stated = ContentScorer(pool.fit(*pool.sample(rows))), {"languages": languages}
except ImportError:  # before the content score the rules were the default
    from datamask.quality.simple import HeuristicScorer
    scorer, stated = HeuristicScorer(), {}
fit = time.process_time() - began

def score(count):
    for first in range(0, count, 1000):
        part = slice(first, min(first + 1000, count))
        names = {name: values[part] for name, values in stated.items()}
        scorer.score(Documents(np.arange(part.stop - part.start), texts[part], **names))

score(1000)
began = time.process_time()
score(len(texts))
print(len(texts), sum(map(len, texts)), fit, time.process_time() - began)
"""


def seconds(code: str, data: str, documents: int) -> tuple[int, int, float, float]:
    """(documents, characters, processor seconds of the fit, of the scoring) of a version's folder."""
    settings = {**os.environ, "PYTHONPATH": code, "OMP_NUM_THREADS": "1"}
    given = [sys.executable, "-c", SCORE, data, str(documents)]
    done = subprocess.run(given, env=settings, capture_output=True, text=True, check=True, cwd=code)
    count, characters, fit, spent = done.stdout.split()[-4:]  # duckdb may show its progress before
    return int(count), int(characters), float(fit), float(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="glob of parquet files")
    parser.add_argument("--before", required=True, help="a checkout of the other version")
    parser.add_argument("--documents", type=int, default=10**9)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    data = str(Path(given.data).absolute())
    versions = {"this": str(Path(__file__).resolve().parents[1]), "before": str(Path(given.before).absolute())}
    found = {name: [] for name in versions}
    for _ in range(given.repeats):
        for name, code in versions.items():
            found[name].append(seconds(code, data, given.documents))
    print("| version | documents | MB | fit, processor s | scoring, processor s | times |\n|---|---|---|---|---|---|")
    least = {name: min(run[3] for run in runs) for name, runs in found.items()}
    for name, runs in found.items():
        count, characters, fit, _ = runs[0]
        times = least[name] / least["before"]
        print(f"| {name} | {count:,} | {characters / 1e6:.0f} | {fit:.1f} | {least[name]:.1f} | {times:.2f} |")


if __name__ == "__main__":
    main()
