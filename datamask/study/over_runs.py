"""What several runs say together: a mean with its interval, the knee of a front, what two choices share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit


@dataclass(frozen=True)
class Interval:
    """A mean over runs and the half-width of its 95 % confidence interval (Student's t); nan for one run."""

    mean: float
    half_width: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if not self.half_width > 0 else f"{self.mean:.4g} ± {self.half_width:.2g}"


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval of independent runs' results."""
    found = np.asarray([value for value in values if np.isfinite(value)], dtype=np.float64)
    if not len(found):
        return Interval(float("nan"), float("nan"), 0)
    if len(found) == 1:
        return Interval(float(found[0]), float("nan"), 1)
    half = stdtrit(len(found) - 1, 0.975) * found.std(ddof=1) / np.sqrt(len(found))
    return Interval(float(found.mean()), float(half), len(found))


def knee(x: Sequence[float], y: Sequence[float], reference: tuple[float, float] = (0.0, 0.0)) -> int:
    """Index of a front's knee: the point with the largest product of its gains over `reference`, in x and in y.

    That is Nash's bargaining solution ("The Bargaining Problem", Econometrica 1950) with `reference`, here a random
    selection, as what either side falls back to; as a picture, the corner of the largest rectangle under the front
    (the hypervolume of one point). It depends neither on the axes' scales nor on where the front ends: points that are
    added or taken away change it only by being better. Where no point gains in both: the one whose smaller gain is
    largest.
    """
    gains = [(a - reference[0], b - reference[1]) for a, b in zip(x, y, strict=True)]
    return max(range(len(gains)), key=lambda i: (min(gains[i]) > 0, _nash(*gains[i])))


def _nash(first: float, second: float) -> float:
    return first * second if min(first, second) > 0 else min(first, second)


def convex(x: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """Bounds of a convex function at ascending x, none above the line between two others: it lies below all chords."""
    best = list(bounds)
    for i in range(1, len(x) - 1):
        for a in range(i):
            for b in range(i + 1, len(x)):
                share = (x[i] - x[a]) / (x[b] - x[a])
                best[i] = min(best[i], (1 - share) * bounds[a] + share * bounds[b])
    return best


def overlap(first: Iterable[object], second: Iterable[object]) -> float:
    """Jaccard similarity of two selections: shared over all; 1 for two empty ones."""
    a, b = set(first), set(second)
    return len(a & b) / len(a | b) if a | b else 1.0
