"""Whether `datamask worth` ranks twelve additions as a judge does that reads old and new text.

    python benchmarks/worth.py make --data '../shared/data/real/real-*.parquet' --to out/worth
    python benchmarks/worth.py rank --to out/worth --targets '../shared/data/tasks/*.jsonl.gz'

`make` curates a part of the real corpus and writes the additions beside it: parts of sources that it holds and of
sources and languages that it has not, a copy of what it holds, and junk. `rank` asks `find_worth` about each, then
reads the release's choice and as many bytes of each addition, and correlates what was said with it (Kendall's τ).
Every other set is read for that; with `--judged` the others are the targets that `find_worth` is given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import kendalltau

from datamask.config import load_config
from datamask.release.release_folder import find_release
from datamask.run import curate
from datamask.storage import expand_patterns
from datamask.study.choices import _junk
from datamask.study.coder import Coder, mean_bits
from datamask.study.targets import Target, cut_texts, read_targets
from datamask.study.worth import find_worth
from datamask.study.worth_judged import WorthJudging

BASE = {  # documents of the release's pool, by source
    "arxiv_abstracts": 900,
    "wikipedia_schools_2007": 350,
    "wcxb_main": 300,
    "digitalgov": 300,
    "movie_reviews": 250,
    "wcxb_page": 200,
    "spdx_licenses": 100,
    "tldr_pages": 200,
}
EACH = 250  # documents of an addition
OLD, NEW = 900_000, 200_000  # bytes that are read of the release's choice and of an addition
READS = 3  # orders of these
JUDGING = WorthJudging(("coder",), bytes=2_000_000)  # with --judged


def additions(table: pa.Table, base: np.ndarray) -> dict[str, list[str]]:
    """Texts of the twelve. base: rows of the release's pool."""
    source = np.array(table["source"].to_pylist())
    language = np.array([value or "" for value in table["language"].to_pylist()])
    texts = table["text"].to_pylist()
    left = np.ones(len(source), bool)
    left[base] = False
    generator = np.random.default_rng(1)

    def some(where: np.ndarray) -> list[str]:
        rows = np.flatnonzero(where)
        return [texts[row] for row in np.sort(generator.permutation(rows)[:EACH]).tolist()]

    found = {
        name: some(left & (source == name))
        for name in (
            "arxiv_abstracts", "wikipedia_schools_2007", "wcxb_main", "movie_reviews", "openstax_anatomy",
            "fineweb_gpt4_lines", "stackexchange_coffee", "thealgorithms_python", "de_federal_law",
        )
    }  # fmt: skip
    found["masakhanews, French"] = some((source == "masakhanews") & (language == "fr"))
    held = generator.permutation(base)[:EACH]
    found["a copy of what is there"] = [texts[row] for row in held.tolist()]
    found["junk"] = [
        _junk(text.encode(), [texts[row].encode() for row in held[:4].tolist()], generator).decode("utf-8", "replace")
        for text in some(left & (source == "wcxb_page"))
    ]
    return found


def make(data: Sequence[str], to: Path) -> None:
    columns = ["text", "id", "source", "language"]
    table = pa.concat_tables([pq.read_table(path, columns=columns) for path in expand_patterns(data)])
    table = table.filter(pa.compute.greater(pa.compute.utf8_length(table["text"]), 50))
    table = table.filter(pa.compute.less(pa.compute.utf8_length(table["text"]), 40_000))
    source = np.array(table["source"].to_pylist())
    base = np.sort(np.concatenate([np.flatnonzero(source == name)[:count] for name, count in BASE.items()]))
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    pq.write_table(table.take(base), to / "base.parquet")
    for name, texts in additions(table, base).items():
        ids = [f"{name}-{number}" for number in range(len(texts))]
        pq.write_table(
            pa.table({"text": texts, "id": ids}), to / f"new-{name.replace(' ', '-').replace(',', '')}.parquet"
        )
    config = load_config(overrides=[f"corpus.input=[{to / 'base.parquet'}]", "select.token_ratio=0.3"])
    curate(config, str(to / "out"))


def ask(path: Path, to: Path, old: Sequence[bytes], asked: Sequence[Target], within: Sequence[str]) -> dict[str, Any]:
    """What `find_worth` says of an addition, and bits a byte after old and new, minus those after as much old."""
    began = time.process_time()
    found = find_worth([str(path)], str(to / "out"), within, JUDGING)
    seconds = time.process_time() - began
    new = [text.encode() for text in pq.read_table(path)["text"].to_pylist()]
    size = sum(map(len, new))
    read = []
    for seed in range(READS):
        added = cut_texts(new * (1 + NEW // size), NEW, seed)
        both = mean_bits(Coder().read(cut_texts(old, OLD, seed) + added, asked))
        read.append(both - mean_bits(Coder().read(cut_texts(old, OLD + NEW, seed), asked)))
    return {**found.as_json(), "read": float(np.mean(read)), "seconds": seconds, "size": size}


def rank(to: Path, targets: Sequence[str], judged: bool, part: int) -> None:
    files = [file for file in expand_patterns(targets) if "gsm8k" not in file and "copa" not in file]
    asked = read_targets(files[1::2], 24_000)
    release = find_release(str(to / "out"))
    old = [
        row["text"].encode()
        for path in Path(release.path).glob("data/*/*.parquet")
        for row in pq.read_table(path, columns=["text"]).to_pylist()
    ]
    paths = sorted(to.glob("new-*.parquet"))
    for path in paths[part:] + paths[:part]:
        if not path.with_suffix(".json").exists():
            said = ask(path, to, old, asked, files[::2] if judged else [])
            path.with_suffix(".json").write_text(json.dumps(said))
    rows = {path.stem.removeprefix("new-"): json.loads(path.with_suffix(".json").read_text()) for path in paths}
    head = ["addition", "says", "new", "of the pool", "of the choice", "gain", "coder, old + new", "processor s"]
    print(f"| {' | '.join(head)} |\n|---|---|{'--:|' * (len(head) - 2)}")
    for name, row in sorted(rows.items(), key=lambda item: item[1]["read"]):
        cells = [
            row["says"],
            f"{row['added']} of {row['rows']}",
            f"{row['pool_share']:.1%}",
            f"{row['taken_share']:.1%}",
        ]
        cells += [f"{row['gain']:+.3f}", f"{row['read']:+.4f}", f"{row['seconds']:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |")
    megabytes = sum(row["size"] for row in rows.values()) / 1e6
    print(f"\n{sum(row['seconds'] for row in rows.values()) / megabytes:.1f} processor seconds a megabyte asked about.")
    ranked = {
        "share of the choice": [row["taken_share"] for row in rows.values()],
        "that over the share of the pool": [row["taken_share"] / max(row["pool_share"], 1e-9) for row in rows.values()],
        "gain of the objective": [row["gain"] for row in rows.values()],
    }
    if judged:
        for place, judge in enumerate(next(iter(rows.values()))["judged"]["judges"]):
            said = [row["judged"]["judges"][place]["difference"] for row in rows.values()]
            ranked[f"{judge['judge']}, by the other targets"] = [-difference for difference in said]
    print("\n| ranked by | Kendall's τ |\n|---|--:|")
    for what, values in ranked.items():
        print(f"| {what} | {kendalltau(values, [-row['read'] for row in rows.values()]).statistic:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "rank"])
    parser.add_argument("--data", nargs="+", default=["../shared/data/real/real-*.parquet"])
    parser.add_argument("--to", type=Path, default=Path("out/worth"))
    parser.add_argument("--targets", nargs="+", default=["../shared/data/tasks/*.jsonl.gz"])
    parser.add_argument("--judged", action="store_true", help="judges read the choices too, as with --targets")
    parser.add_argument("--part", type=int, default=0, help="addition to begin with, where several run side by side")
    options = parser.parse_args()
    if options.what == "make":
        make(options.data, options.to)
    else:
        rank(options.to, options.targets, options.judged, options.part)


if __name__ == "__main__":
    main()
