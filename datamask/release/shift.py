"""Whether new documents are unlike those that were there: what a refresh warns of, and Prefect can notify of.

    found = shifts(release, new={"dump-2026-02-00001"})
    found[0].text    # "quality_score of the 12,000 new documents has shifted (stability index 0.41, mean 0.6 → 0.3)"

Scores, lengths and what the filters took are compared by the population stability index, Σ (q − p) ln(q / p) over the
old documents' deciles (Lewis 1994; Siddiqi 2006: 0.25 is a shift to act on). Small shards differ by chance: where
nothing has shifted, the index over (1/n + 1/m) is near a χ² of one degree less than there are bins (Yurdakul 2018),
and less than its 99.9th percentile is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import chdtri

from datamask.release.merge import count_values
from datamask.release.release_folder import ReleaseFolder

SHIFTED = 0.25  # Siddiqi, Credit Risk Scorecards (2006)
CHANCE = 0.001
BINS = 10
ROWS = 1_000_000  # of each side that are looked at, evenly drawn
COLUMNS = ("quality_score", "token_count")
NAMES = {"quality_score": "quality_score", "token_count": "length", "outcome": "what the filters take"}


Compared = tuple[str, Sequence[np.ndarray], str]  # column, counts by bin of old and of new documents, what moved


@dataclass(frozen=True)
class Shift:
    """A column in which the new documents are unlike the old ones."""

    column: str
    index: float  # population stability index
    documents: int  # new
    text: str


def shifts(release: ReleaseFolder, new: Collection[str]) -> list[Shift]:
    """The columns that have shifted from the release's other shards to these, the most shifted first.

    :param new: names of shards. :raises DamagedFileError: a file of decisions is damaged.
    """
    shards = release.manifest()["conservation"]["shards"]
    ours = sorted(name for name in shards if name in new)
    others = sorted(name for name in shards if name not in new)
    if not ours or not others:
        return []
    now, before = _rows(release, ours), _rows(release, others)
    documents = sum(shards[name]["rows"] for name in ours)
    found = []
    for column, counts, told in (*_numbers(before, now), *_outcomes(before, now)):
        if index := stability(*counts):
            text = (
                f"{NAMES[column]} of the {documents:,} new documents has shifted (stability index {index:.2f}, {told})"
            )
            found.append(Shift(column, index, documents, text))
    return sorted(found, key=lambda shift: -shift.index)


def _numbers(before: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """Scores and lengths, by the old documents' deciles."""
    for column in COLUMNS:
        old, young = _values(before, column), _values(now, column)
        if len(old) and len(young):
            edges = np.unique(np.quantile(old, np.arange(1, BINS) / BINS))
            places = [np.searchsorted(edges, side, "right") for side in (old, young)]
            counts = [np.bincount(place, minlength=len(edges) + 1) for place in places]
            yield column, counts, f"mean {old.mean():.4g} → {young.mean():.4g}"


def _outcomes(before: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """What the filters took, and what was kept."""
    sides = [count_values(side["outcome"]) for side in (before, now)]
    names = sorted({name for side in sides for name in side})
    counts = [np.array([side[name] for name in names]) for side in sides]
    if names:
        old, new = (each / max(each.sum(), 1) for each in counts)
        worst = int(np.argmax(np.abs(old - new)))
        yield "outcome", counts, f"{names[worst]} {old[worst]:.1%} → {new[worst]:.1%}"


def stability(before: np.ndarray, now: np.ndarray) -> float:
    """The population stability index of counts by bin, or 0 where it is small or may be chance.

    Half a document is added to each bin, so that an empty one does not count for infinity.
    """
    n, m = before.sum(), now.sum()
    if len(before) < 2 or not n or not m:
        return 0.0
    p, q = ((counts + 0.5) / (counts + 0.5).sum() for counts in (before, now))
    index = float(((q - p) * np.log(q / p)).sum())
    chance = chdtri(len(before) - 1, CHANCE) * (1 / n + 1 / m)
    return index if index > max(SHIFTED, chance) else 0.0


def _rows(release: ReleaseFolder, shards: Sequence[str]) -> pa.Table:
    rows = sum(release.manifest()["conservation"]["shards"][name]["rows"] for name in shards)
    step = -(-rows // ROWS)
    parts = []
    for name in shards:
        table = release.decisions(name, [*COLUMNS, "outcome", "reason"])
        table = table.take(np.arange(0, len(table), step)) if step > 1 else table
        fell = pc.is_in(table["outcome"], pa.array(["filtered", "quarantined"]))
        outcome = pc.if_else(fell, table["reason"], "kept")
        parts.append(table.select(COLUMNS).append_column("outcome", outcome))
    return pa.concat_tables(parts)


def _values(table: pa.Table, column: str) -> np.ndarray:
    values = table[column].drop_null().to_numpy().astype(np.float64)
    return values[np.isfinite(values)]
