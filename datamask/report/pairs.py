"""Near-duplicates to look at: groups by size, and dropped documents each beside the one that stays. All bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.filter.forgotten import REASON
from datamask.release.differences import compare, excerpt, shared_words
from datamask.report.embedding_sample import Documents, Place, Sample, grouping_columns
from datamask.stages import ShardFiles

GROUPS = 6  # near-duplicate groups shown
GROUP_CHARACTERS = 210
PAIRS = 12  # dropped and kept documents shown side by side
CHECKED = 200  # pairs drawn at random whose texts are compared
CHARACTERS = 20_000  # of each text that are compared for it
COPIES = (0, 1, 2, 5, 10, 100)  # copies of a document at which a row of the table begins
UNLIKE = 0.2  # share of words in both below which two texts are taken for no copies of each other

COLUMNS = ("chunk_id", "duplicate_of_shard", "duplicate_of", "similarity", "kind")
CONTAINED = "contained"  # the kind of a document that lies in another, and shares few of its words
Rows = list[dict[str, Any]]


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
