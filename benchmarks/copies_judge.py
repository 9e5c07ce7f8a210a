"""Does a choice teach a model more when agreement (how many copies a document has) counts as quality?

    python benchmarks/copies_judge.py OUT [CORPUS …]

Curates the English documents of the real corpus three times into OUT, a tenth of the tokens each: by the content
score alone, and with the number of copies beside it at two weights, both as percentiles. The coder reads BYTES of each
choice, and of random draws among the documents that stay, and codes eight target sets that no choice was told. A row is
the mean over targets, minus the random draws' mean; the interval is over targets (Student's t). One pool, so it says
little of another corpus. No setting is chosen by it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy import stats

from datamask.config import validate
from datamask.run import curate
from datamask.study.coder import Coder
from datamask.study.targets import read_targets

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
BYTES, DRAWS = 1_500_000, 6
AGREEMENT = {"kind": "column", "name": "agreement", "column": "copies"}
ARMS = {
    "content": [{"kind": "content"}],
    "content + 0.25 copies": [{"kind": "content"}, {**AGREEMENT, "weight": 0.25}],
    "content + copies": [{"kind": "content"}, {**AGREEMENT, "weight": 1.0}],
}


def text_of(rows: list[dict], order: np.ndarray) -> bytes:
    return b"\n\n".join(rows[place]["text"].encode() for place in order)[:BYTES]


def main(out: str, *given: str) -> None:
    corpus = list(given) or [str(SHARED / "real" / "real-0000[0-2]*.parquet")]
    targets = read_targets(sorted(map(str, (SHARED / "tasks").glob("*.jsonl.gz"))))
    settings = {
        "corpus": {"input": corpus},
        "filter": {"where": "language = 'en' or language is null"},
        "duplicates": {"count": True},
    }
    read, facts = {}, {}
    for name, scorers in ARMS.items():
        config = validate({**settings, "quality": {"scorers": scorers, "combine": "rank"}})
        release = curate(config, out)
        rows = release.dataset(library="pyarrow").to_table(columns=["text", "copies"]).to_pylist()
        order = np.random.default_rng(1).permutation(len(rows))
        coded = Coder().read(text_of(rows, order), targets)
        read[name] = np.array([coded[target.name].bits_per_byte for target in targets])
        facts[name] = (len(rows), np.mean([row["copies"] > 0 for row in rows]))
    whole = curate(validate({**settings, "select": {"token_ratio": 1.0, "solver": "random"}}), out)
    rows = whole.dataset(library="pyarrow").to_table(columns=["text", "copies"]).to_pylist()
    drawn = []
    for draw in range(DRAWS):
        coded = Coder().read(text_of(rows, np.random.default_rng([draw, 7]).permutation(len(rows))), targets)
        drawn.append([coded[target.name].bits_per_byte for target in targets])
    random = np.mean(drawn, axis=0)
    print(f"{len(rows):,} documents stay, {np.mean([row['copies'] > 0 for row in rows]):.1%} of them have copies.\n")
    print(
        "| choice | documents | with copies | bits a byte, minus random | minus content alone |\n|---|--:|--:|--:|--:|"
    )
    print(f"| random, one of {DRAWS} | | | ± {np.std(np.mean(drawn, axis=1), ddof=1):.4f} (deviation of draws) | |")
    for name, bits in read.items():
        cells = []
        for difference in (bits - random, bits - read["content"]):
            half = stats.t.ppf(0.975, len(targets) - 1) * stats.sem(difference)
            cells.append(f"{difference.mean():+.4f} ± {half:.4f}" if difference.any() else "")
        print(f"| {name} | {facts[name][0]:,} | {facts[name][1]:.1%} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
