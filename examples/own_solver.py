"""A solver of your own, which declares what it can hold: what it does not declare is refused before it is called.

python examples/own_solver.py
"""

import numpy as np
import torch

from datamask import select
from datamask.errors import ConfigError
from datamask.selection.problem.problem import Draft


class BestOfRandom:
    """The best of several random selections."""

    holds = frozenset({"documents"})  # no budget in tokens, no quotas, no bound on the length
    requires = ("value",)  # every metric has it

    def solve(self, problem, progress):
        """The selection; whoever calls it checks the budget and computes the objective."""
        generator = problem.generator(stream=9)
        masks = torch.zeros(32, len(problem), dtype=torch.bool)
        for number, mask in enumerate(masks):
            mask[torch.from_numpy(generator.permutation(len(problem))[: int(problem.size)])] = True
            progress({"step": number})
        values = problem.objective.values(masks)
        best = masks[int(values.argmax())]
        return Draft(best, best.float())


def main() -> None:
    generator = np.random.default_rng(0)
    features, quality = generator.standard_normal((300, 16)), generator.random(300)
    solver = f"{__file__}:BestOfRandom"
    print(select(features, quality, solver=solver, budget_documents=30).objective)
    try:
        select(features, quality, solver=solver, tokens=np.full(300, 10), budget_tokens=500)
    except ConfigError as error:
        print(error)


if __name__ == "__main__":
    main()
