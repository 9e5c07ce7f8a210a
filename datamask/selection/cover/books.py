"""What a search's selection spends of the budget and of the limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datamask.selection.problem.limits import Limits

ROOM = 0.002  # how far a search may be off a token budget, as a share of it


@dataclass(eq=False)
class Books:
    """The budget's and the limits' running sums, as arrays for the compiled loops."""

    weights: np.ndarray
    spent: float  # beyond the budget
    room: float
    groups: np.ndarray  # (N, columns) int32: group numbers, all columns' groups numbered consecutively
    sums: np.ndarray
    low: np.ndarray
    high: np.ndarray
    lengths: np.ndarray
    length: np.ndarray  # sum, low, high

    @classmethod
    def of(cls, limits: Limits, selected: np.ndarray) -> Books:
        """The sums at this mask. selected: (N,) bool."""
        columns, low, high, first = [], [], [], 0
        for grouping in limits.groupings:
            columns.append(grouping.codes + first)
            first += len(grouping.names)
            low.append(grouping.low)
            high.append(grouping.high)
        count = len(selected)
        groups = np.stack(columns, axis=1).astype(np.int32) if columns else np.zeros((count, 0), np.int32)
        sums = np.zeros(first)
        for column in groups.T:
            np.add.at(sums, column[selected], limits.weights[selected])
        ends = [np.concatenate(part) if part else np.zeros(0) for part in (low, high)]
        whole = bool((limits.weights == 1).all())
        lengths, length = np.zeros(0), np.zeros(3)
        if limits.length is not None:
            lengths = np.asarray(limits.length.coefficients, np.float64)
            length = np.array([lengths[selected].sum(), limits.length.low, limits.length.high])
        spent = float(limits.weights[selected].sum()) - limits.size
        room = 0.0 if whole else max(ROOM * limits.size, float(np.median(limits.weights)))
        return cls(limits.weights, spent, room, groups, sums, ends[0], ends[1], lengths, length)

    @property
    def limited(self) -> bool:
        """Whether there are limits beside the budget."""
        return bool(self.groups.shape[1] or len(self.lengths))

    @property
    def bounds(self) -> tuple[np.ndarray, ...]:
        """The arguments that `compiled.allowed` takes after `room`."""
        return self.groups, self.sums, self.low, self.high, self.lengths, self.length
