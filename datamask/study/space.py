"""What `tune` may change: λ, and how the diversity is mixed.

    space = Space(("pairwise", "embedding", "ngrams"))
    space.changes((0.5, 0.0, 1.0, 0.0))                  # settings of `select`: λ .5, coverage of the embedding alone

A point is λ and a weight for each part, which add up to one: (1 + parts,). Parts are the parts of algorithm coverage
(`embedding`, `ngrams`, and `target` where texts are named), and `pairwise`, the published metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc

from datamask.errors import ConfigError

PAIRWISE, TARGET = "pairwise", "target"
PARTS = (PAIRWISE, "embedding", "ngrams")  # always there; `target` where there is one
LEAST = 0.1  # of a part: a smaller weight is none
Point = tuple[float, ...]


@dataclass(frozen=True)
class Space:
    """The mixtures of some parts of the objective.

    :raises ConfigError: no part, an unknown one, or one twice.
    """

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        valid = (*PARTS, TARGET)
        if not self.parts or set(self.parts) - set(valid) or len(set(self.parts)) < len(self.parts):
            raise ConfigError(f"parts {', '.join(self.parts) or '(none)'}: each once, of {', '.join(valid)}")

    def corners(self) -> list[Point]:
        """Every part alone at λ .5, and quality alone: where a search begins."""
        alone = [(0.5, *(float(part == other) for other in self.parts)) for part in self.parts]
        return [*alone, (1.0, *alone[0][1:])]

    def candidates(self, count: int, seed: int) -> list[Point]:
        """Different points, spread evenly (a scrambled Sobol sequence; weights are uniform on their simplex)."""
        power = int(np.ceil(np.log2(max(2, count))))
        drawn = qmc.Sobol(1 + len(self.parts), rng=np.random.default_rng([seed, 89])).random_base2(power)[:count]
        return list(dict.fromkeys(self._point(row) for row in drawn))

    def _point(self, row: npt.NDArray[np.float64]) -> Point:
        weights = -np.log(np.maximum(row[1:], 1e-12))
        weights = weights / weights.sum()
        weights[(weights < LEAST) & (weights < weights.max())] = 0.0
        whole = np.round(100 * weights / weights.sum()).astype(int)
        whole[int(np.argmax(whole))] += 100 - int(whole.sum())  # hundredths that add up to one
        return (round(float(row[0]), 2), *(int(value) / 100 for value in whole))

    def changes(self, point: Sequence[float]) -> dict[str, Any]:
        """The point as settings of `select`, beside its λ the algorithm and its parts' weights."""
        lamb, weights = float(point[0]), dict(zip(self.parts, map(float, point[1:]), strict=True))
        pairwise = weights.pop(PAIRWISE, 0.0)
        atoms = {part: weight for part, weight in weights.items() if weight > 0}
        found: dict[str, Any] = {"solver": "relaxation", "lamb": lamb}
        if not atoms:
            return {**found, "algorithm": PAIRWISE}
        covered = round(sum(atoms.values()), 4)
        algorithm = {"coverage": covered, PAIRWISE: pairwise} if pairwise > 0 else "coverage"
        return {**found, "algorithm": algorithm, "coverage": {"atoms": atoms}}

    def said(self, point: Sequence[float]) -> str:
        """λ 0.50, embedding 0.60, ngrams 0.40."""
        mixed = [f"{part} {weight:.2f}" for part, weight in zip(self.parts, point[1:], strict=True) if weight > 0]
        return ", ".join([f"λ {point[0]:.2f}", *(mixed if point[0] < 1 else [])])
