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
- the step is the natural gradient (the price, not the price times v): probabilities near 0 or 1 do not get stuck;
- where rewards are exact (pairwise, DiSF), the second half of the steps is simulated annealing (
  Kirkpatrick et al. 1983). The context is then the selection itself. Masks are drawn by the documents' prices at a
  falling temperature, with a pull towards the selection so strong that a mask exchanges few documents; then one of the
  masks, or the selection, is drawn by its reward at the same temperature. This finds pairs of documents that gain
  together, which prices do not show, and leaves local optima.

Shapes: `logits` (n,), `orders` (G, k) indices in the order drawn, `masks` (G, n), `advantages` (G,).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from datamask.errors import ConfigError
from datamask.selection.metrics.base import Metric, MomentMetric
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.metrics.moments import DiSF, Pairwise
from datamask.selection.paper.facility import FacilityLocation
from datamask.selection.problem.pool import BLOCK_ROWS
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


# -- rewards: of many masks of one batch at once
#
# A mask's diversity for pairwise and DiSF is a quadratic form in the mask, so the rewards of all rollouts are one
# matrix product: over the batch's (squared) Gram matrix, or over features of the documents where that is cheaper.
# Facility location finds each point's nearest selected document in its list of candidates by similarity. Any other
# metric is a black box: its `value` is called.
#
# Two kinds of reward:
# - `alone`: the batch as a pool of its own, as published;
# - `within`: the whole pool's diversity, with the rest of the pool fixed at its probabilities, or at its selection (the
#   context).
#
# Shapes: n documents in the batch, G rollouts; masks (G, n) float; rewards (G,) float32, up to a constant for each
# batch.

SKETCH = 2048  # random features that replace DiSF's squared Gram matrix in batches of more than twice as many documents
POINTS = 2048  # documents over which facility location's reward is averaged, drawn anew in each step
TILE = 256  # rows of the Gram matrix at a time
REFRESH = 200  # steps between exact sums of the context


class Reward(Protocol):
    """The diversity reward of one metric for many masks of a batch."""

    hard: bool  # whether the context is the present selection instead of the probabilities
    exact: bool  # whether `within` gives the exact change, without an estimate or an unknown constant

    def alone(self, batch: Tensor, masks: Tensor) -> Tensor:
        """(G,) the diversity of each mask with the batch as the pool. batch: (n,) row numbers."""

    def start(self, probability: Tensor) -> None:
        """Sets the context: probability (N,)."""

    def within(self, batch: Tensor, masks: Tensor, probability: Tensor) -> tuple[Tensor, Tensor | None]:
        """The change of the pool's diversity if `masks` replaced the batch's `probability` (n,): (G,).

        Also, where it is known, each document's expected marginal value (n,), the others drawn by their probability.
        """

    def move(self, batch: Tensor, probability: Tensor) -> None:
        """Updates the context: the batch's probabilities are now these (n,)."""


def reward_of(problem: Problem, metric: Metric, generator: torch.Generator) -> Reward:
    """The reward of a metric, by the fastest form it has."""
    if isinstance(metric, Pairwise | DiSF):
        return MomentReward(metric, generator)
    if isinstance(metric, FacilityLocation):
        return FacilityReward(metric, generator)
    if isinstance(metric, Coverage):
        return CoverReward(problem, metric)
    return BlackBoxReward(problem, metric)


def product_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the processor multiplies matrices in it, else float32 (TF32 on a GPU that has it and no bf16)."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


class MomentReward:
    """Pairwise and DiSF: D(m) = −unit·‖Σ_i m_i v_i‖²/size²."""

    hard = False
    exact = True

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
        reward, self_terms = change @ price, self.scale * self.metric.squares(z.float()) * (1 - 2 * probability)
        touched = change.any(0)
        if 2 * int(touched.sum()) < len(batch):
            z, change = z[touched], change[:, touched]
        return reward - self.scale * self.forms(z, change), price - self_terms

    def self_terms(self, batch: Tensor) -> Tensor:
        """(n,) the documents' self-terms: what each costs by its similarity to itself."""
        return self.scale * self.metric.squares(self.z.index_select(0, batch).float())

    def move(self, batch: Tensor, probability: Tensor) -> None:
        """Sums are computed anew every `REFRESH` calls, against drift by rounding."""
        change = probability - self.probability[batch]
        self.probability[batch] = probability
        self.age += 1
        if self.age >= REFRESH:
            self.start(self.probability)
        else:
            self.total += self.metric.moment(self.z.index_select(0, batch), change).float()


class SelectionContext:
    """The context of a reward that knows the rest of the pool by its present selection."""

    hard = True
    exact = False

    def start(self, probability: Tensor) -> None:
        self.selected = probability > 0.5

    def move(self, batch: Tensor, probability: Tensor) -> None:
        self.selected[batch] = probability > 0.5


class FacilityReward(SelectionContext):
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


class BlackBoxReward(SelectionContext):
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


# -- the steps that learn the logits

RECORDS = 20  # history records of a run
LEAST_BATCH = 24  # documents; facility location of 80 in batches of 8 ended below a random choice after 5,000 steps
STEP = 0.02  # length of a natural step at learning rate 1, in standard deviations of the batch's prices
ANNEALED = 0.5  # share of the steps that anneal
EXCHANGES = 2.0  # mean number of documents that a mask exchanges while annealing
HOT, COLD = 0.1, 1e-3  # first and last temperature, as a multiple of the mean self-term
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
        self.latest = torch.zeros_like(self.logits)  # while annealing: prices, as of a document's last batch
        self.selected = torch.zeros(len(self.logits), dtype=torch.bool, device=self.logits.device)

    def learn(self, block: Tensor, k: int, number: int) -> None:
        """Learns the logits of a block, of which k documents are to be selected, and sets `selected`."""
        settings, epochs = self.problem.settings, self.problem.settings.n_epochs
        if not 0 < k < len(block):
            self._record(block, k, number * epochs)
            return
        least = 2 if settings.published else LEAST_BATCH
        size = min(len(block), max(least, round(settings.partial * len(block))))
        annealing_from = epochs
        if not settings.published:
            self._begin(block, k)
            if all(term.exact for _, term in self.terms):
                annealing_from = round((1 - ANNEALED) * epochs)
        for step in range(epochs):
            share = step / max(epochs - 1, 1)
            tell_share(share)
            rate = settings.max_lr + (settings.min_lr - settings.max_lr) * share
            batch = block[torch.randperm(len(block), generator=self.generator, device=block.device)[:size]]
            if step == annealing_from:
                self._begin_annealing(block, k, size)
            if settings.published:
                self._published_step(batch, min(max(round(k * size / len(block)), 1), size - 1), rate)
            elif step >= annealing_from:
                self._anneal(batch, (step - annealing_from) / max(epochs - 1 - annealing_from, 1))
            else:
                self._step(batch, rate)
            if (step + 1) % max(1, epochs // RECORDS) == 0 or step + 1 == epochs:
                self._record(block, k, step + 1 + number * epochs, step >= annealing_from)
        if annealing_from < epochs:
            self.logits[block] = self._annealed(block)

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
        change = masks - probability
        quality = self.quality[batch] / self.problem.size
        reward, price = change @ quality, quality
        known = True
        for scale, term in self.terms:
            value, gradient = term.within(batch, masks, probability)
            reward = reward + scale * value
            known = known and gradient is not None
            price = price if gradient is None else price + scale * gradient
        if not known:
            price = price + self.price[batch]
        residual = reward - change @ price
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

    def _begin_annealing(self, block: Tensor, k: int, size: int) -> None:
        self._select(block, k)
        for _, term in self.terms:
            term.start(self.selected.float())
        self_terms = torch.zeros_like(self.logits)
        for batch in block.split(size):
            held = self.selected[batch].float()
            self.latest[batch] = self._rewards(batch, held[None], held)[1]
            for scale, term in self.terms:
                assert isinstance(term, MomentReward)  # the only exact reward
                self_terms[batch] += scale * term.self_terms(batch)
        least = 1e-3 * float(self.latest[block].std()) + 1e-30  # where self-terms are next to nothing
        self.hottest = self.temperature = max(HOT * float(self_terms[block].mean()), least)
        self.pull = 0.0  # to the selection, in the draws

    def _anneal(self, batch: Tensor, share: float) -> None:
        """An annealing step: draws one of several masks near the selection, or the selection itself, by reward.

        share: the share of the annealing steps that is done.
        """
        held = self.selected[batch].float()
        k = int(held.sum())
        if not 0 < k < len(batch):
            return
        self.temperature = self.hottest * (COLD / HOT) ** share
        masks = draw_masks(self._annealed(batch), k, self.problem.settings.n_rollout, self.generator)
        exchanges = float((masks != held).sum()) / 2 / len(masks)
        self.pull += min(max(np.log(max(exchanges, 1e-6) / EXCHANGES), -0.5), 0.5)
        if exchanges > 8 * EXCHANGES:
            return
        reward, self.latest[batch] = self._rewards(batch, masks, held)
        logits = torch.cat([reward, reward.new_zeros(1)]) / self.temperature
        drawn = int(draw_orders(logits, 1, 1, self.generator))
        if drawn < len(masks):
            self.selected[batch] = masks[drawn].bool()
            for _, term in self.terms:
                term.move(batch, masks[drawn])

    def _annealed(self, batch: Tensor) -> Tensor:
        """(n,) the logits from which masks are drawn in annealing."""
        return self.latest[batch] / self.temperature + self.pull * self.selected[batch]

    def _rewards(self, batch: Tensor, masks: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        """The gains (G,) of `masks` (G, n) over `held` (n,), and the prices (n,); all terms must be exact."""
        price = self.quality[batch] / self.problem.size
        reward = (masks - held) @ price
        for scale, term in self.terms:
            value, gradient = term.within(batch, masks, held)
            assert gradient is not None
            reward, price = reward + scale * value, price + scale * gradient
        return reward, price

    def _select(self, block: Tensor, k: int) -> None:
        self.selected[block] = False
        self.selected[_best(self.logits, [(block, k)])] = True

    def _record(self, block: Tensor, k: int, step: int, annealed: bool = False) -> None:
        if not annealed:
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
