"""Documents to look at: the map's points, and disagreements with top-quality. All bounded.

What is shown of a document has passed `differences.excerpt`: one bounded line, no control or direction-changing
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from datamask.config import Config, ResolvedSelect, resolve
from datamask.release.differences import excerpt
from datamask.report import drawer, statistics
from datamask.report.embedding_sample import Documents, Sample, Vectors
from datamask.selection.arrays import select
from datamask.selection.solvers import can_solve

MAP_POINTS = 300  # documents drawn from each choice
MAP_POOL = 3_000  # candidates the diversity-only choice of the map is made from
DISPUTED = 400  # documents of each kind that the examples are taken from
EXAMPLES = 6  # documents of each kind of disagreement
EXAMPLE_CHARACTERS = 420
HOVER_CHARACTERS = 140
THINNED = 20_000  # documents of a choice that the nearest is looked for among, at most
ALIKE = 0.5  # cosine between two examples above which the second is skipped, so that examples differ

Rows = list[dict[str, Any]]
Indices = npt.NDArray[np.intp]
Place: TypeAlias = Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.float32]]  # as `drawer.place_documents`


# ---------------------------------------------------------------- the map


def draw_map(
    sample: Sample,
    vectors: Vectors,
    compared: Mapping[str, Indices],
    diverse: Indices,
    config: Config,
    generator: np.random.Generator,
) -> dict[str, Indices]:
    """The rows of each panel of the map.

    :param compared: rows whose vectors are read. :param diverse: those the diversity-only choice is made from.
    """
    panels = {
        "pool": compared["pool"],
        "top-quality": compared["top-quality"],
        "diversity only": _most_diverse(sample, vectors, diverse, config.selection),
        "selected": compared["selected"],
    }
    return {panel: np.sort(generator.permutation(rows)[:MAP_POINTS]) for panel, rows in panels.items()}


def place_map(
    sample: Sample, vectors: Vectors, drawn: Mapping[str, Indices], place: Place = drawer.place_documents
) -> npt.NDArray[np.float32]:
    """Where the documents of all panels lie on the map, (n, 2), in the order of their rows; none: too few."""
    rows = _rows_of(drawn)
    if len(rows) < 10:
        return np.zeros((0, 2), np.float32)
    return place(vectors(rows).astype(np.float32), sample.config.selection.seed)


def _rows_of(drawn: Mapping[str, Indices]) -> Indices:
    return np.unique(np.concatenate(list(drawn.values())))


def map_points(
    sample: Sample, drawn: Mapping[str, Indices], place: npt.NDArray[np.float32], documents: Documents
) -> Rows:
    """The paper's map: documents drawn from the pool, top-quality, diversity alone, and the selection.

    place: of `place_map`.
    """
    rows = _rows_of(drawn)
    if not len(place):
        return []
    texts = [documents[where] for where in sample.places(rows)]
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


def _most_diverse(sample: Sample, vectors: Vectors, pool: Indices, settings: ResolvedSelect) -> Indices:
    """The choice λ = 0 makes of these candidates, at the selection's share; greedily where the metric has such a form,
    for a picture needs no bound."""
    size, candidates = int(sample.selected.sum()), int(sample.candidates.sum())
    if not size or len(pool) < 2:
        return pool[:size]
    count = max(1, round(size * len(pool) / candidates))
    asked = {"algorithm": settings.algorithm, "lamb": 0.0, "budget_documents": count, "seed": settings.seed}
    ways = [resolve(None, {**asked, "solver": name}, words=False) for name in ("greedy", "relaxation", settings.solver)]
    chosen = select(
        vectors(pool),
        sample.quality[pool],
        groups=sample.pool_groups(settings, pool),  # which a metric of one's own may read
        settings=next(way for way in ways if can_solve(way.solver, way)),
    )
    return pool[chosen.selected]


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


def unlike(vectors: Vectors | None, disputed: Mapping[str, Indices]) -> dict[str, Indices]:
    """The first EXAMPLES of each kind that do not resemble one already taken."""
    if vectors is None:
        return {kind: candidates[:EXAMPLES] for kind, candidates in disputed.items()}
    found = {}
    for kind, candidates in disputed.items():
        features = vectors(candidates).astype(np.float32)
        taken: list[int] = []
        for place in range(len(candidates)):
            if len(taken) < EXAMPLES and (not taken or (features[taken] @ features[place]).max() < ALIKE):
                taken.append(place)
        found[kind] = candidates[taken]
    return found


def disagreements(
    sample: Sample,
    vectors: Vectors | None,
    shown: Mapping[str, Indices],
    top: Indices,
    compared: Mapping[str, Indices],
    documents: Documents,
) -> Rows:
    """The `unlike` documents of each kind.

    The numbers that are the reason: quality and its percentile among the candidates, the price beside the price of the
    last document kept, and the cosine to the nearest document of either choice.
    """
    if not sample.selected.any():
        return []
    ordered = np.sort(sample.quality[sample.candidates])
    prices = np.sort(sample.price[sample.candidates])
    explained = explained_by_price(sample)
    threshold = float(sample.price[sample.selected].min())
    choices = {"selected": _thin(compared["selected"]), "top": _thin(compared["top-quality"])}
    features_of = {name: vectors(rows) for name, rows in choices.items()} if vectors else {}
    found: Rows = []
    for kind, rows in shown.items():
        features = vectors(rows).astype(np.float32) if vectors else [None] * len(rows)
        texts = [documents[where] for where in sample.places(rows)]
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
                    "price_percentile": statistics.percentile_of(float(sample.price[row]), prices),
                    "threshold": threshold,
                    "explained": explained,
                    "quality_cut": float(sample.quality[top].min()) if len(top) else float("nan"),
                    **{
                        f"nearest_{name}": _nearest_other(feature, features, choices[name], row)
                        for name, features in features_of.items()
                    },
                    "groups": {column: excerpt(values[row], 40) for column, values in sample.groups.items()},
                }
            )
    return found


def explained_by_price(sample: Sample) -> float:
    """The share of the selected among as many candidates of highest price: 1 where prices explain the choice."""
    candidates = np.flatnonzero(sample.candidates)
    chosen = sample.selected[candidates]
    highest = np.argsort(-sample.price[candidates], kind="stable")[: chosen.sum()]
    return float(chosen[highest].mean()) if len(highest) else 1.0


def _thin(rows: Indices) -> Indices:
    return rows[:: max(1, -(-len(rows) // THINNED))]


def _nearest_other(
    feature: npt.NDArray[np.float32], vectors: npt.NDArray[np.float16], rows: Indices, own: int
) -> float | None:
    others = rows != own
    return float((vectors[others].astype(np.float32) @ feature).max()) if others.any() else None
