"""Which point to try next: a Gaussian process over what was seen, and expected improvement.

    model = fit(points, bits)
    candidates[most_promising(model, candidates, points)]

Bayesian optimisation as in Snoek, Larochelle and Adams (arXiv 1206.2944): scikit-learn's Gaussian process with a
Matérn 5/2 kernel, a length for each coordinate and noise of its own, since the judge's bits hold the chance of one
choice; the improvement is expected on the lowest mean of the process, not on the luckiest reading.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from datamask.study.space import Point

Floats = npt.NDArray[np.float64]


def fit(points: Sequence[Point], bits: Sequence[float]) -> GaussianProcessRegressor:
    """The process given what was seen; the same for the same readings."""
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(np.full(len(points[0]), 0.5), (0.05, 5.0), nu=2.5)
    kernel += WhiteKernel(0.1, (1e-3, 1.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: that coordinate does not matter
        return model.fit(np.array(points), np.array(bits))


def expected(model: GaussianProcessRegressor, points: Sequence[Point]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the points' bits without the noise of a reading, (n,) each."""
    mean, deviation = model.predict(np.array(points), return_std=True)
    noise = model.kernel_.k2.noise_level * float(np.asarray(model._y_train_std).ravel()[0]) ** 2
    return mean, np.sqrt(np.maximum(deviation**2 - noise, 1e-18))


def most_promising(model: GaussianProcessRegressor, candidates: Sequence[Point], seen: Sequence[Point]) -> int:
    """The place of the candidate with the greatest expected improvement; one that was seen is none."""
    least = float(expected(model, seen)[0].min())
    mean, deviation = expected(model, candidates)
    ahead = (least - mean) / deviation
    gain = (least - mean) * norm.cdf(ahead) + deviation * norm.pdf(ahead)
    known = set(seen)
    gain[[place for place, candidate in enumerate(candidates) if candidate in known]] = -np.inf
    return int(np.argmax(gain))
