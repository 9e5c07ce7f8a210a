"""The whole of `datamask forget`: how long 100,000 addresses of many rows take, and whether anything of them is left.

    python benchmarks/forget_whole.py FOLDER [--rows 1000000] [--urls 100000]

Writes synthetic rows (url, id, text, a score) in files of 250,000. One in a hundred is a copy of an earlier row at
another address: every second one the same text, the others with one word in forty replaced. They are curated by their
score, without vectors. Then addresses of a tenth of the rows and more are forgotten, each in another spelling (case of
the host, `www.`, port, scheme, a fragment, a last slash), with as many that no row has. What should be gone is known
from the numbers in the paths; that nothing of it is left is counted by DuckDB in the new release's files.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.config import load_config
from datamask.engine import Threads
from datamask.forgetting import forget_lists
from datamask.run import curate

FILE = 250_000
COPIES = 100  # rows a copy
WORDS, LENGTH = 20_000, 40  # of the vocabulary, of a text
SITES = 200_003
SPELLINGS = (
    "http://Site{0}.Example.ORG/page/{1}",
    "https://www.site{0}.example.org/page/{1}/",
    "HTTPS://site{0}.example.org:443/page/{1}#top",
    "site{0}.example.org/page/{1}",
)
SETTINGS = [
    "quality.scorers=[{kind: column, name: score, column: score}]",
    "select.solver=top-quality",
    "select.select_ratio=0.5",
]


def original_of(rows: np.ndarray) -> np.ndarray:
    """The row each is a copy of; others are their own. The last of every `COPIES` rows is a copy of the first."""
    return np.where(rows % COPIES == COPIES - 1, rows - (COPIES - 1), rows)


def write(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(11)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = np.array(["".join(generator.choice(letters, generator.integers(3, 10))) for _ in range(WORDS)])
    for first in range(0, rows, FILE):
        numbers = np.arange(first, min(first + FILE, rows))
        path = folder / f"part-{first:09d}.parquet"
        if path.exists():
            continue
        own = np.random.default_rng([12, first])
        codes = own.integers(0, WORDS, (len(numbers), LENGTH))
        codes = codes[original_of(numbers) - first]
        near = np.flatnonzero((numbers % COPIES == COPIES - 1) & (numbers // COPIES % 2 == 1))
        codes[near, LENGTH - 2] = own.integers(0, WORDS, len(near))
        table = {
            "url": [f"https://site{n % SITES}.example.org/page/{n}" for n in numbers.tolist()],
            "id": [f"<urn:uuid:{n:032x}>" for n in numbers.tolist()],
            "text": [" ".join(row) for row in vocabulary[codes].tolist()],
            "score": own.random(len(numbers)),
        }
        pq.write_table(pa.table(table), path, row_group_size=50_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--urls", type=int, default=100_000)
    given = parser.parse_args()
    out = str(given.folder / "out")
    write(given.folder / "rows", given.rows)
    began = time.perf_counter()
    config = load_config(overrides=[f"corpus.input=[{given.folder / 'rows'}]", *SETTINGS])
    curate(config, out)
    curated = time.perf_counter() - began

    wanted = np.random.default_rng(7).choice(given.rows, given.urls, replace=False)
    spelt = [SPELLINGS[n % 4].format(n % SITES, n) for n in wanted.tolist()]
    spelt += [f"https://site{n % SITES}.example.org/page/none-{n}" for n in range(given.urls)]
    (given.folder / "list.txt").write_text("\n".join(spelt))
    began, processor = time.perf_counter(), time.process_time()
    told = forget_lists(out, {"urls": [str(given.folder / "list.txt")]}, lambda config: Threads(config))
    took, processor = time.perf_counter() - began, time.process_time() - processor

    every = np.arange(given.rows)
    gone = np.isin(every, wanted)
    copies = np.isin(original_of(every), original_of(wanted)) & ~gone
    release = Path(told["release"])
    query = f"SELECT regexp_extract(url, '[0-9]+$')::BIGINT FROM '{release}/data/**/*.parquet'"
    left = np.array([row[0] for row in duckdb.sql(query).fetchall()])
    counts = told["forgotten"]
    churn = (counts["were_chosen"] + counts["left_besides"]) / counts["were_chosen"]
    print("| rows | addresses | curated, s | forgotten, s | processor s | documents | left | copies left | churn |")
    print(f"|{'--:|' * 9}")
    print(
        f"| {given.rows:,} | {len(spelt):,} | {curated:.0f} | {took:.0f} | {processor:.0f} | {counts['documents']:,} | "
        f"{gone[left].sum():,} of {gone.sum():,} | {copies[left].sum():,} of {copies.sum():,} | {churn:.3f} |"
    )
    print(f"\n{os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
