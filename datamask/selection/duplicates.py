"""The stage that finds semantic duplicates across all shards, before anything is selected.

Every document is assigned to its two nearest of a few global centroids, the rows are laid out on disk cluster by
cluster, best quality first, and within each cluster whatever resembles a kept document is marked as its duplicate.
Memory is one shard's features and one cluster's; disk is two copies of the features, for the time of the stage.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from datamask import storage
from datamask.config import Config
from datamask.devices import pick_device
from datamask.selection.near_duplicates import keep_first, nearest_centroids, spherical_kmeans
from datamask.stages import Progress, ShardFiles, silent
from datamask.storage import Output

VERSION = 1
CLUSTER_ROWS = 8192  # documents a centroid, on average: up to so many, all pairs are compared
MAX_CLUSTERS = 50_000  # SemDeDup's number for LAION (arXiv 2303.09540, table A1)
SAMPLE_PER_CLUSTER = 256  # rows the centroids are fitted on (faiss' default maximum)
PROBES = 2  # clusters a document is looked for in: duplicates on a border would be missed with one

SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("duplicate_of_shard", pa.string()),
        ("duplicate_of", pa.int64()),
        ("similarity", pa.float32()),
    ]
)


def find_duplicates(
    all_files: Sequence[ShardFiles], config: Config, work: str, progress: Progress = silent
) -> list[Output]:
    """A file per shard, in the order given, of its documents whose cosine to a kept one exceeds 1 − ε.

    ε is `select.semantic_duplicates`. Of documents alike, the one of best quality is kept (ties: shard name, then
    chunk_id). With `filter.order: before`, only what passes the filters is compared.
    """
    epsilon = config.select.semantic_duplicates
    if epsilon is None:
        raise ValueError("select.semantic_duplicates is null: this stage has nothing to do")
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    filtered = config.filter.order == "before"
    inputs = [
        [f.shard.name, _output(f.embeddings).key, _output(f.scores).key, _output(f.filters).key if filtered else None]
        for f in ordered
    ]
    whole = storage.key("duplicates", VERSION, inputs, epsilon, config.select.seed)
    keys = {f.shard.name: storage.key(whole, f.shard.name) for f in ordered}
    urls = {name: storage.join(work, "duplicates", f"{name}-{key}.parquet") for name, key in keys.items()}
    found = {name: storage.find_output(url, keys[name]) for name, url in urls.items()}
    if not all(found.values()):
        tables, facts = _search(ordered, filtered, 1 - epsilon, config, work, progress)
        for name, table in tables.items():
            shard_facts: Callable[[], dict[str, float]] = partial(dict, facts, duplicates=table.num_rows)
            found[name] = storage.write_output(urls[name], keys[name], SCHEMA, [table], shard_facts)
    return [_output(found[files.shard.name]) for files in all_files]


def _search(
    all_files: Sequence[ShardFiles], filtered: bool, threshold: float, config: Config, work: str, progress: Progress
) -> tuple[dict[str, pa.Table], dict[str, float]]:
    device = pick_device(config.select.device)
    chunk_ids, qualities = [], []
    for files in all_files:
        table = storage.read_table(_output(files.scores).path, ["chunk_id", "quality_score"])
        keep = np.ones(table.num_rows, dtype=bool)
        if filtered:
            reasons = storage.read_table(_output(files.filters).path, ["reason"])["reason"]
            keep = reasons.is_null().to_numpy()
        chunk_ids.append(np.where(keep, table["chunk_id"].to_numpy(), -1))
        qualities.append(table["quality_score"].to_numpy())
    sizes = [len(ids) for ids in chunk_ids]
    shard_of = np.repeat(np.arange(len(all_files), dtype=np.int32), sizes)
    chunk_id, quality = np.concatenate(chunk_ids), np.concatenate(qualities)
    wanted = np.flatnonzero(chunk_id >= 0)
    clusters = int(min(MAX_CLUSTERS, max(1, -(-len(wanted) // CLUSTER_ROWS))))

    first_row = np.concatenate([[0], np.cumsum(sizes)])
    members = _assign(all_files, first_row, wanted, clusters, config.select.seed, device)
    # one entry a (document, cluster), by cluster, best first: equal quality goes by shard name, then chunk_id
    entry_row = np.repeat(wanted, members.shape[1])
    entry_cluster = members.reshape(-1)
    order = np.lexsort((chunk_id[entry_row], shard_of[entry_row], -quality[entry_row], entry_cluster))
    entry_row, entry_cluster = entry_row[order], entry_cluster[order]

    leader = np.full(len(chunk_id), -1, dtype=np.int64)
    similarity = np.zeros(len(chunk_id), dtype=np.float32)
    with tempfile.TemporaryDirectory(dir=_scratch(work), prefix="duplicates-") as folder:
        laid_out = _lay_out(all_files, first_row, entry_row, Path(folder) / "features")
        bounds = np.searchsorted(entry_cluster, np.arange(clusters + 1))
        for start, stop in pairwise(bounds):
            if start == stop:
                continue
            rows = entry_row[start:stop]
            features = torch.from_numpy(np.array(laid_out[start:stop])).to(device)
            repeats = keep_first(features, threshold, torch.from_numpy(leader[rows] < 0))
            mine = np.flatnonzero(repeats.leader.numpy() >= 0)
            leader[rows[mine]] = rows[repeats.leader.numpy()[mine]]
            similarity[rows[mine]] = repeats.similarity.numpy()[mine]
            progress(len(rows) // members.shape[1])
        del laid_out
    # a leader may have been taken out itself in its other cluster: name the one that stays
    gone = np.flatnonzero(leader >= 0)
    while len(chained := gone[leader[leader[gone]] >= 0]):
        leader[chained] = leader[leader[chained]]

    tables = {}
    names = np.array([files.shard.name for files in all_files], dtype=object)
    for number, files in enumerate(all_files):
        part = slice(first_row[number], first_row[number + 1])
        gone = np.flatnonzero(leader[part] >= 0) + first_row[number]
        columns = [chunk_id[gone], names[shard_of[leader[gone]]], chunk_id[leader[gone]], similarity[gone]]
        tables[files.shard.name] = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
    return tables, {"clusters": clusters, "compared": len(wanted)}


def _assign(
    all_files: Sequence[ShardFiles],
    first_row: np.ndarray,
    wanted: np.ndarray,
    clusters: int,
    seed: int,
    device: torch.device,
) -> np.ndarray:
    """(wanted documents, probes) int32 numbers of each one's nearest centroids."""
    if clusters == 1:
        return np.zeros((len(wanted), 1), dtype=np.int32)
    drawn = np.random.default_rng([seed, 7]).permutation(wanted)[: clusters * SAMPLE_PER_CLUSTER]
    drawn.sort()
    sample = np.concatenate(list(_features(all_files, first_row, drawn)))
    generator = torch.Generator().manual_seed(seed)
    unit = torch.nn.functional.normalize(torch.from_numpy(sample).float(), dim=1).to(device)
    centroids = spherical_kmeans(unit, clusters, generator)
    parts = []
    for features in _features(all_files, first_row, wanted):
        rows = torch.from_numpy(features).float().to(device)
        parts.append(nearest_centroids(rows, centroids, min(PROBES, clusters)).cpu().numpy().astype(np.int32))
    return np.concatenate(parts)


def _lay_out(all_files: Sequence[ShardFiles], first_row: np.ndarray, rows: np.ndarray, path: Path) -> np.ndarray:
    """The features of `rows`, in that order, as a float16 array on disk; shards are read one after another."""
    layout: np.ndarray | None = None
    shards = np.searchsorted(first_row, rows, side="right") - 1
    for number, files in enumerate(all_files):
        places = np.flatnonzero(shards == number)
        if not len(places):
            continue
        features = read_features(_output(files.embeddings))
        if layout is None:
            layout = np.memmap(path, dtype=np.float16, mode="w+", shape=(len(rows), features.shape[1]))
        layout[places] = features[rows[places] - first_row[number]]
    return np.zeros((0, 1), dtype=np.float16) if layout is None else layout


def _features(all_files: Sequence[ShardFiles], first_row: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    """The features of ascending `rows`, shard by shard."""
    cuts = np.searchsorted(rows, first_row)
    for number, files in enumerate(all_files):
        mine = rows[cuts[number] : cuts[number + 1]] - first_row[number]
        if len(mine):
            yield read_features(_output(files.embeddings))[mine]


def read_features(embeddings: Output) -> np.ndarray:
    """The features (rows, d) float16 of an embeddings file."""
    column = storage.read_table(embeddings.path, ["feature_arr"])["feature_arr"].combine_chunks()
    width = column.type.list_size
    return column.values.to_numpy(zero_copy_only=False).reshape(-1, width)


def _scratch(work: str) -> str | None:
    """A folder for large temporary files: beside the work where that is local, else the system's."""
    if storage.is_remote(work):
        return None
    folder = Path(storage.filesystem(work)[1]) / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def _output(output: Output | None) -> Output:
    if output is None:
        raise ValueError("an earlier stage has not run for this shard")
    return output
