"""Combines several scores into one: a weighted sum of raw scores, z-scores or percentiles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from datamask.quality.quality_ref import QualityRef, Statistics

GRID = 1001  # quantiles kept, in steps of a tenth of a per cent


def fit_grid(scores: np.ndarray) -> Statistics:
    """Mean, deviation and percentile grid of a sample of finite scores (n,)."""
    values = np.asarray(scores, dtype=np.float64)
    grid = np.quantile(values, np.linspace(0, 1, GRID)) if len(values) else np.zeros(0)
    mean, deviation = (float(values.mean()), float(values.std())) if len(values) else (0.0, 0.0)
    return Statistics(len(values), mean, deviation, tuple(float(value) for value in grid))


def combine(scores: Mapping[str, np.ndarray], quality: QualityRef) -> np.ndarray:
    """(n,) float32: Σ weight · score, the scores raw, standardised or as percentiles in [0, 1] of the sample."""
    total = np.zeros(len(next(iter(scores.values()))), dtype=np.float64)
    for scorer in quality.scorers:
        values = scores[scorer.name].astype(np.float64)
        if quality.combine == "standard":
            statistics = quality.statistics[scorer.name]
            values = (values - statistics.mean) / (statistics.deviation or 1.0)
        elif quality.combine == "rank":
            values = percentile(values, quality.statistics[scorer.name])
        total += scorer.settings.weight * values
    return total.astype(np.float32)


def percentile(values: np.ndarray, statistics: Statistics) -> np.ndarray:
    """(n,) in [0, 1]: the share of the sample below each value; equal scores of the sample share their mean rank.

    Between the sample's percentiles it is interpolated; beyond its extremes it is 0 or 1.
    """
    grid = np.array(statistics.percentiles)
    if not len(grid):
        return np.full(len(values), 0.5)
    distinct, inverse = np.unique(grid, return_inverse=True)
    ranks = np.bincount(inverse, np.linspace(0, 1, len(grid))) / np.bincount(inverse)
    found = np.interp(values, distinct, ranks)
    found[values < distinct[0]], found[values > distinct[-1]] = 0.0, 1.0
    return found
