"""Small pools that selection gets wrong easily: random ones and adversarial ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import LinearConstraint, minimize

from datamask.selection.solvers.quadratic import Quadratic


def gaussian(generator, count, width):
    return generator.standard_normal((count, width)), generator.random(count)


def clustered(generator, count, width):
    label = generator.integers(0, 5, count)
    centres = 1.5 * generator.standard_normal((5, width))
    return centres[label] + generator.standard_normal((count, width)), generator.random(count) + 0.3 * label


def pairs(generator, count, width):
    """Every document twice, one of the two far better."""
    features, quality = gaussian(generator, count, width)
    features[1::2], quality[1::2] = features[: count // 2 * 2 : 2], 10 * quality[: count // 2 * 2 : 2]
    return features, quality


def needle(generator, count, width):
    """Nearly all documents alike, a few elsewhere."""
    features = np.ones((count, width)) + 0.01 * generator.standard_normal((count, width))
    few = max(1, count // 10)
    features[:few] = generator.standard_normal((few, width))
    return features, generator.random(count)


def trap(generator, count, width):
    """The best documents are copies of one."""
    features, quality = gaussian(generator, count, width)
    third = count // 3
    features[:third], quality[:third] = features[0], 2 + quality[:third] / 10
    return features, quality


def tails(generator, count, width):
    """A few documents whose quality outweighs everything else."""
    return generator.standard_normal((count, width)), np.exp(3 * generator.standard_normal(count))


def axes(generator, count, width):
    """Directions and their opposites, some more often than others: many optima, and cosines of −1."""
    signs = generator.choice([-1.0, 1.0], (count, 1))
    return np.eye(width)[generator.integers(0, width, count)] * signs, generator.integers(0, 3, count).astype(float)


def flat(generator, count, width):
    """No quality to tell them apart."""
    return generator.standard_normal((count, width)), np.zeros(count)


FAMILIES = {make.__name__: make for make in (gaussian, clustered, pairs, needle, trap, tails, axes, flat)}


def instance(family: str, seed: int, count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """features (count, width), quality (count,)"""
    return FAMILIES[family](np.random.default_rng(seed), count, width)


def plain_loss(
    quadratic: Quadratic, v: np.ndarray, base: np.ndarray
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """−f of a p (N,) and its gradient, written plainly, of one metric. v: (N, m); base: (m,)."""
    weights, linear, (c,) = quadratic.feasible.weights.numpy(), quadratic.linear.numpy(), quadratic.coefficients

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        moment = base + (weights * p) @ v
        return c * moment @ moment - weights * linear @ p, weights * (2 * c * v @ moment - linear)

    return loss


def optimum(quadratic: Quadratic, v: np.ndarray, base: np.ndarray) -> float:
    """The greatest f over fractional p within the budget, by SciPy."""
    weights, size = quadratic.feasible.weights.numpy(), quadratic.feasible.size
    found = minimize(plain_loss(quadratic, v, base), quadratic.feasible.uniform().numpy(), jac=True, method="SLSQP",
                     bounds=[(0, 1)] * len(v), constraints=[LinearConstraint(weights, size, size)],
                     options={"maxiter": 500, "ftol": 1e-12})  # fmt: skip
    return -found.fun
