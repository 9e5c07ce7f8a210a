"""How long it takes to find 100,000 addresses among 10 M documents, and whether each is found.

    python benchmarks/forget_matching.py FOLDER [ROWS [URLS]]

Writes ROWS synthetic rows (url, id, text_hash) in files of 500,000, and a list of URLS addresses of them, each in
another spelling (case of the host, `www.`, port, scheme, a fragment, a last slash), with as many that no row has. The
list is recorded as `datamask forget --urls` does, then every row is matched, by one process. What is expected is found
by DuckDB from the numbers in the paths, without our code.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.filter.forgotten import READ, load_requests, read_list, record_entries

FILE, BATCH = 500_000, 50_000
SPELLINGS = (
    "http://Site{0}.Example.ORG/page/{1}",
    "https://www.site{0}.example.org/page/{1}/",
    "HTTPS://site{0}.example.org:443/page/{1}#top",
    "site{0}.example.org/page/{1}",
)


def write(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, rows, FILE):
        path = folder / f"part-{first:09d}.parquet"
        if path.exists():
            continue
        numbers = np.arange(first, min(first + FILE, rows))
        urls = [f"https://site{n % 200_003}.example.org/page/{n}" for n in numbers.tolist()]
        hashes = np.random.default_rng(first).bytes(16 * len(numbers))
        table = {
            "url": urls,
            "id": [f"<urn:uuid:{n:032x}>" for n in numbers.tolist()],
            "text_hash": pa.Array.from_buffers(pa.binary(16), len(numbers), [None, pa.py_buffer(hashes)]),
        }
        pq.write_table(pa.table(table), path, row_group_size=BATCH)


def main(folder: str, rows: int = 10_000_000, urls: int = 100_000) -> None:
    place = Path(folder)
    write(place / "rows", rows)
    wanted = np.random.default_rng(7).choice(rows, urls, replace=False)
    spelt = [SPELLINGS[n % 4].format(n % 200_003, n) for n in wanted.tolist()]
    spelt += [f"https://site{n}.example.org/page/none-{n}" for n in range(urls)]
    (place / "list.txt").write_text("\n".join(spelt))
    began = time.process_time()
    record_entries(str(place), read_list(str(place / "list.txt"), "urls"))
    requests = load_requests(str(place / "work"))
    assert requests is not None
    read = time.process_time() - began
    began, found = time.process_time(), []
    for path in sorted((place / "rows").glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(BATCH, columns=list(READ), use_threads=False):
            table = pa.Table.from_batches([batch])
            found += table["id"].filter(pa.array(requests.match(table) >= 0)).to_pylist()
    took = time.process_time() - began
    (place / "wanted.csv").write_text("n\n" + "\n".join(map(str, wanted.tolist())))
    query = (
        f"SELECT id FROM '{place}/rows/*.parquet' SEMI JOIN read_csv('{place}/wanted.csv') w "
        "ON regexp_extract(url, '[0-9]+$')::BIGINT = w.n"
    )
    expected = {row[0] for row in duckdb.sql(query).fetchall()}
    print("| rows | addresses | list read and recorded, s | rows matched, s | rows a second | found | others taken |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    hit = len(expected & set(found))
    print(
        f"| {rows:,} | {len(spelt):,} | {read:.1f} | {took:.1f} | {rows / took:,.0f} | {hit:,} of {len(expected):,} | "
        f"{len(set(found) - expected):,} |"
    )
    print(f"\nProcessor seconds of one process, {os.cpu_count()} cores shared with others.")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
