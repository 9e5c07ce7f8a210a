"""Both gradients and the sampler against enumeration of every ordered draw, N ≤ 7."""

from itertools import permutations

import pytest
import torch

from datamask.selection.paper import policy_gradient as pl

CASES = [(n, k, seed) for n in (3, 5, 7) for k in (1, n // 2) for seed in (0, 1)] + [(5, 4, 0)]


def enumerate_draws(logits, k):
    """Every ordered draw of k, and its probability by the definition, differentiable."""
    weights = logits.exp()
    orders = list(permutations(range(len(logits)), k))
    probabilities = []
    for order in orders:
        left, probability = weights.sum(), logits.new_ones(())
        for i in order:
            probability = probability * weights[i] / left
            left = left - weights[i]
        probabilities.append(probability)
    return torch.tensor(orders), torch.stack(probabilities)


def instance(n, k, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, generator=generator, dtype=torch.float64)
    orders, probabilities = enumerate_draws(logits.requires_grad_(), k)
    reward = torch.randn(2**n, generator=generator, dtype=torch.float64)  # any function of the set
    masks = pl.as_masks(orders, n, torch.float64)
    return logits, orders, probabilities, masks, reward[(masks @ 2.0 ** torch.arange(n).double()).long()]


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_order_gradient_is_the_gradient_of_the_expected_reward(n, k, seed):
    logits, orders, probabilities, _, rewards = instance(n, k, seed)
    (probabilities @ rewards).backward()
    weighted = (probabilities * rewards * len(orders)).detach()
    found = pl.order_gradient(logits.detach(), orders, weighted)
    torch.testing.assert_close(found, logits.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("n", "k", "seed"), CASES)
def test_surrogate_gradient_is_what_it_says(n, k, seed):
    """Σ_S P(S)·r(S)·(m_S − k·softmax), term by term; exact for k = 1."""
    logits, orders, probabilities, masks, rewards = instance(n, k, seed)
    softmax = logits.detach().softmax(0)
    plain = sum(p * r * (m - k * softmax) for p, r, m in zip(probabilities.detach(), rewards, masks, strict=True))
    found = pl.surrogate_gradient(logits.detach(), masks, (probabilities * rewards).detach() * len(orders))
    torch.testing.assert_close(found, plain, rtol=1e-9, atol=1e-12)
    if k == 1:
        exact = pl.order_gradient(logits.detach(), orders, (probabilities * rewards).detach() * len(orders))
        torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("gradient", ["order", "surrogate"])
def test_drawn_estimates_converge_to_enumeration(gradient):
    n, k = 6, 3
    logits, orders, probabilities, masks, rewards = instance(n, k, 3)
    values = {tuple(sorted(o)): r for o, r in zip(orders.tolist(), rewards.tolist(), strict=True)}
    drawn = pl.draw_orders(logits.detach(), k, 100_000, torch.Generator().manual_seed(0))
    got = torch.tensor([values[tuple(sorted(o))] for o in drawn.tolist()], dtype=torch.float64)
    weighted = (probabilities * rewards).detach() * len(orders)
    if gradient == "order":
        found = pl.order_gradient(logits.detach(), drawn, got)
        exact = pl.order_gradient(logits.detach(), orders, weighted)
    else:
        found = pl.surrogate_gradient(logits.detach(), pl.as_masks(drawn, n, torch.float64), got)
        exact = pl.surrogate_gradient(logits.detach(), masks, weighted)
    torch.testing.assert_close(found, exact, rtol=0, atol=0.02)


def test_gumbel_top_k_draws_orders_with_their_probability():
    logits, orders, probabilities, _, _ = instance(4, 2, 0)
    drawn = pl.draw_orders(logits.detach(), 2, 200_000, torch.Generator().manual_seed(1))
    number = {tuple(order): i for i, order in enumerate(orders.tolist())}
    counts = torch.zeros(len(orders), dtype=torch.float64)
    for order, count in zip(*torch.unique(drawn, dim=0, return_counts=True), strict=True):
        counts[number[tuple(order.tolist())]] = count
    torch.testing.assert_close(counts / len(drawn), probabilities.detach(), rtol=0, atol=0.005)


def test_drawn_sets_have_the_probability_of_their_orders_together():
    logits, orders, probabilities, masks, _ = instance(5, 2, 0)
    expected = torch.zeros(5, dtype=torch.float64).index_add_(
        0, orders.flatten(), probabilities.detach().repeat_interleave(2)
    )
    drawn = pl.draw_masks(logits.detach(), 2, 200_000, torch.Generator().manual_seed(1))
    assert (drawn.sum(1) == 2).all()
    torch.testing.assert_close(drawn.double().mean(0), expected, rtol=0, atol=0.005)


def test_arrivals_equal_to_the_bit_fill_no_mask_beyond_k(monkeypatch):
    arrivals = torch.tensor([[0.5, 0.5, 0.5, 0.1, 0.9], [0.1, 0.2, 0.3, 0.4, 0.5]])
    monkeypatch.setattr(pl, "_arrivals", lambda *_: arrivals.clone())
    drawn = pl.draw_masks(torch.zeros(5), 2, 2, torch.Generator())
    assert drawn.sum(1).tolist() == [2, 2]
    assert drawn[0, 3] == 1 and drawn[0, 4] == 0 and drawn[1].tolist() == [1, 1, 0, 0, 0]


def test_logits_hundreds_apart_stay_finite():
    logits = torch.tensor([0.0, 900.0, -900.0, 3.0])
    found = pl.order_gradient(logits, torch.tensor([[1, 3], [1, 0]]), torch.tensor([1.0, -1.0]))
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("draw", [lambda *given: pl.as_masks(pl.draw_orders(*given), 8), pl.draw_masks])
def test_draws_of_logits_hundreds_apart(draw):
    """Where the cut falls decides, however far the others are: three certain, then one of two alike."""
    logits = torch.tensor([500.0, 160.0, 90.0, 3.0, 3.0, -1.0, -150.0, -600.0])
    masks = draw(logits, 4, 2000, torch.Generator().manual_seed(0))
    assert (masks[:, :3] == 1).all() and (masks[:, 6:] == 0).all()
    torch.testing.assert_close(masks[:, 3:6].mean(0), torch.tensor([0.495, 0.495, 0.009]), rtol=0, atol=0.04)


@pytest.mark.parametrize("k", [1, 30, 150, 299])
def test_inclusion_sums_to_k_and_agrees_with_drawing(k):
    logits = 2 * torch.randn(300, generator=torch.Generator().manual_seed(0))
    found = pl.inclusion(logits, k)
    drawn = pl.as_masks(pl.draw_orders(logits, k, 4000, torch.Generator().manual_seed(1)), 300).mean(0)
    assert float(found.sum()) == pytest.approx(k, rel=1e-4)
    assert float((found - drawn).abs().max()) < 0.05
    assert (pl.inclusion(logits, 300) == 1).all()
