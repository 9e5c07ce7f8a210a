"""A diversity metric of your own: the volume that the selected features span, with its gradient.

python examples/own_metric.py
"""

import numpy as np
import torch

from datamask import select


class Volume:
    """D(S) = ln det(I + Σ_{i ∈ S} x_i x_iᵀ): larger where the selected vectors point in more directions."""

    name = "volume"

    def __init__(self, pool, weights, size):
        """pool: the candidates, unit rows (N, d); weights: (N,) what each takes of the budget; size: the budget."""
        self.rows = torch.cat([rows.double() for _, rows in pool.blocks()])

    def _moment(self, mask):
        return torch.eye(self.rows.shape[1], dtype=torch.float64) + (self.rows * mask.double()[:, None]).T @ self.rows

    def value(self, masks):
        """masks: (G, N) bool -> (G,) float64. All that the policy gradient needs."""
        return torch.stack([torch.logdet(self._moment(mask)) for mask in masks])

    def relaxed(self, mask):
        """mask: (N,) in [0, 1] -> value and gradient (N,): makes the relaxation, and so a certificate, possible."""
        moment = self._moment(mask)
        return float(torch.logdet(moment)), ((self.rows @ torch.linalg.inv(moment)) * self.rows).sum(dim=1)


def main() -> None:
    generator = np.random.default_rng(0)
    features, quality = generator.standard_normal((300, 16)), generator.random(300)
    for solver in ("relaxation", "random"):
        found = select(features, quality, algorithm=f"{__file__}:Volume", solver=solver, budget_documents=30)
        print(solver, found.terms, "objective", found.objective, "at most", found.upper_bound)


if __name__ == "__main__":
    main()
