"""Rewards of the policy gradient: the diversity of many masks of one batch at once.

A mask's diversity for pairwise and DiSF is a quadratic form in the mask, so the rewards of all rollouts are one matrix
product: over the batch's (squared) Gram matrix, or over features of the documents where that is cheaper. Facility
location finds each point's nearest selected document in its list of candidates by similarity. Any other metric is a
black box: its `value` is called.

Shapes: n documents in the batch, G rollouts; masks (G, n) float; rewards (G,) float32, up to a constant for each batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from datamask.selection.metrics.base import Metric, MomentMetric
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.metrics.moments import DiSF, Pairwise
from datamask.selection.paper.facility import FacilityLocation
from datamask.selection.problem.pool import BLOCK_ROWS, product_dtype
from datamask.selection.problem.problem import Problem

SKETCH = 2048  # random features that replace DiSF's squared Gram matrix in batches of more than twice as many documents
POINTS = 2048  # documents over which facility location's reward is averaged, drawn anew in each step
TILE = 256  # rows of the Gram matrix at a time
REFRESH = 200  # steps between exact sums of the context


class Reward(ABC):
    """The diversity reward of one metric for many masks of a batch.

    Where a batch is rewarded within the whole pool, the rest of the pool is fixed: at its probabilities, or where the
    reward is `hard`, as here, at its present selection. This is the context.
    """

    hard = True

    def start(self, probability: Tensor) -> None:
        """Sets the context: probability (N,)."""
        self.selected = probability > 0.5

    def move(self, batch: Tensor, probability: Tensor) -> None:
        """Updates the context: the batch's probabilities are now these (n,)."""
        self.selected[batch] = probability > 0.5

    @abstractmethod
    def alone(self, batch: Tensor, masks: Tensor) -> Tensor:
        """(G,) the diversity of each mask with the batch as the pool, as published. batch: (n,) row numbers."""

    @abstractmethod
    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, Tensor | None]:
        """The change of the pool's diversity if `masks` replaced the batch's `probability` (n,): (G,).

        Also, where it is known, each document's expected marginal value (n,), the others drawn by their probability.
        """


def reward_of(problem: Problem, metric: Metric, generator: torch.Generator) -> Reward:
    """The reward of a metric, by the fastest form it has."""
    if isinstance(metric, Pairwise | DiSF):
        return MomentReward(metric, generator)
    if isinstance(metric, FacilityLocation):
        return FacilityReward(metric, generator)
    if isinstance(metric, Coverage):
        return CoverReward(problem, metric)
    return BlackBoxReward(problem, metric)


class MomentReward(Reward):
    """Pairwise and DiSF: D(m) = −unit·‖Σ_i m_i v_i‖²/size²."""

    hard = False

    def __init__(self, metric: MomentMetric, generator: torch.Generator, dtype: torch.dtype | None = None) -> None:
        self.metric, self.generator = metric, generator
        pool = metric.pool
        self.dtype = dtype or product_dtype(pool.device)
        self.z = torch.empty(len(pool), pool.dimensions, dtype=self.dtype, device=pool.device)
        for part, rows in pool.blocks(dtype=metric.reads):
            self.z[part] = metric.prepare(rows).to(self.dtype)
        self.scale = metric.unit / metric.size**2

    def alone(self, batch: Tensor, masks: Tensor) -> Tensor:
        return -self.metric.unit / float(masks[0].sum()) ** 2 * self.forms(self.z.index_select(0, batch), masks)

    def forms(self, z: Tensor, masks: Tensor) -> Tensor:
        """‖Σ_i m_i v_i‖² of each mask, entries of any value: (G,). z: (n, d)."""
        n, low = len(z), masks.to(self.dtype)
        if isinstance(self.metric, Pairwise):  # d features a document: cheaper than n²·d for the Gram matrix
            return (low @ z).float().square().sum(1)
        # (G, d): the diagonal of Σ m_i z_i z_iᵀ, which DiSF leaves out; z² is 1 on average, which bf16 need not carry
        squares = masks.sum(1, keepdim=True) + (low @ z.square().sub_(1)).float()
        if n <= 2 * SKETCH:
            # the squared Gram matrix by tiles, those below the diagonal alone: each stays in the cache, twice counted
            whole = torch.zeros(len(masks), device=z.device)
            diagonal = torch.empty(n, device=z.device)
            for start in range(0, n, TILE):
                tile = slice(start, start + TILE)
                gram = (z[start:] @ z[tile].T).square_()
                diagonal[tile] = gram.diagonal().float()
                gram[: gram.shape[1]].fill_diagonal_(0).mul_(0.5)
                whole += 2 * ((low[:, start:] @ gram) * low[:, tile]).sum(1, dtype=torch.float32)
            whole += masks.square() @ diagonal  # the greatest entries, in float32
            return whole - squares.square().sum(1)
        # E (z_i·a)(z_i·b)(z_j·a)(z_j·b) = (z_i·z_j)² for independent vectors a, b of random signs
        signs = torch.randint(0, 2, (2, z.shape[1], SKETCH), generator=self.generator, device=z.device)
        left, right = (2 * signs - 1).to(self.dtype)
        features = (z @ left).mul_(z @ right)
        whole = (low @ features).float().square().sum(1) / SKETCH
        return whole - squares.square().sum(1)

    def start(self, probability: Tensor) -> None:
        self.probability, self.age = probability.clone(), 0
        parts = zip(self.z.split(BLOCK_ROWS), probability.split(BLOCK_ROWS), strict=True)
        self.total = reduce(Tensor.add_, (self.metric.moment(z, own).float() for z, own in parts))

    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, Tensor]:
        z = self.z.index_select(0, batch)
        price = -2 * self.scale * self.metric.row_products(z, self.total).float()
        change = masks - probability
        self_terms = self.scale * self.metric.squares(z.float()) * (1 - 2 * probability)
        return change @ price - self.scale * self.forms(z, change), price - self_terms

    def move(self, batch: Tensor, probability: Tensor) -> None:
        """Sums are computed anew every `REFRESH` calls, against drift by rounding."""
        change = probability - self.probability[batch]
        self.probability[batch] = probability
        self.age += 1
        if self.age >= REFRESH:
            self.start(self.probability)
        else:
            self.total += self.metric.moment(self.z.index_select(0, batch), change).float()


class FacilityReward(Reward):
    """Facility location: mean over points of the cosine to the nearest selected document."""

    def __init__(self, metric: FacilityLocation, generator: torch.Generator) -> None:
        self.metric, self.pool, self.generator = metric, metric.pool, generator

    def alone(self, batch: Tensor, masks: Tensor) -> Tensor:
        rows = self.pool.rows(batch)
        return nearest_selected(rows @ rows.T, masks).mean(1)

    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, None]:
        count = len(self.pool)
        points = torch.randperm(count, generator=self.generator, device=batch.device)[:POINTS]
        rest = self.selected.clone()
        rest[batch] = False
        covered = self.metric.coverage(rest.nonzero()[:, 0], points).to(batch.device, torch.float32)
        similarity = self.pool.rows(points) @ self.pool.rows(batch).T
        return nearest_selected(similarity, masks, covered).mean(1), None


def nearest_selected(similarity: Tensor, masks: Tensor, floor: Tensor | None = None) -> Tensor:
    """(G, P): each point's greatest similarity to a selected document, not below `floor` (P,). No mask may be empty.

    similarity: (P, n). Each point's candidates are sorted by falling similarity; the answer for a mask is the first one
    that it selects.
    """
    values, order = similarity.topk(min(similarity.shape[1], 64), dim=1)
    chosen = masks.bool().T.contiguous()  # (n, G): a candidate's column in one read
    best = torch.full((len(similarity), len(masks)), -torch.inf, device=similarity.device)
    for look in reversed(range(values.shape[1])):  # the nearest one is written last
        best = torch.where(chosen[order[:, look]], values[:, look, None], best)
    missing = best.isinf() if floor is None else best.isinf() & (values[:, -1] > floor)[:, None]
    for rollout in missing.any(0).nonzero()[:, 0].tolist():  # a point with no selected document among its nearest
        rows = missing[:, rollout].nonzero()[:, 0]
        best[rows, rollout] = similarity[rows][:, chosen[:, rollout]].amax(1)
    best = best.T.contiguous()
    return best if floor is None else torch.maximum(best, floor)


class BlackBoxReward(Reward):
    """A metric that offers only `value`."""

    def __init__(self, problem: Problem, metric: Metric) -> None:
        self.problem, self.metric = problem, metric

    def alone(self, batch: Tensor, masks: Tensor) -> Tensor:
        pool = self.problem.pool.take(batch.cpu().numpy())
        weights = torch.ones(len(batch), dtype=torch.float64, device=batch.device)
        of_batch = type(self.metric)(pool, weights, float(masks[0].sum()))
        if hasattr(of_batch, "bind"):
            of_batch.bind(self.problem.settings)
        return of_batch.value(masks.bool()).to(batch.device).float()

    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, None]:
        whole = self.selected.expand(len(masks), -1).clone()
        whole[:, batch] = masks.bool()
        value = self.metric.value(whole).to(batch.device)
        return (value - value.mean()).float(), None  # in float64 before the difference is taken


class CoverReward(BlackBoxReward):
    """Coverage: the rest of the pool enters as one number for each atom. The context is the probabilities."""

    hard = False

    def __init__(self, problem: Problem, metric: Coverage) -> None:
        super().__init__(problem, metric)
        self.cover, self.share = metric, metric.weights / metric.size

    def start(self, probability: Tensor) -> None:
        self.probability = probability.cpu().double().numpy().copy()
        self.state = self.cover.state(self.probability * self.share)

    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, None]:
        index = batch.cpu().numpy()
        rows, share = self.cover.rows.take(index), self.share[index]
        rest = self.state - rows.state(self.probability[index] * share)
        values = np.array(
            [self.cover.of_state(rest + rows.state(mask * share)) for mask in masks.cpu().double().numpy()]
        )
        return torch.tensor(values - values.mean()).to(batch.device).float(), None

    def move(self, batch: Tensor, probability: Tensor) -> None:
        index, now = batch.cpu().numpy(), probability.cpu().double().numpy()
        rows = self.cover.rows.take(index)
        self.state = self.state + rows.state((now - self.probability[index]) * self.share[index])
        self.probability[index] = now
