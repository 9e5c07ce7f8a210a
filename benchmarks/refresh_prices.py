"""New documents selected beside a selection that stays (`run.refresh: prices`), against selecting from all again.

    python benchmarks/refresh_prices.py --corpus out/curated [--days 32000 200 700 1400]

Documents of a curated output, in a random order (or with --sorted as its shards have them, so that the new ones are of
other sources), are cut into days of so many. The first day is selected from alone; each further day once by
`extend_prices`, which starts from the day before's, and once by `learn_prices` on all documents so far. Both masks are
valued by the objective of that solve, and held against its bound. Processor seconds are those of the stage alone, its
reading included. `old files` are the decisions of earlier days that the extension has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from datamask import storage
from datamask.config import Config, load_config
from datamask.selection import stage as selecting
from datamask.selection.calibration import make_problem
from datamask.selection.candidates import gather_pool, group_of, read_candidates
from datamask.selection.cover.counting import count_shard
from datamask.selection.extension import MustSolve, extend_prices
from datamask.selection.stage import learn_prices, mask_shard
from datamask.stages import ShardFiles, recorded

SHARDS = 4  # a day
FILES = ("index", "embeddings", "scores", "atoms")


def write_days(
    all_files: list[ShardFiles], config: Config, sizes: list[int], work: Path, shuffled: bool
) -> list[list[ShardFiles]]:
    """The candidates as shards of their own, a list for each day."""
    tables: dict[str, list[pa.Table]] = {name: [] for name in FILES}
    for files in all_files:
        files = replace(files, atoms=files.atoms or count_shard(files.shard, config, str(work)))
        candidates = read_candidates(files, config)
        index = storage.read_table(files.index.path)
        index = index.filter(pa.compute.is_null(index["reason"]))
        tables["index"].append(index.select(["chunk_id", "token_count", "reason"]).take(candidates.index))
        for name in FILES[1:]:
            tables[name].append(storage.read_table(getattr(files, name).path).take(candidates.index))
    whole = {name: pa.concat_tables(parts).combine_chunks() for name, parts in tables.items()}
    count = whole["index"].num_rows
    order = np.random.default_rng(0).permutation(count) if shuffled else np.arange(count)
    starts = np.cumsum([0, *sizes])
    assert starts[-1] <= count, f"{count} documents"
    shard = all_files[0].shard
    days = []
    for day, (first, last) in enumerate(pairwise(starts)):
        made = []
        for number, rows in enumerate(np.array_split(order[first:last], SHARDS)):
            name = f"day-{day}-{number}"
            outputs = {}
            for stage, table in whole.items():
                part = table.take(rows).drop_columns(["chunk_id"])
                part = part.add_column(0, "chunk_id", pa.array(np.arange(len(rows)), pa.int64()))
                path = str(work / stage / f"{name}.parquet")
                outputs[stage] = storage.write_output(path, f"{stage}-{name}-{len(rows)}", part.schema, [part])
            parts = (replace(shard.parts[0], rows=len(rows)),)
            own = replace(shard, name=name, parts=parts, fingerprint=name)
            made.append(ShardFiles(own, **{field: outputs[field] for field in FILES}))
        days.append(made)
    return days


def selected(files: list[ShardFiles], prices: storage.Output, config: Config, work: str) -> list[np.ndarray]:
    found = []
    for one in files:
        table = storage.read_table(mask_shard(one, prices, config, work).path)
        found.append(table["selected"].to_numpy())
    return found


def digest(paths: list[str]) -> str:
    return hashlib.sha256(b"".join(Path(path).read_bytes() for path in paths)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--days", type=int, nargs="+", default=[32_000, 200, 700, 1400])
    parser.add_argument("--sorted", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    all_files, config, _ = recorded(arguments.corpus)
    config = load_config(None, arguments.set, config.model_dump(mode="json"))
    with tempfile.TemporaryDirectory(prefix="datamask-days-") as folder:
        days = write_days(all_files, config, arguments.days, Path(folder), not arguments.sorted)
        selecting.with_atoms = lambda files, config, work: files  # they are there
        work = str(Path(folder) / "work")
        so_far = list(days[0])
        extended = learn_prices(so_far, config, work)
        print(f"first day: {arguments.days[0]:,} documents, gap {extended.facts['gap']:.2%}\n")
        print("| new | of all | how | taken of new | budget | value / solve's | gap | below its bound | processor s |")
        print("|--:|--:|---|--:|--:|--:|--:|--:|--:|")
        for day in days[1:]:
            before = [mask_shard(files, extended, config, work).path for files in so_far]
            held = digest(before)
            so_far = [*so_far, *day]
            rows = sum(files.shard.rows or 0 for files in day)
            began = time.process_time()
            solved = learn_prices(so_far, config, work)
            took = {"solved": time.process_time() - began}
            began = time.process_time()
            try:
                extended = extend_prices(so_far, extended, config, work)
            except MustSolve as error:
                print(f"| {rows:,} | must solve: {error} |")
                extended = solved
                continue
            took["beside"] = time.process_time() - began
            assert (
                digest(before) == held
                and [mask_shard(one, extended, config, work).path for one in so_far[: len(before)]] == before
            )
            in_order = sorted(so_far, key=lambda one: one.shard.name)
            read = (read_candidates(files, config) for files in in_order)
            pool = gather_pool(group_of(in_order, read, config), config.selection, "")
            problem, reached = make_problem(pool, config.selection), {}
            scales = solved.facts["scales"]
            for how, prices in (("solved", solved), ("beside", extended)):
                masks = selected(in_order, prices, config, work)
                value = problem.objective.evaluate(torch.from_numpy(np.concatenate(masks)))
                raw = value.statistics
                reached[how] = sum(each["scale"] * (raw[name] - each["zero"]) for name, each in scales.items())
                new = {files.shard.name for files in day}
                taken = sum(int(mask.sum()) for mask, one in zip(masks, in_order, strict=True) if one.shard.name in new)
                spent = prices.facts.get("budget", 1.0)
                below, share = 1 - reached[how] / solved.facts["upper_bound"], rows / len(pool)
                print(
                    f"| {rows:,} | {share:.1%} | {how} | {taken / rows:.4f} | {spent:.4f} "
                    f"| {reached[how] / reached['solved']:.4f} | {prices.facts['gap']:.2%} | {below:.2%} "
                    f"| {took[how]:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
