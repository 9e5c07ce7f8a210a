"""Coverage as a reward for the policy gradient: the rest of the pool enters as one number for each atom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, tensor

from datamask.selection.metrics.coverage import Coverage

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem


class CoverReward:
    """A `paper.rewards.Reward`. The context is the probabilities; only the batch's rows are read."""

    hard = False
    exact = False

    def __init__(self, problem: Problem, metric: Coverage) -> None:
        self.problem, self.metric = problem, metric
        self.share = metric.weights / metric.size

    def alone(self, batch: Tensor, masks: Tensor) -> Tensor:
        """See `Reward.alone`: (G,)."""
        pool = self.problem.pool.take(batch.cpu().numpy())
        of_batch = type(self.metric)(pool, self.problem.weights[batch] * 0 + 1, float(masks[0].sum()))
        of_batch.bind(self.problem.settings)
        return of_batch.value(masks.bool()).to(batch.device).float()

    def start(self, probability: Tensor) -> None:
        """See `Reward.start`. probability: (N,)."""
        self.probability = probability.cpu().double().numpy().copy()
        self.state = self.metric.state(self.probability * self.share)

    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, None]:
        """See `Reward.within`: (G,) rewards less their mean; the marginal values are not known."""
        index = batch.cpu().numpy()
        rows, share = self.metric.rows.take(index), self.share[index]
        rest = self.state - rows.state(self.probability[index] * share)
        values = np.array(
            [self.metric.of_state(rest + rows.state(mask * share)) for mask in masks.cpu().double().numpy()]
        )
        return tensor(values - values.mean()).to(batch.device).float(), None

    def move(self, batch: Tensor, probability: Tensor) -> None:
        """See `Reward.move`. probability: (n,)."""
        index, now = batch.cpu().numpy(), probability.cpu().double().numpy()
        rows = self.metric.rows.take(index)
        self.state = self.state + rows.state((now - self.probability[index]) * self.share[index])
        self.probability[index] = now
