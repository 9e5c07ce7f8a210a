"""Documents to look at: the map's points, disagreements with top-quality, near-duplicate groups. All bounded.

Whatever of a document is shown has passed `excerpt`: one line, bounded, no control or direction-changing characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from datamask import storage
from datamask.config import Config, Select
from datamask.corpus.rows import corpus_rows
from datamask.release.differences import compare, excerpt
from datamask.report import statistics
from datamask.report.sample import Sample, Vectors, grouping_columns
from datamask.selection import select
from datamask.stages import ShardFiles

MAP_POINTS = 500  # documents drawn from each choice
MAP_POOL = 8_000  # candidates the diversity-only choice of the map is made from
DISPUTED = 400  # documents of each kind that the examples are taken from
EXAMPLES = 6  # documents of each kind of disagreement
EXAMPLE_CHARACTERS = 420
HOVER_CHARACTERS = 140
GROUPS = 6  # near-duplicate groups shown
PAIRS = 12  # dropped and kept documents shown side by side
ALIKE = 0.5  # cosine between two examples above which the second is skipped, so that examples differ

Rows = list[dict[str, Any]]
Indices = npt.NDArray[np.intp]


# ---------------------------------------------------------------- the map


def diverse_pool(sample: Sample, generator: np.random.Generator) -> Indices:
    """The candidates, at most MAP_POOL, that the map's diversity-only choice is made from."""
    return np.sort(generator.permutation(np.flatnonzero(sample.candidates))[:MAP_POOL])


def map_points(
    sample: Sample,
    vectors: Vectors,
    compared: Mapping[str, Indices],
    diverse: Indices,
    config: Config,
    generator: np.random.Generator,
) -> Rows:
    """The paper's map: positions of documents drawn from the pool, top-quality, diversity alone, and the selection.

    t-SNE (scikit-learn) of the first 50 principal components of the vectors. compared: rows of the choices whose
    vectors are read, diverse: those of `diverse_pool`.
    """
    panels = {
        "pool": compared["pool"],
        "top-quality": compared["top-quality"],
        "diversity only": _most_diverse(sample, vectors, diverse, config.select),
        "selected": compared["selected"],
    }
    drawn = {panel: np.sort(generator.permutation(rows)[:MAP_POINTS]) for panel, rows in panels.items()}
    rows = np.unique(np.concatenate(list(drawn.values())))
    if len(rows) < 10:
        return []
    place = _tsne(vectors(rows).astype(np.float32), config.select.seed)
    texts = sample.columns(rows, ["id", "text"])
    points: Rows = []
    for panel, members in drawn.items():
        for position in np.searchsorted(rows, members):
            row = rows[position]
            points.append(
                {
                    "x": round(float(place[position, 0]), 2),
                    "y": round(float(place[position, 1]), 2),
                    "panel": panel,
                    "quality": round(float(sample.quality[row]), 4),
                    "tokens": int(sample.tokens[row]),
                    **{column: excerpt(values[row], 40) for column, values in sample.groups.items()},
                    "id": excerpt(texts[position].get("id"), 60),
                    "document": excerpt(texts[position].get("text"), HOVER_CHARACTERS),
                }
            )
    return points


def _most_diverse(sample: Sample, vectors: Vectors, pool: Indices, settings: Select) -> Indices:
    """The choice λ = 0 makes of these candidates, at the selection's share."""
    size, candidates = int(sample.selected.sum()), int(sample.candidates.sum())
    if not size or len(pool) < 2:
        return pool[:size]
    count = max(1, round(size * len(pool) / candidates))
    chosen = select(
        vectors(pool),
        sample.quality[pool],
        algorithm=settings.algorithm,
        lamb=0.0,
        budget_documents=count,
        seed=settings.seed,
    )
    return pool[chosen.selected]


def _tsne(features: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
    components = min(50, *features.shape)
    reduced = PCA(components, random_state=seed).fit_transform(features)
    perplexity = min(30.0, (len(features) - 1) / 3)
    with threadpool_limits(1):  # reproducible, and at this size threads cost more than they bring
        return TSNE(init="pca", perplexity=perplexity, max_iter=500, random_state=seed).fit_transform(reduced)


# ---------------------------------------------------------------- disagreements


def disputed(sample: Sample, top: Indices) -> dict[str, Indices]:
    """Documents kept that top-quality drops, largest price first, and dropped that it keeps, smallest price first."""
    selected = sample.selected
    in_top = np.zeros(len(sample), dtype=bool)
    in_top[top] = True
    kept, dropped = np.flatnonzero(selected & ~in_top), np.flatnonzero(~selected & in_top)
    return {
        "kept": kept[np.argsort(-sample.price[kept], kind="stable")][:DISPUTED],
        "dropped": dropped[np.argsort(sample.price[dropped], kind="stable")][:DISPUTED],
    }


def disagreements(
    sample: Sample,
    vectors: Vectors,
    disputed: Mapping[str, Indices],
    top: Indices,
    compared: Mapping[str, Indices],
) -> Rows:
    """Examples of `disputed` documents that differ from one another.

    The numbers that are the reason: quality and its percentile among the candidates, the price beside the price of the
    last document kept, and the cosine to the nearest document of either choice.
    """
    if not sample.selected.any():
        return []
    ordered = np.sort(sample.quality[sample.candidates])
    threshold = float(sample.price[sample.selected].min())
    choices = {"selected": _thin(compared["selected"]), "top": _thin(compared["top-quality"])}
    features_of = {name: vectors(rows) for name, rows in choices.items()}
    found: Rows = []
    for kind, candidates in disputed.items():
        rows, features = _unlike(vectors, candidates)
        texts = sample.columns(rows, ["id", "url", "text"])
        for row, feature, text in zip(rows, features, texts, strict=True):
            found.append(
                {
                    "kind": kind,
                    "shard": sample.files[sample.shard[row]].shard.name,
                    "chunk_id": int(sample.chunk_id[row]),
                    "id": excerpt(text.get("id"), 80),
                    "url": excerpt(text.get("url"), 100),
                    "text": excerpt(text.get("text"), EXAMPLE_CHARACTERS),
                    "tokens": int(sample.tokens[row]),
                    "quality": float(sample.quality[row]),
                    "percentile": statistics.percentile_of(float(sample.quality[row]), ordered),
                    "price": float(sample.price[row]),
                    "threshold": threshold,
                    "quality_cut": float(sample.quality[top].min()) if len(top) else float("nan"),
                    **{
                        f"nearest_{name}": _nearest_other(feature, features_of[name], choices[name], row)
                        for name in choices
                    },
                    "groups": {column: excerpt(values[row], 40) for column, values in sample.groups.items()},
                }
            )
    return found


def _thin(rows: Indices, count: int = 20_000) -> Indices:
    return rows[:: max(1, -(-len(rows) // count))]


def _unlike(vectors: Vectors, candidates: Indices) -> tuple[Indices, npt.NDArray[np.float32]]:
    """The first EXAMPLES of `candidates` that do not resemble one already taken, and their vectors."""
    if not len(candidates):
        return candidates, np.empty((0, 0), dtype=np.float32)
    features = vectors(candidates).astype(np.float32)
    taken: list[int] = []
    for place in range(len(candidates)):
        if len(taken) == EXAMPLES:
            break
        if not taken or (features[taken] @ features[place]).max() < ALIKE:
            taken.append(place)
    return candidates[taken], features[taken]


def _nearest_other(
    feature: npt.NDArray[np.float32], vectors: npt.NDArray[np.float16], rows: Indices, own: int
) -> float | None:
    others = rows != own
    return float((vectors[others].astype(np.float32) @ feature).max()) if others.any() else None


# ---------------------------------------------------------------- near-duplicates


def duplicate_groups(sample: Sample) -> dict[str, Any]:
    """Near-duplicate groups that selection collapsed: how many, how large, and the largest ones with a text each."""
    names = ["duplicate_of_shard", "duplicate_of", "similarity"]
    tables = [storage.read_table(files.duplicates.path, names) for files in sample.files if files.duplicates]
    if not tables or not sum(table.num_rows for table in tables):
        return {"documents": 0, "groups": 0, "sizes": [], "largest": []}
    joined = pa.concat_tables(tables)
    groups = joined.group_by(names[:2]).aggregate([([], "count_all"), ("similarity", "min")])
    groups = groups.sort_by([("count_all", "descending"), (names[0], "ascending"), (names[1], "ascending")])
    sizes = groups["count_all"].to_numpy() + 1  # the kept document too
    edges = [2, 3, 4, 6, 11, 51, np.inf]
    labels = ["2", "3", "4–5", "6–10", "11–50", "over 50"]
    counts = np.histogram(sizes, edges)[0]
    shards = {files.shard.name: files.shard for files in sample.files}
    largest = []
    for row in groups.slice(0, GROUPS).to_pylist():
        shard = shards[row["duplicate_of_shard"]]
        text = corpus_rows(shard, sample.config, np.array([row["duplicate_of"]]), ["id", "text"])[0]
        largest.append(
            {
                "size": row["count_all"] + 1,
                "least_similarity": row["similarity_min"],
                "id": excerpt(text.get("id"), 80),
                "text": excerpt(text.get("text"), EXAMPLE_CHARACTERS // 2),
            }
        )
    return {
        "documents": joined.num_rows,
        "groups": groups.num_rows,
        "sizes": [{"size": label, "groups": int(count)} for label, count in zip(labels, counts, strict=True)],
        "largest": largest,
    }


def pairs(sample: Sample, warnings: Rows) -> Rows:
    """Documents that fell to a copy, each beside the one that stays, with what differs marked.

    At most PAIRS: the first of each group that a warning names, then others drawn by the run's seed; by how little the
    two texts share, so that the doubtful come first.
    """
    names = ["chunk_id", "duplicate_of_shard", "duplicate_of", "similarity"]
    doubted = {(w["column"], group["value"]) for w in warnings if w["kind"] == "loss" for group in w["groups"][:2]}
    generator = np.random.default_rng([sample.config.select.seed, 13])
    shards = {files.shard.name: files for files in sample.files}
    drawn: list[tuple[float, ShardFiles, dict[str, Any]]] = []
    for files in sample.files:
        table = storage.read_table(files.duplicates.path, names) if files.duplicates else None
        if table is None or not table.num_rows:
            continue
        keys = generator.random(table.num_rows)
        for place in np.argsort(keys)[: 40 * PAIRS]:
            drawn.append((float(keys[place]), files, table.slice(int(place), 1).to_pylist()[0]))
    drawn.sort(key=lambda item: item[0])
    chosen: list[tuple[ShardFiles, dict[str, Any], dict[str, str]]] = []
    others: list[tuple[ShardFiles, dict[str, Any], dict[str, str]]] = []
    groups = _groups_of(sample, [(files, row["chunk_id"]) for _, files, row in drawn])
    for (_, files, row), values in zip(drawn, groups, strict=True):
        hit = next((key for key in doubted if values.get(key[0] or "") == key[1]), None)
        doubted -= {hit} if hit else set()
        (chosen if hit else others).append((files, row, values))
    found: Rows = []
    for files, row, values in [*chosen, *others][:PAIRS]:
        other = shards[row["duplicate_of_shard"]]
        [mine] = corpus_rows(files.shard, sample.config, np.array([row["chunk_id"]]), ["id", "text"])
        [kept] = corpus_rows(other.shard, sample.config, np.array([row["duplicate_of"]]), ["id", "text"])
        difference = compare(mine.get("text") or "", kept.get("text") or "")
        found.append(
            {
                "id": excerpt(mine.get("id"), 80) or f"{files.shard.name}/{row['chunk_id']}",
                "kept_id": excerpt(kept.get("id"), 80) or f"{other.shard.name}/{row['duplicate_of']}",
                "groups": values,
                "similarity": row["similarity"],
                "shared": difference.shared,
                "dropped": difference.first,
                "kept": difference.second,
            }
        )
    return sorted(found, key=lambda pair: (pair["shared"], pair["id"]))


def _groups_of(sample: Sample, rows: list[tuple[ShardFiles, int]]) -> Rows:
    """The values of the grouping columns of some rows of the corpus; one dictionary a row."""
    names = grouping_columns(sample.config)
    found: Rows = [{} for _ in rows]
    for name in {files.shard.name: None for files, _ in rows}:
        places = [place for place, (files, _) in enumerate(rows) if files.shard.name == name]
        ids = np.array([rows[place][1] for place in places])
        for place, row in zip(places, corpus_rows(rows[places[0]][0].shard, sample.config, ids, names), strict=True):
            found[place] = {column: excerpt(str(value), 60) for column, value in row.items() if value not in (None, "")}
    return found
