"""Mask learning by policy gradient: the method of DATAMASK (arXiv 2512.24265), as published and improved.

As published (`published: true`): a mask is k draws without replacement from softmax(logits); a step takes a `partial`
batch of the pool, draws `n_rollout` masks of it, rewards each with the batch's own λ·quality + (1 − λ)·diversity, and
moves the batch's logits by η·mean_g A_g ∇ln P(mask_g), A the rewards less their mean over their standard deviation,
η linear from `max_lr` to `min_lr`.

Improved (the default), also for any metric:
- the reward is the whole pool's objective with the rest of the pool as a fixed context, because a batch of 10 % alone
  has another optimum than the pool and noisier sums;
- a linear baseline: each document's price (its marginal value) is subtracted from the reward before the covariance with
  the masks is taken. The price is exact where the metric has a gradient. Otherwise it is learned from the residuals by
  the best linear estimate, whose gain follows from the covariance: G·cov / (G·v + Σv + DOUBT), v = π(1 − π);
- the mean that is subtracted from a rollout's reward is that of the other rollouts (leave-one-out);
- the step is the natural gradient (the price, not the price times v): probabilities near 0 or 1 do not get stuck.

Shapes: `logits` (n,), `orders` (G, k) indices in the order drawn, `masks` (G, n), `advantages` (G,).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from datamask.errors import ConfigError
from datamask.selection.paper.rewards import Reward, reward_of
from datamask.selection.problem.problem import Draft, Problem
from datamask.selection.solvers import Report, Solver
from datamask.shares import share_part, tell_share

# -- Plackett–Luce: documents drawn one after another without replacement, each with probability ∝ exp(logit). The
# Gumbel top-k trick (Kool et al., arXiv 1903.06059) draws all k at once.


def draw_orders(logits: Tensor, k: int, rollouts: int, generator: torch.Generator) -> Tensor:
    """`rollouts` draws of k of n documents without replacement from softmax(logits): orders (G, k), exact."""
    return _arrivals(logits, k, rollouts, generator).topk(k, dim=1, largest=False).indices


def draw_masks(logits: Tensor, k: int, rollouts: int, generator: torch.Generator) -> Tensor:
    """As `draw_orders`, as masks (G, n) float32, in no order: several times faster."""
    arrivals = _arrivals(logits, k, rollouts, generator)
    if arrivals.device.type == "cpu":
        cut = np.partition(arrivals.numpy(), k - 1, axis=1)[:, k - 1 : k]  # vectorised, as topk is not
        taken = arrivals <= torch.from_numpy(cut)
        if int(taken.sum()) == rollouts * k:  # else arrivals are equal to the bit
            return taken.float()
    return as_masks(arrivals.topk(k, dim=1, largest=False, sorted=False).indices, logits.numel())


def _arrivals(logits: Tensor, k: int, rollouts: int, generator: torch.Generator) -> Tensor:
    """Exponential clocks of rate exp(logit), (G, n): they ring in Plackett–Luce order (−ln of one: Gumbel)."""
    clocks = torch.rand(rollouts, logits.numel(), generator=generator, device=logits.device).log_()
    cut = logits.topk(k).values[-1]  # a logit 80 from it is in or out for certain; float32 holds the nearer ones
    return clocks.mul_((cut - logits).float().clamp_(-80, 80).exp_().neg_())


def as_masks(orders: Tensor, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Orders (G, k) as masks (G, n) of zeros and ones."""
    return torch.zeros(orders.shape[0], n, dtype=dtype, device=orders.device).scatter_(1, orders, 1)


def order_gradient(logits: Tensor, orders: Tensor, advantages: Tensor) -> Tensor:
    """mean_g A_g ∇ ln P(order_g | logits), (n,), with the exact probability of the order drawn.

    ∂ ln P/∂L_i = m_i − exp(L_i)·Σ_j 1/R_j over the draws j that i was still in the urn for, R_j the mass in the urn.
    All in logarithms: logits may lie hundreds apart.
    """
    never = logits.expand(len(orders), -1).scatter(1, orders, -torch.inf).logsumexp(1, keepdim=True)
    backwards = torch.cat([never, logits[orders].flip(1)], dim=1)
    left = torch.logcumsumexp(backwards, dim=1)[:, 1:].flip(1)  # (G, k): ln R_j
    rates = torch.logcumsumexp(-left, dim=1)  # (G, k): ln Σ_{j ≤ r} 1/R_j
    expected = rates[:, -1:].expand(-1, logits.numel()).scatter(1, orders, rates)  # never drawn: all k draws
    masks = as_masks(orders, logits.numel(), logits.dtype)
    return advantages.to(logits.dtype) @ (masks - (logits + expected).exp()) / len(orders)


def surrogate_gradient(logits: Tensor, masks: Tensor, advantages: Tensor) -> Tensor:
    """mean_g A_g (m_g − k·softmax(logits)), (n,): the order's gradient as if every draw were from the full urn."""
    expected = masks[0].sum() * logits.softmax(0)
    return (advantages.to(masks.dtype) @ masks - advantages.sum() * expected) / len(masks)


def inclusion(logits: Tensor, k: float) -> Tensor:
    """Probability of each document to be among k draws, (n,), to O(1/k): 1 − exp(−t·exp(logit)) with their sum k.

    Drawing without replacement is a race of exponential clocks stopped at its k-th arrival; with many documents that
    moment is nearly certain, and given it the arrivals are independent (Rosén 1972, asymptotic theory for successive
    sampling).
    """
    if k >= logits.numel():
        return torch.ones_like(logits)
    shifted = logits.double() - logits.max()
    low, high = -50.0, 50.0 + float(-shifted.min())
    for _ in range(60):
        middle = (low + high) / 2
        total = float(-torch.special.expm1(-(shifted + middle).exp()).sum())
        low, high = (middle, high) if total < k else (low, middle)
    return -torch.special.expm1(-(shifted + (low + high) / 2).exp()).to(logits.dtype)


# -- the steps that learn the logits

RECORDS = 20  # history records of a run
LEAST_BATCH = 24  # documents; facility location of 80 in batches of 8 ended below a random choice after 5,000 steps
STEP = 0.02  # length of a natural step at learning rate 1, in standard deviations of the batch's prices
DOUBT = 3.0  # added to the draws' total variance: shrinks the estimate where masks hardly differ
LARGEST = 5.0  # standard deviations to which a step clips a price


class PolicyGradient(Solver):
    """The paper's method, for any metric."""

    holds: ClassVar = frozenset({"documents", "prune"})

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """Learns the logits block by block; the selection is each block's documents of greatest logits.

        :raises ConfigError: pruning leaves fewer documents than the budget.
        """
        settings = problem.settings
        device = problem.pool.device
        generator = torch.Generator(device).manual_seed(settings.seed)
        quality = torch.from_numpy(problem.pool.quality @ problem.pool.quality_weights).to(device)
        candidates = _candidates(problem, quality)
        policy = Policy(problem, generator, progress, _start(quality, settings.init))
        blocks = _blocks(candidates, settings.block_documents, int(problem.size), generator)
        policy.selected[_best(policy.logits, blocks)] = True
        probability = torch.zeros(len(problem), device=device)
        for number, (block, k) in enumerate(blocks):
            with share_part(number / len(blocks), (number + 1) / len(blocks)):
                policy.learn(block, k, number)
            probability[block] = inclusion(policy.logits[block], k)
        return Draft(policy.selected.cpu(), probability.cpu(), history=tuple(policy.history))


@dataclass(eq=False)
class Policy:
    """The logits of all documents, with the steps that learn them."""

    problem: Problem
    generator: torch.Generator
    progress: Report
    logits: Tensor  # (N,) float32
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        objective = self.problem.objective
        self.terms: list[tuple[float, Reward]] = [
            (term.scale, reward_of(self.problem, term.metric, self.generator))
            for term in objective.diversity
            if term.scale and term.metric is not None
        ]
        self.quality = objective.linear.to(self.logits)  # (N,): a document's part of f, times the budget
        self.price = torch.zeros_like(self.logits)  # what the baseline has learned
        self.selected = torch.zeros(len(self.logits), dtype=torch.bool, device=self.logits.device)

    def learn(self, block: Tensor, k: int, number: int) -> None:
        """Learns the logits of a block, of which k documents are to be selected, and sets `selected`."""
        settings, epochs = self.problem.settings, self.problem.settings.n_epochs
        if not 0 < k < len(block):
            self._record(block, k, number * epochs)
            return
        least = 2 if settings.published else LEAST_BATCH
        size = min(len(block), max(least, round(settings.partial * len(block))))
        if not settings.published:
            self._begin(block, k)
        for step in range(epochs):
            share = step / max(epochs - 1, 1)
            tell_share(share)
            rate = settings.max_lr + (settings.min_lr - settings.max_lr) * share
            batch = block[torch.randperm(len(block), generator=self.generator, device=block.device)[:size]]
            if settings.published:
                self._published_step(batch, min(max(round(k * size / len(block)), 1), size - 1), rate)
            else:
                self._step(batch, rate)
            if (step + 1) % max(1, epochs // RECORDS) == 0 or step + 1 == epochs:
                self._record(block, k, step + 1 + number * epochs)

    def _published_step(self, batch: Tensor, k: int, rate: float) -> None:
        logits = self.logits[batch]
        orders, masks = self._draw(logits, k)
        reward = masks @ self.quality[batch] / k
        for scale, term in self.terms:
            reward += scale * term.alone(batch, masks)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-12)
        self.logits[batch] = logits + rate * self._gradient(logits, orders, masks, advantage)

    def _draw(self, logits: Tensor, k: int) -> tuple[Tensor | None, Tensor]:
        """Orders (G, k), if the gradient uses them, and masks (G, n)."""
        rollouts = self.problem.settings.n_rollout
        if self.problem.settings.gradient == "order":
            orders = draw_orders(logits, k, rollouts, self.generator)
            return orders, as_masks(orders, len(logits))
        return None, draw_masks(logits, k, rollouts, self.generator)

    def _gradient(self, logits: Tensor, orders: Tensor | None, masks: Tensor, advantage: Tensor) -> Tensor:
        if orders is None:
            return surrogate_gradient(logits, masks, advantage)
        return order_gradient(logits, orders, advantage)

    def _begin(self, block: Tensor, k: int) -> None:
        self.probability = self.selected.float()
        self.probability[block] = inclusion(self.logits[block], k)
        self.hard = any(term.hard for _, term in self.terms)
        for _, term in self.terms:
            term.start(self.selected.float() if term.hard else self.probability)

    def _step(self, batch: Tensor, rate: float) -> None:
        n = len(batch)
        logits, probability = self.logits[batch], self.probability[batch]
        k = int(self.selected[batch].sum()) if self.hard else round(float(probability.sum()))
        k = min(max(k, 1), n - 1)
        orders, masks = self._draw(logits, k)
        reward, price, known = self._rewards(batch, masks, probability)
        if not known:
            price = price + self.price[batch]
        residual = reward - (masks - probability) @ price
        rollouts = len(masks)
        advantage = (residual - residual.mean()) * (rollouts / (rollouts - 1))  # less the mean of the others
        variance = probability * (1 - probability)
        covariance = self._gradient(logits, orders, masks, advantage)
        learned = rollouts * covariance / (rollouts * variance + variance.sum() + DOUBT)
        if not known:
            self.price[batch] += learned
        price = price + learned
        middle = (variance @ price) / (variance.sum() + 1e-12)
        if known:  # the undecided documents' deviation: the nearer their prices, the finer the steps between them
            width = ((variance @ (price - middle).square()) / (variance.sum() + 1e-12)).sqrt()
        else:  # learned prices are noisy: all documents', by quantiles, for prices have long tails
            low, high = price.quantile(price.new_tensor([0.16, 0.84]))
            width = (high - low) / 2
        logits = logits + rate * STEP * ((price - middle) / (width + 1e-30)).clamp(-LARGEST, LARGEST)
        self.logits[batch] = logits
        self.probability[batch] = inclusion(logits, float(probability.sum()))
        if self.hard:
            taken = torch.zeros(n, device=batch.device)
            taken[logits.topk(k).indices] = 1
            self.selected[batch] = taken.bool()
        for _, term in self.terms:
            term.move(batch, taken if term.hard else self.probability[batch])

    def _rewards(self, batch: Tensor, masks: Tensor, held: Tensor) -> tuple[Tensor, Tensor, bool]:
        """The gains (G,) of `masks` (G, n) over `held` (n,), the prices (n,), and whether all terms know theirs."""
        price, known = self.quality[batch] / self.problem.size, True
        reward = (masks - held) @ price
        for scale, term in self.terms:
            value, gradient = term.within(batch, masks, held)
            reward, known = reward + scale * value, known and gradient is not None
            price = price if gradient is None else price + scale * gradient
        return reward, price, known

    def _select(self, block: Tensor, k: int) -> None:
        self.selected[block] = False
        self.selected[_best(self.logits, [(block, k)])] = True

    def _record(self, block: Tensor, k: int, step: int) -> None:
        self._select(block, k)
        objective = float(self.problem.objective.values(self.selected[None])[0])
        self.history.append({"step": step, "objective": objective})
        self.progress(self.history[-1])


def _candidates(problem: Problem, quality: Tensor) -> Tensor:
    """Rows that are not pruned, ascending: all but the lowest quality."""
    count = len(problem)
    kept = count - int(problem.settings.prune * count)
    if kept < problem.size:
        raise ConfigError(
            f"prune = {problem.settings.prune} leaves {kept} documents for a budget of {problem.size:.0f}; "
            f"set at most {1 - problem.size / count:.2g}"
        )
    return torch.argsort(quality, descending=True, stable=True)[:kept].sort().values


def _start(quality: Tensor, init: str) -> Tensor:
    deviation = quality.std() if len(quality) > 1 else quality.new_zeros(())
    if init == "same" or not deviation > 0:
        return torch.zeros_like(quality, dtype=torch.float32)
    return ((quality - quality.mean()) / deviation).float()


def _blocks(candidates: Tensor, most: int, size: int, generator: torch.Generator) -> list[tuple[Tensor, int]]:
    """Random blocks of at most `most` documents, as equal as can be, each with its share of the budget."""
    count = -(-len(candidates) // most)
    mixed = candidates[torch.randperm(len(candidates), generator=generator, device=candidates.device)]
    blocks = [block.sort().values for block in torch.tensor_split(mixed, count)]
    ends = np.round(np.cumsum([len(block) for block in blocks]) * size / len(candidates)).astype(int)
    return list(zip(blocks, np.diff(ends, prepend=0).tolist(), strict=True))


def _best(logits: Tensor, blocks: list[tuple[Tensor, int]]) -> Tensor:
    """Row numbers of each block's greatest logits."""
    return torch.cat([block[logits[block].topk(k).indices] for block, k in blocks])
