"""Whether `datamask worth` ranks twelve additions as a network does that is trained on old and new text.

    python benchmarks/worth.py make --data '../shared/data/real/real-*.parquet' --to out/worth
    python benchmarks/worth.py rank --to out/worth --targets '../shared/data/tasks/*.jsonl.gz'

`make` curates a part of the real corpus and writes the additions beside it: parts of sources that it holds and of
sources and languages that it has not, a copy of what it holds, and junk. `rank` asks `find_worth` about each with every
other item of each set as targets. On the items between, a network says what the truth is: trained on the release's
choice and 200 kB of the addition, minus on as much of the choice alone. What was said is correlated with it
(Kendall's τ).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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
from datamask.study.coder import mean_bits
from datamask.study.network import SIZES, Network
from datamask.study.run import Settings
from datamask.study.targets import Target, _junk, cut_texts, read_targets
from datamask.study.worth import find_worth

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
READS = 3  # networks that say the truth, each from other orders of these
PAIRS = 2  # readings of the network that is asked, as one of `find_worth` is, about the items given to it
ITEMS = 48_000  # bytes of a set, half of which `find_worth` is given
JUDGING = Settings(bytes=OLD + NEW)


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
    found = additions(table, base)
    for name, texts in found.items():
        ids = [f"{name}-{number}" for number in range(len(texts))]
        pq.write_table(
            pa.table({"text": texts, "id": ids}), to / f"new-{name.replace(' ', '-').replace(',', '')}.parquet"
        )
    used = {text for texts in found.values() for text in texts}
    rest = np.setdiff1d(np.arange(len(table)), base)
    others = [text for text in table["text"].take(rest).to_pylist() if text not in used]
    pq.write_table(pa.table({"text": others}), to / "before.parquet")
    config = load_config(overrides=[f"corpus.input=[{to / 'base.parquet'}]", "select.token_ratio=0.3"])
    curate(config, str(to / "out"))


def halves(targets: Sequence[str], to: Path) -> tuple[list[str], list[Target], list[Target]]:
    """Every other item of each set, in files and as targets, and the items between."""
    files = [file for file in expand_patterns(targets) if "copa" not in file]  # of 5 kB
    (to / "targets").mkdir(exist_ok=True)
    paths, given, left = [], [], []
    for target in read_targets(files, ITEMS):
        rows = [{"question": item.question.decode(), "answer": item.answer.decode()} for item in target.items[::2]]
        paths.append(str(to / "targets" / f"{target.name}.jsonl"))
        Path(paths[-1]).write_text("\n".join(map(json.dumps, rows)))
        given.append(replace(target, items=target.items[::2]))
        left.append(replace(target, items=target.items[1::2]))
    return paths, given, left


def texts_of(path: Path) -> list[bytes]:
    return [text.encode() for text in pq.read_table(path, columns=["text"])["text"].to_pylist()]


def network_reads(
    to: Path, paths: Sequence[Path], asked: Sequence[Target], before: Sequence[bytes], networks: Sequence[int]
) -> dict[str, float]:
    """Bits a byte after old and each addition, minus those after as much old.

    before: what a network reads first. networks: the seed of each reading's; the mean of all is returned.
    """
    found: dict[str, list[float]] = {path.stem: [] for path in paths}
    made = {seed: Network(SIZES["tiny"], before, "cpu", seed, before) for seed in set(networks)}
    old = chosen_texts(to)
    for order, seed in enumerate(networks):
        alone = mean_bits(made[seed].read(cut_texts(old, OLD + NEW, [seed, order]), asked))
        for path in paths:
            new = texts_of(path)
            added = cut_texts(new * (1 + NEW // sum(map(len, new))), NEW, [seed, order])
            found[path.stem].append(
                mean_bits(made[seed].read(cut_texts(old, OLD, [seed, order]) + added, asked)) - alone
            )
        print(f"network {order + 1} of {len(networks)} has read", file=sys.stderr, flush=True)
    return {name: float(np.mean(reads)) for name, reads in found.items()}


def chosen_texts(to: Path) -> list[bytes]:
    release = Path(find_release(str(to / "out")).path)
    return [text for path in sorted(release.glob("data/*/*.parquet")) for text in texts_of(path)]


def kept(file: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, from a file where an earlier call wrote it."""
    if not file.exists():
        file.write_text(json.dumps(make()))
    return json.loads(file.read_text())


def asked_about(path: Path, to: Path, given: Sequence[str]) -> dict[str, Any]:
    """What `find_worth` says of an addition."""
    began = time.process_time()
    found = find_worth([str(path)], str(to / "out"), given, JUDGING)
    print(f"{path.stem}: {found.says}", file=sys.stderr, flush=True)
    return found.as_json() | {
        "says": found.says,
        "seconds": time.process_time() - began,
        "size": sum(map(len, texts_of(path))),
        "judges": {judge.judge: judge.difference for judge in found.judged.judges} if found.judged else {},
    }


def rank(to: Path, targets: Sequence[str]) -> None:
    files, given, left = halves(targets, to)
    paths = sorted(to.glob("new-*.parquet"))
    rows = {path.stem: kept(to / f"{path.stem}.json", partial(asked_about, path, to, files)) for path in paths}
    others = sorted({*texts_of(to / "base.parquet")} - {*chosen_texts(to)})
    asked = partial(network_reads, to, paths, given, others, [READS] * PAIRS)
    for name, read in kept(to / "network.json", asked).items():
        rows[name]["judges"]["network"] = read
    truth = partial(network_reads, to, paths, left, texts_of(to / "before.parquet"), range(READS))
    for name, read in kept(to / "truth.json", truth).items():
        rows[name]["read"] = read
    judges = [*JUDGING.judges, "network"]
    head = ["addition", "says", "new", "of the pool", "of the choice", "gain", *judges, "truth", "processor s"]
    print(f"| {' | '.join(head)} |\n|---|---|{'--:|' * (len(head) - 2)}")
    for name, row in sorted(rows.items(), key=lambda item: item[1]["read"]):
        cells = [
            row["says"],
            f"{row['added']} of {row['rows']}",
            f"{row['pool_share']:.1%}",
            f"{row['taken_share']:.1%}",
        ]
        cells += [f"{row['gain']:+.3f}", *(f"{row['judges'].get(judge, 0):+.4f}" for judge in judges)]
        cells += [f"{row['read']:+.4f}", f"{row['seconds']:.1f}"]
        print(f"| {name.removeprefix('new-')} | {' | '.join(cells)} |")
    megabytes = sum(row["size"] for row in rows.values()) / 1e6
    print(f"\n{sum(row['seconds'] for row in rows.values()) / megabytes:.1f} processor seconds a megabyte asked about.")
    ranked = {
        "share of the choice": [row["taken_share"] for row in rows.values()],
        "that over the share of the pool": [row["taken_share"] / max(row["pool_share"], 1e-9) for row in rows.values()],
        "gain of the objective": [row["gain"] for row in rows.values()],
    }
    for judge in judges:
        ranked[f"{judge}, by the other items"] = [-row["judges"].get(judge, 0) for row in rows.values()]
    print("\n| ranked by | Kendall's τ |\n|---|--:|")
    for what, values in ranked.items():
        print(f"| {what} | {kendalltau(values, [-row['read'] for row in rows.values()]).statistic:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "rank"])
    parser.add_argument("--data", nargs="+", default=["../shared/data/real/real-*.parquet"])
    parser.add_argument("--to", type=Path, default=Path("out/worth"))
    parser.add_argument("--targets", nargs="+", default=["../shared/data/tasks/*.jsonl.gz"])
    options = parser.parse_args()
    if options.what == "make":
        make(options.data, options.to)
    else:
        rank(options.to, options.targets)


if __name__ == "__main__":
    main()
