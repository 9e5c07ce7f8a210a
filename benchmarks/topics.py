"""Topics: how well they follow the corpus's own labels, what they are called, how stable they are, and what they cost.

    python benchmarks/topics.py agree --data '../shared/data/real/real-*.parquet' --to out/topics
    python benchmarks/topics.py names --data … --to out/topics
    python benchmarks/topics.py stable --data … --to out/topics
    python benchmarks/topics.py cost --data … --to out/topics

`--to` keeps the embedded corpus. Agreement is normalised mutual information: 1, groups and labels are the same; 0, they
say nothing of one another. `agree` puts them beside k-means on all-MiniLM-L6-v2's vectors of `--documents` documents,
LENGTH tokens of each; on these both encoders' vectors are clustered by the same k-means. No setting was chosen by
these figures, but for SHARPNESS and COMMON of `topics`, which were chosen by reading the names of this corpus.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoders_real import encoder
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from datamask.config import Config
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.read import read_documents
from datamask.corpus.shards import plan_shards
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.clusters import spherical_kmeans
from datamask.encoders.embed import embed_shard
from datamask.encoders.topics import label_topics, nearest
from datamask.encoders.vectors import read_vectors
from datamask.run import curate
from datamask.stages import ShardFiles

LABELS = ("source", "domain", "language", "label")
LENGTH = 128  # tokens that MiniLM reads of a document
SEEDS = 3


def embedded(data: Sequence[str], work: str) -> tuple[list[ShardFiles], Config]:
    """The corpus by the stages up to the vectors; what is there is taken as it is."""
    config = Config(corpus={"input": list(data), "group_bytes": 0})
    shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
    encoder_ = prepare_encoder(shards, config, work)
    found = []
    for shard in shards:
        files = ShardFiles(shard)
        files = replace(files, index=index_shard(files.shard, encoder_, config, work))
        found.append(replace(files, embeddings=embed_shard(files, encoder_, config, work)))
    return found, config


def labelled(all_files: Sequence[ShardFiles], config: Config, work: str, previous: str = "") -> list[ShardFiles]:
    outputs = label_topics(all_files, config, work, previous)
    return [replace(files, topics=output) for files, output in zip(all_files, outputs, strict=True)]


def rows_of(all_files: Sequence[ShardFiles], config: Config, columns: Sequence[str]) -> list[dict[str, Any]]:
    return [row for files in all_files for batch in read_documents(files, config, columns) for row in batch.to_pylist()]


def agreement(rows: Sequence[dict[str, Any]], groups: Sequence[Any], column: str) -> float:
    there = [(row[column], group) for row, group in zip(rows, groups, strict=True) if row[column]]
    return float(normalized_mutual_info_score(*zip(*there, strict=True)))


def clustered(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centroids = spherical_kmeans(torch.from_numpy(unit), count, torch.Generator().manual_seed(seed))
    return nearest(unit, centroids.numpy())


def agree(all_files: Sequence[ShardFiles], config: Config, documents: int) -> None:
    columns = [*LABELS, "topic", "text"]
    rows = rows_of(all_files, config, columns)
    vectors = np.concatenate([read_vectors(files.embeddings.path) for files in all_files if files.embeddings])
    vectors = vectors.astype(np.float32)
    count = len({row["topic"] for row in rows})
    head = " | ".join(LABELS)
    print(f"| documents | groups | {head} |\n|--:|---|{'--:|' * len(LABELS)}")

    def line(what: str, some: Sequence[dict[str, Any]], groupings: Sequence[Any]) -> None:
        found = [np.mean([agreement(some, groups, column) for groups in groupings]) for column in LABELS]
        print(f"| {len(some):,} | {what} | {' | '.join(f'{value:.3f}' for value in found)} |", flush=True)

    line("the column topic", rows, [[row["topic"] for row in rows]])
    drawn = np.sort(np.random.default_rng(0).permutation(len(rows))[:documents])
    some = [rows[place] for place in drawn]
    line("the column topic", some, [[row["topic"] for row in some]])
    line("k-means, static encoder", some, [clustered(vectors[drawn], count, seed) for seed in range(SEEDS)])
    with tempfile.TemporaryDirectory() as work:
        model = encoder("minilm", LENGTH, work)
        other = model.compute(model.tokenise([row["text"] for row in some]), 8_192).vectors
    line("k-means, all-MiniLM-L6-v2", some, [clustered(other.astype(np.float32), count, seed) for seed in range(SEEDS)])


def names(all_files: Sequence[ShardFiles], config: Config) -> None:
    rows = rows_of(all_files, config, ["topic", "source", "language"])
    assert all_files[0].topics is not None
    described = {topic["name"]: topic for topic in all_files[0].topics.facts["topics"]}
    print("| topic | documents | cosine | languages | sources |\n|---|--:|--:|---|---|")
    for name, size in Counter(row["topic"] for row in rows).most_common():
        mine = [row for row in rows if row["topic"] == name]
        told = [
            ", ".join(
                f"{value} {number / size:.0%}"
                for value, number in Counter(row[column] for row in mine if row[column]).most_common(2)
            )
            for column in ("language", "source")
        ]
        print(f"| {name} | {size:,} | {described[name]['cosine']:.2f} | {' | '.join(told)} |")


def stable(all_files: Sequence[ShardFiles], config: Config) -> None:
    """Fitted on all shards but one, carried on to it, beside a fit on all."""
    with tempfile.TemporaryDirectory() as work:
        before = label_topics(all_files[:-1], config, work)
        after = labelled(all_files, config, work, before[0].facts["model"])
        anew = labelled(all_files, config, work)
        kept = [one.key == other.topics.key for one, other in zip(before, after, strict=False) if other.topics]
        found = {
            what: [rows_of([files], config, [*LABELS, "topic"]) for files in labels]
            for what, labels in (("carried on", after), ("fitted on all", anew))
        }
    old = sum(len(rows) for rows in found["carried on"][:-1])
    print("| topics of new documents | documents | old ones moved | source | language |\n|---|--:|--:|--:|--:|")
    for what, rows in found.items():
        moved = 0 if what == "carried on" and all(kept) else None
        new = rows[-1]
        topics = [row["topic"] for row in new]
        agreed = " | ".join(f"{agreement(new, topics, column):.3f}" for column in ("source", "language"))
        print(f"| {what} | {len(new):,} | {f'{moved} of {old:,}' if moved is not None else 'renamed'} | {agreed} |")
    flat = [[row["topic"] for rows in found[what] for row in rows] for what in found]
    print(f"\nAdjusted Rand index of the two on all documents: {adjusted_rand_score(*flat):.3f}.")


def cost(all_files: Sequence[ShardFiles], config: Config) -> None:
    """Processor seconds of the stage in a fresh folder, of a refresh that brings one shard, and of a default run."""
    documents = [
        sum(files.embeddings.rows for files in some if files.embeddings) for some in (all_files, all_files[-1:])
    ]
    with tempfile.TemporaryDirectory() as work:
        began = time.process_time()
        model = label_topics(all_files, config, work)[0].facts["model"]
        fitted = time.process_time() - began
        Path(work, "topics", f"model-{model}.parquet").rename(Path(work, "model.parquet"))
        shutil.rmtree(Path(work, "topics"))
        Path(work, "topics").mkdir()
        Path(work, "model.parquet").rename(Path(work, "topics", f"model-{model}.parquet"))
        began = time.process_time()
        label_topics(all_files[-1:], config, work, model)
        added = time.process_time() - began
    with tempfile.TemporaryDirectory() as out:
        began = time.process_time()
        curate(config, out)
        whole = time.process_time() - began
    print("| documents | what | processor s | of the run |\n|--:|---|--:|--:|")
    print(f"| {documents[0]:,} | fit, names, all documents | {fitted:.2f} | {fitted / whole:.1%} |")
    print(f"| {documents[1]:,} | a refresh's new documents | {added:.2f} | |")
    print(f"| {documents[0]:,} | a default run with topics | {whole:.2f} | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["agree", "names", "stable", "cost"])
    parser.add_argument("--data", nargs="+", required=True, help="files, folders or globs")
    parser.add_argument("--to", default="out/topics", help="folder of the embedded corpus")
    parser.add_argument("--documents", type=int, default=2000, help="that all-MiniLM-L6-v2 reads")
    options = parser.parse_args()
    torch.set_num_threads(1)
    all_files, config = embedded(options.data, options.to)
    if options.what in ("agree", "names"):
        all_files = labelled(all_files, config, options.to)
    if options.what == "agree":
        agree(all_files, config, options.documents)
    else:
        {"names": names, "stable": stable, "cost": cost}[options.what](all_files, config)


if __name__ == "__main__":
    main()
