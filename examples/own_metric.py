"""Three diversity metrics of your own, each with its gradient: two of the features, one of a column of the corpus.

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


class Vendi(Volume):
    """D(S) = −tr C ln C, C = (I + Σ_{i ∈ S} x_i x_iᵀ) / its trace: ln of the Vendi score (arXiv 2210.02410), smoothed.

    Concave in the mask where the budget counts documents, since then the trace is the same for every choice.
    """

    name = "vendi"

    def _spectrum(self, mask):
        values, vectors = torch.linalg.eigh(self._moment(mask))
        return values / values.sum(), vectors, values.sum()

    def value(self, masks):
        return torch.stack([-torch.special.xlogy(shares, shares).sum() for shares, _, _ in map(self._spectrum, masks)])

    def relaxed(self, mask):
        shares, vectors, trace = self._spectrum(mask)
        slope = (vectors * shares.log()) @ vectors.T
        entropy = -(shares * shares.log()).sum()
        return float(entropy), -(((self.rows @ slope) * self.rows).sum(dim=1) + entropy) / trace


class Domains:
    """D(S) = Σ_g √(share of S in group g): larger where more domains have more equal parts of the selection."""

    name = "domains"
    columns = ("domain",)  # of the corpus, or of what `select` is given as groups

    def __init__(self, pool, weights, size):
        names, group = np.unique(pool.groups["domain"], return_inverse=True)
        member = torch.eye(len(names), dtype=torch.float64)[torch.from_numpy(group)]
        self.part = weights[:, None] * member / size  # (N, groups)

    def value(self, masks):
        return (masks.double() @ self.part).sqrt().sum(dim=1)

    def relaxed(self, mask):
        share = (mask.double() @ self.part).clamp_min(1e-9)
        return float(share.sqrt().sum()), self.part @ (0.5 / share.sqrt())


def main() -> None:
    generator = np.random.default_rng(0)
    features, quality = generator.standard_normal((300, 16)), generator.random(300)
    for solver, metric in (("relaxation", "Volume"), ("random", "Volume"), ("relaxation", "Vendi")):
        found = select(features, quality, algorithm=f"{__file__}:{metric}", solver=solver, budget_documents=30)
        print(solver, found.terms, "objective", found.objective, "at most", found.upper_bound)
    domain = np.repeat(["news", "forum", "law"], [250, 40, 10])
    found = select(features, quality, algorithm=f"{__file__}:Domains", groups={"domain": domain}, budget_documents=30)
    print("domains", {name: int((domain[found.selected] == name).sum()) for name in ("news", "forum", "law")})


if __name__ == "__main__":
    main()
