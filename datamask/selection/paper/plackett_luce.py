"""Plackett–Luce: drawing documents one after another without replacement, each with probability ∝ exp(logit).

The policy of DATAMASK (arXiv 2512.24265, section 3): a mask is the set of the first k draws. The Gumbel top-k trick
(Kool et al., arXiv 1903.06059) draws all k at once: add independent Gumbel noise to the logits, take the k largest.

Shapes: `logits` (n,), `orders` (G, k) indices in the order drawn, `masks` (G, n), `advantages` (G,).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


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
    rates = torch.logcumsumexp(-_log_remaining(logits, orders), dim=1)  # (G, k): ln Σ_{j ≤ r} 1/R_j
    expected = rates[:, -1:].expand(-1, logits.numel()).scatter(1, orders, rates)  # never drawn: all k draws
    masks = as_masks(orders, logits.numel(), logits.dtype)
    return advantages.to(logits.dtype) @ (masks - (logits + expected).exp()) / len(orders)


def surrogate_gradient(logits: Tensor, masks: Tensor, advantages: Tensor) -> Tensor:
    """mean_g A_g (m_g − k·softmax(logits)), (n,): the order's gradient as if every draw were from the full urn."""
    expected = masks[0].sum() * logits.softmax(0)
    return (advantages.to(masks.dtype) @ masks - advantages.sum() * expected) / len(masks)


def inclusion(logits: Tensor, k: float, iterations: int = 60) -> Tensor:
    """Probability of each document to be among k draws, (n,), to O(1/k): 1 − exp(−t·exp(logit)) with their sum k.

    Drawing without replacement is a race of exponential clocks stopped at its k-th arrival; with many documents that
    moment is nearly certain, and given it the arrivals are independent (Rosén 1972, asymptotic theory for successive
    sampling).
    """
    if k >= logits.numel():
        return torch.ones_like(logits)
    shifted = logits.double() - logits.max()
    low, high = -50.0, 50.0 + float(-shifted.min())
    for _ in range(iterations):
        middle = (low + high) / 2
        total = float(-torch.special.expm1(-(shifted + middle).exp()).sum())
        low, high = (middle, high) if total < k else (low, middle)
    return -torch.special.expm1(-(shifted + (low + high) / 2).exp()).to(logits.dtype)


def _log_remaining(logits: Tensor, orders: Tensor) -> Tensor:
    """ln R_j, (G, k): logarithm of the mass in the urn before the j-th draw."""
    drawn = logits[orders]
    never = logits.expand(len(orders), -1).scatter(1, orders, -torch.inf).logsumexp(1, keepdim=True)
    backwards = torch.cat([never, drawn.flip(1)], dim=1)
    return torch.logcumsumexp(backwards, dim=1)[:, 1:].flip(1)
