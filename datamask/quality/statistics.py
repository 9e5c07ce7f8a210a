"""What a score looks like: its distribution and percentiles, and how it goes with length and with the other scores.

statistics = score_statistics(all_files)
statistics["scorers"]["heuristic"]["percentiles"]["50"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datamask import storage
from datamask.stages import ShardFiles

PERCENTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
BINS = 50
LENGTHS = {"tokens": "token_count", "characters": "characters"}  # our name: the index's column
DOCUMENTS = 1_000_000  # looked at by score_statistics, spread evenly over the corpus


def summary(scores: Mapping[str, np.ndarray], lengths: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Per score (n,): documents, mean, deviation, percentiles {"0" … "100"}, histogram {edges, counts}, and
    `spearman` {name: rank correlation} with each length and each other score (null where one is constant)."""
    names = [*lengths, *scores]
    matrix = _rank_correlations([*lengths.values(), *scores.values()])
    found = {}
    for name, values in scores.items():
        row = matrix[names.index(name)]
        found[name] = {
            **_distribution(values),
            "spearman": {
                other: None if np.isnan(r) else round(float(r), 4)
                for other, r in zip(names, row, strict=True)
                if other != name
            },
        }
    return found


def score_statistics(all_files: Sequence[ShardFiles]) -> dict[str, Any]:
    """The same over all shards' scores files, with tokens and characters as lengths; for the report.

    Of a corpus with more than DOCUMENTS documents, evenly spaced ones of every shard are looked at.
    `{"documents": …, "looked_at": …, "scorers": {name: summary}, "failures": {rule: documents}}`; the failures are
    of all documents.
    """
    scored = [files for files in all_files if files.scores is not None and files.index is not None]
    documents = sum(files.scores.rows for files in scored if files.scores)
    step = max(1, -(-documents // DOCUMENTS))
    failures: dict[str, int] = {}
    columns: dict[str, list[np.ndarray]] = {}
    for files in scored:
        assert files.scores is not None and files.index is not None
        for rule, count in files.scores.facts.get("failures", {}).items():
            failures[rule] = failures.get(rule, 0) + count
        names = [*files.scores.facts.get("scorers", {})]
        table = storage.read_table(files.scores.path, names)
        index = storage.read_table(files.index.path, ["token_count", "characters", "reason"])
        kept = index["reason"].is_null().combine_chunks()
        for name in names:
            columns.setdefault(name, []).append(table[name].to_numpy()[::step])
        for name, source in LENGTHS.items():
            columns.setdefault(name, []).append(index[source].filter(kept).to_numpy()[::step].astype(np.float64))
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    lengths = {name: joined.pop(name) for name in LENGTHS if name in joined}
    looked_at = len(next(iter(lengths.values()))) if lengths else 0
    return {
        "documents": documents,
        "looked_at": looked_at,
        "scorers": summary(joined, lengths),
        "failures": failures,
    }


def _distribution(values: np.ndarray) -> dict[str, Any]:
    if not len(values):
        return {"documents": 0, "mean": None, "deviation": None, "percentiles": {}, "histogram": None}
    values = values.astype(np.float64)
    counts, edges = np.histogram(values, BINS)
    levels = np.percentile(values, PERCENTILES)
    return {
        "documents": len(values),
        "mean": _round(values.mean()),
        "deviation": _round(values.std()),
        "percentiles": {str(p): _round(v) for p, v in zip(PERCENTILES, levels, strict=True)},
        "histogram": {"edges": [_round(edge) for edge in edges], "counts": counts.tolist()},
    }


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _rank_correlations(columns: Sequence[np.ndarray]) -> np.ndarray:
    """(k, k) Spearman's ρ of k columns of n values; NaN where one is constant."""
    from scipy.stats import rankdata

    if not columns or len(columns[0]) < 2:
        return np.full((len(columns), len(columns)), np.nan)
    ranks = np.stack([rankdata(column) for column in columns])
    ranks -= ranks.mean(axis=1, keepdims=True)
    length = np.sqrt((ranks**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (ranks @ ranks.T) / np.outer(length, length)
