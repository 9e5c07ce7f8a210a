"""Documents to look at: the map's points, disagreements with top-quality, and near-duplicates: groups by size, and
dropped documents each beside the one that stays. All bounded.

What is shown of a document has passed `differences.excerpt`: one bounded line, no control or direction-changing
characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config, ResolvedSelect, resolve
from datamask.filter.forgotten import REASON
from datamask.release.differences import compare, excerpt, shared_words
from datamask.report import drawing, statistics
from datamask.report.embedding_sample import Documents, Place, Sample, Vectors, grouping_columns
from datamask.selection.arrays import select
from datamask.selection.solvers import can_solve
from datamask.stages import ShardFiles

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
GROUPS = 6  # near-duplicate groups shown
GROUP_CHARACTERS = 210
PAIRS = 12  # dropped and kept documents shown side by side
CHECKED = 200  # pairs drawn at random whose texts are compared
CHARACTERS = 20_000  # of each text that are compared for it
COPIES = (0, 1, 2, 5, 10, 100)  # copies of a document at which a row of the table begins
UNLIKE = 0.2  # share of words in both below which two texts are taken for no copies of each other
COLUMNS = ("chunk_id", "duplicate_of_shard", "duplicate_of", "similarity", "kind")
CONTAINED = "contained"  # the kind of a document that lies in another, and shares few of its words


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


def place_map(sample: Sample, vectors: Vectors, drawn: Mapping[str, Indices]) -> npt.NDArray[np.float32]:
    """Where the documents of all panels lie on the map, (n, 2), in the order of their rows; none: too few."""
    rows = _rows_of(drawn)
    if len(rows) < 10:
        return np.zeros((0, 2), np.float32)
    return drawing.place_documents(vectors(rows).astype(np.float32), sample.config.selection.seed)


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


# ---------------------------------------------------------------- near-duplicates


@dataclass(frozen=True)
class FallenPair:
    """A document that fell, and the one it fell to."""

    dropped: Place
    kept: Place
    similarity: float
    kind: str  # exact, near, contained


@dataclass(frozen=True)
class PairsShown:
    """What `Sample.documents` has to read for this page: `places`."""

    documents: int  # that fell to another
    sizes: Rows
    groups: int
    largest: list[tuple[Place, int, float]]  # the one that stays, the group's size, the least similarity
    drawn: list[FallenPair]  # at random, CHECKED at most

    @property
    def places(self) -> list[Place]:
        """The documents whose texts are shown."""
        pairs = [place for pair in self.drawn for place in (pair.dropped, pair.kept)]
        return [*pairs, *(place for place, _, _ in self.largest)]


def draw_pairs(sample: Sample) -> PairsShown:
    """Reads the duplicates' files: counts the groups, draws pairs by the run's seed."""
    tables = []
    for files in sample.files:
        if files.duplicates:
            table = storage.read_table(files.duplicates.path, list(COLUMNS))
            if files.copies:  # of what must be forgotten nothing is shown
                late = storage.read_table(files.copies.path, ["chunk_id", "reason"])
                gone = late.filter(pc.equal(late["reason"], REASON))["chunk_id"]
                table = table.filter(pc.invert(pc.is_in(table["chunk_id"], value_set=gone.combine_chunks())))
            tables.append(table.append_column("shard", pa.repeat(files.shard.name, len(table))))
    joined = pa.concat_tables(tables) if tables else None
    if joined is None or not joined.num_rows:
        return PairsShown(0, [], 0, [], [])
    # documents of other curations (duplicates.against) count, and their texts are not here to be shown
    here = pa.array([files.shard.name for files in sample.files], pa.string())
    shown = joined.filter(pc.is_in(joined["duplicate_of_shard"], value_set=here))
    groups, own = (
        table.group_by(["duplicate_of_shard", "duplicate_of"]).aggregate([([], "count_all"), ("similarity", "min")])
        for table in (joined, shown)
    )
    by_size = [("count_all", "descending"), ("duplicate_of_shard", "ascending"), ("duplicate_of", "ascending")]
    edges = [2, 3, 4, 6, 11, 51, np.inf]
    labels = ["2", "3", "4–5", "6–10", "11–50", "over 50"]
    counts = np.histogram(groups["count_all"].to_numpy() + 1, edges)[0]  # the kept document too
    generator = np.random.default_rng([sample.config.selection.seed, 13])
    places = np.sort(generator.permutation(shown.num_rows)[:CHECKED])
    drawn = [
        FallenPair(
            (row["shard"], row["chunk_id"]),
            (row["duplicate_of_shard"], row["duplicate_of"]),
            row["similarity"],
            row["kind"],
        )
        for row in shown.take(pa.array(places)).to_pylist()
    ]
    largest = [
        ((row["duplicate_of_shard"], row["duplicate_of"]), row["count_all"] + 1, row["similarity_min"])
        for row in own.sort_by(by_size).slice(0, GROUPS).to_pylist()
    ]
    sizes = [{"size": label, "groups": int(n)} for label, n in zip(labels, counts, strict=True)]
    return PairsShown(joined.num_rows, sizes, groups.num_rows, largest, drawn)


def describe_groups(pairs: PairsShown, documents: Documents) -> dict[str, Any]:
    """How many groups, how large, the largest ones with a text each; and how much the drawn pairs share."""
    if not pairs.documents:
        return {"documents": 0, "groups": 0, "sizes": [], "largest": []}
    copies = [pair for pair in pairs.drawn if pair.kind != CONTAINED]
    shared = [shared_words(_text(documents, pair.dropped), _text(documents, pair.kept)) for pair in copies]
    doubted = Counter(pair.kind for pair, value in zip(copies, shared, strict=True) if value < UNLIKE)
    return {
        "documents": pairs.documents,
        "groups": pairs.groups,
        "sizes": pairs.sizes,
        "largest": [
            {
                "size": size,
                "least_similarity": least,
                "id": excerpt(documents[place].get("id"), 80),
                "text": excerpt(documents[place].get("text"), GROUP_CHARACTERS),
            }
            for place, size, least in pairs.largest
        ],
        "checked": {
            "pairs": len(shared),
            "unlike": doubted.total(),
            "kind": doubted.most_common(1)[0][0] if doubted else None,
            "median": float(np.median(shared)) if shared else None,
        },
    }


def count_copies(all_files: Sequence[ShardFiles]) -> dict[str, Any]:
    """Of the documents that stay, by their number of copies: how many, how many chosen; {} where none are counted."""
    rows = np.zeros((len(COPIES), 2), np.int64)
    for files in all_files:
        if files.copies is None or files.masks is None:
            return {}
        masks = storage.read_table(files.masks.path, ["selected", "reason"])
        stays = np.asarray(pc.fill_null(pc.equal(masks["reason"], "not_selected"), True))
        copies = storage.read_table(files.copies.path, ["copies"])["copies"].to_numpy()
        for column, some in enumerate((stays, masks["selected"].to_numpy())):
            rows[:, column] += np.histogram(copies[some], [*COPIES, np.inf])[0]
    labels = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(COPIES)]
    named = zip([*labels, f"{COPIES[-1]} and more"], rows.tolist(), strict=True)
    return {"copies": [{"copies": label, "documents": all_, "selected": chosen} for label, (all_, chosen) in named]}


def side_by_side(sample: Sample, pairs: PairsShown, documents: Documents, warnings: Rows) -> Rows:
    """PAIRS of the drawn: one of each group that a warning names first, then the others as they were drawn.

    By how little the two texts share, so that the doubtful come first.
    """
    doubted = [(w["column"], group["value"]) for w in warnings if w["kind"] == "loss" for group in w["groups"][:2]]
    chosen: dict[int, dict[str, str]] = {}
    values = [_groups(sample, documents[pair.dropped]) for pair in pairs.drawn]
    for column, value in dict.fromkeys(doubted):
        hit = next((n for n, found in enumerate(values) if found.get(column) == value and n not in chosen), None)
        if hit is not None:
            chosen[hit] = values[hit]
    order = np.random.default_rng([sample.config.selection.seed, 14]).permutation(len(values))
    chosen |= {int(n): values[n] for n in order if n not in chosen}
    found = [_shown(pairs.drawn[n], documents, groups) for n, groups in list(chosen.items())[:PAIRS]]
    return sorted(found, key=lambda pair: (pair["shared"], pair["id"]))


def _shown(pair: FallenPair, documents: Documents, groups: Mapping[str, str]) -> dict[str, Any]:
    dropped, kept = documents[pair.dropped], documents[pair.kept]
    difference = compare(dropped.get("text") or "", kept.get("text") or "")
    return {
        "id": excerpt(dropped.get("id"), 80) or "/".join(map(str, pair.dropped)),
        "kept_id": excerpt(kept.get("id"), 80) or "/".join(map(str, pair.kept)),
        "groups": dict(groups),
        "kind": pair.kind,
        "similarity": pair.similarity,
        "shared": difference.shared,
        "dropped": difference.first,
        "kept": difference.second,
    }


def _groups(sample: Sample, row: Mapping[str, Any]) -> dict[str, str]:
    names = grouping_columns(sample.config)
    return {name: excerpt(str(row[name]), 60) for name in names if row.get(name) not in (None, "")}


def _text(documents: Documents, place: Place) -> str:
    return (documents[place].get("text") or "")[:CHARACTERS]
