"""Spherical k-means of the semantic duplicates beside the libraries: processor seconds, and how near centroids are.

    python benchmarks/kmeans.py

Rows are unit vectors around as many directions as there are clusters, as embeddings of topics are.
"""

from __future__ import annotations

import time

import faiss
import numpy as np
import torch
from sklearn.cluster import MiniBatchKMeans

from datamask.encoders.clusters import spherical_kmeans

ITERATIONS = 20


def made(rows: int, clusters: int, width: int = 768) -> np.ndarray:
    """(rows, width) float32 unit rows."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((clusters, width))
    found = centres[generator.integers(clusters, size=rows)] + 2 * generator.standard_normal((rows, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def ours(rows: np.ndarray, clusters: int) -> np.ndarray:
    return spherical_kmeans(torch.from_numpy(rows), clusters, torch.Generator().manual_seed(0), ITERATIONS).numpy()


def of_faiss(rows: np.ndarray, clusters: int) -> np.ndarray:
    fitted = faiss.Kmeans(rows.shape[1], clusters, niter=ITERATIONS, spherical=True, seed=0)
    fitted.train(rows)
    return fitted.centroids


def of_sklearn(rows: np.ndarray, clusters: int) -> np.ndarray:
    found = MiniBatchKMeans(clusters, n_init=1, random_state=0).fit(rows).cluster_centers_
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def main() -> None:
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    print("| rows | clusters | way | processor s | mean cosine to the nearest centroid |\n|---|---|---|---|---|")
    for clusters in (50, 200):
        rows = made(256 * clusters, clusters)
        for name, way in {"datamask": ours, "faiss": of_faiss, "MiniBatchKMeans": of_sklearn}.items():
            way(rows[:200], 4)  # what is loaded at the first call
            began = time.process_time()
            centroids = way(rows, clusters)
            took = time.process_time() - began
            near = float((rows @ centroids.T).max(axis=1).mean())
            print(f"| {len(rows):,} | {clusters} | {name} | {took:.2f} | {near:.4f} |")


if __name__ == "__main__":
    main()
