"""Pairs of documents whose embeddings are nearly the same, as SemDeDup looks for them (arXiv 2303.09540).

Every document is assigned to its two nearest of a few global centroids, the rows are laid out on disk cluster by
cluster, and within each cluster all are compared. A cosine counts from what is usual within the language: an encoder
that puts all texts of a language on one point finds no duplicates in it. Memory is one shard's features and one
cluster's; disk is two copies of the features, for the time of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from datamask import storage
from datamask.devices import pick_device
from datamask.filter.near_duplicates import nearest_centroids, spherical_kmeans
from datamask.stages import ShardFiles
from datamask.storage import Output

CLUSTER_ROWS = 8192  # documents a centroid, on average: up to so many, all pairs are compared
MAX_CLUSTERS = 50_000  # SemDeDup's number for LAION (arXiv 2303.09540, table A1)
SAMPLE_PER_CLUSTER = 256  # rows the centroids are fitted on (faiss' default maximum)
PROBES = 2  # clusters a document is looked for in: duplicates on a border would be missed with one
NEAREST = 8  # of its cluster, those a document is paired with
BACKGROUND = 512  # documents of a language whose cosines tell what is usual
BLOCK = 1024


def near_pairs(
    all_files: Sequence[ShardFiles],
    first_row: np.ndarray,
    rows: np.ndarray,
    group: np.ndarray,
    epsilon: float,
    seed: int,
    device: str,
    folder: str,
) -> tuple[np.ndarray, np.ndarray]:
    """(pairs (P, 2) of places in `rows`, their relative cosine (P,) float32), each pair once.

    The relative cosine is (c − m) / (1 − m), with m the median cosine of two documents of the group (of two groups:
    the greater): 0 for unrelated ones, 1 for equal ones. Pairs have one above 1 − ε.

    :param first_row: where each shard's rows begin among those of all embeddings files.
    :param rows: (N,) ascending numbers of the rows that are compared.
    :param group: (N,) int: their language.
    """
    at = pick_device(device)
    clusters = int(min(MAX_CLUSTERS, max(1, -(-len(rows) // CLUSTER_ROWS))))
    members = _assign(all_files, first_row, rows, clusters, seed, at)
    usual = _usual(all_files, first_row, rows, group, seed)
    entry = np.repeat(np.arange(len(rows)), members.shape[1])
    cluster = members.reshape(-1)
    order = np.lexsort((entry, cluster))
    entry, cluster = entry[order], cluster[order]
    laid_out = _lay_out(all_files, first_row, rows[entry], Path(folder) / "features")
    pairs, cosines = [], []
    for start, stop in pairwise(np.searchsorted(cluster, np.arange(clusters + 1))):
        if stop - start > 1:
            mine = entry[start:stop]
            features = torch.from_numpy(np.array(laid_out[start:stop])).to(at)
            found, relative = _compare(features, torch.from_numpy(usual[group[mine]]).to(at), 1 - epsilon)
            pairs.append(mine[found])
            cosines.append(relative)
    if not pairs:
        return np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
    every = np.sort(np.concatenate(pairs), axis=1)
    unique, first = np.unique(every, axis=0, return_index=True)
    return unique.astype(np.int64), np.concatenate(cosines)[first]


def _compare(features: torch.Tensor, usual: torch.Tensor, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """(places (P, 2), relative cosine (P,)) of each row (n, d) and its nearest above the threshold."""
    unit = torch.nn.functional.normalize(features.float(), dim=1)
    pairs, values = [], []
    for start in range(0, len(unit), BLOCK):
        part = unit[start : start + BLOCK]
        own = torch.arange(start, start + len(part), device=unit.device)
        middle = torch.maximum(usual[own][:, None], usual[None, :])
        relative = (part @ unit.T - middle) / (1 - middle)
        relative[torch.arange(len(part), device=unit.device), own] = -1
        best, place = relative.topk(min(NEAREST, len(unit)), dim=1)
        row, column = (best > threshold).nonzero(as_tuple=True)
        pairs.append(torch.stack([own[row], place[row, column]], dim=1).cpu().numpy())
        values.append(best[row, column].cpu().numpy())
    return np.concatenate(pairs), np.concatenate(values)


def _usual(
    all_files: Sequence[ShardFiles], first_row: np.ndarray, rows: np.ndarray, group: np.ndarray, seed: int
) -> np.ndarray:
    """(groups,) float32: the median cosine of two documents of each group, at most 0.999; at least 0."""
    generator = np.random.default_rng([seed, 11])
    shuffled = generator.permutation(len(rows))
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    drawn = np.sort(order[rank < BACKGROUND])
    features = np.concatenate(list(_features(all_files, first_row, rows[drawn]))).astype(np.float32)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9)
    found = np.zeros(int(group.max()) + 1, np.float32)
    for number in np.unique(group):
        mine = features[group[drawn] == number]
        if len(mine) > 1:
            cosine = mine @ mine.T
            found[number] = np.median(cosine[np.triu_indices(len(mine), 1)])
    return np.clip(found, 0, 0.999)


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
            layout = storage.scratch_array(str(path), np.float16, (len(rows), features.shape[1]))
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


def _output(output: Output | None) -> Output:
    if output is None:
        raise ValueError("an earlier stage has not run for this shard")
    return output
