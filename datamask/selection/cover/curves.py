"""What atoms are worth at a state: a logarithm, or of words by `coverage.curve: saturating` 1 − 2^−documents.

    curves = Curves(bend, rate, worth)        # atoms from `bend` on saturate
    level = levels(state, smooth, curves)     # what the compiled loops keep: see `Curves`
    slope(t, level, curves), at_slope(t, slope, smooth, curves)

Both are concave in the state, so that a tangent bounds every selection. The first is the likelihood of the atoms under
the mixture of the chosen, the second a feature-based function (Wei et al. 2014): a bucket of words is worth half as
much to each further document that holds it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled

SMALLEST = 1e-300  # a level is no less: a logarithm, and what is left of a word in a thousand documents, stay finite


class Curves(NamedTuple):
    """Which curve an atom follows. State: (1 − α) Aᵀ w, w the shares of the budget.

    Before `bend` the level is the smoothed mixture u, and an atom is worth t log u. From there on it is 2^−documents,
    what a word still has to give, and a word is worth t (1 − level). All numbers of a document's row in these columns
    are alike, and t is `worth` for every word that a document holds.
    """

    bend: int
    rate: float  # documents for each unit of the state
    worth: float

    @classmethod
    def of(cls, t: np.ndarray, bend: int, rate: float) -> Curves:
        """The curves of this t (J,)."""
        return cls(bend, rate, float(t[bend:].max(initial=0.0)))


def levels(state: np.ndarray, smooth: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the levels at a state (J,). smooth: (J,) what is added under the logarithm."""
    found = state + smooth
    found[curves.bend :] = np.exp2(-curves.rate * state[curves.bend :])
    return np.maximum(found, SMALLEST)


def curve_value(t: np.ndarray, level: np.ndarray, curves: Curves) -> float:
    """Σ_j t_j curve_j. t, level: (J,)."""
    bend, used = curves.bend, np.flatnonzero(t[: curves.bend])
    return float(t[used] @ np.log(level[used]) + t[bend:].sum() - t[bend:] @ level[bend:])


def curve_slope(t: np.ndarray, level: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the derivative with respect to the state."""
    found = t * level * (np.log(2) * curves.rate)
    found[: curves.bend] = t[: curves.bend] / level[: curves.bend]
    return found


def second(t: np.ndarray, level: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the second derivative with respect to the state, positive."""
    bend, found = curves.bend, t * level * (np.log(2) * curves.rate) ** 2
    found[:bend] = t[:bend] / level[:bend] / level[:bend]
    return found


def at_slope(t: np.ndarray, slopes: np.ndarray, smooth: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the state with this derivative; all of t and slopes are positive."""
    found = t / slopes - smooth
    ends = slice(curves.bend, None)
    found[ends] = np.log2(t[ends] * (np.log(2) * curves.rate) / slopes[ends]) / curves.rate
    return found


class CurvedSum:
    """Σ_j t_j curve_j less `base`, of what has these; a state of theirs is Aᵀ w."""

    t: np.ndarray  # (J,)
    smooth: np.ndarray  # (J,)
    alpha: float
    base: float
    curves: Curves

    def level(self, state: np.ndarray) -> np.ndarray:
        """(J,) the levels at this state (J,)."""
        return levels((1 - self.alpha) * state, self.smooth, self.curves)

    def of_state(self, state: np.ndarray) -> float:
        """The sum at this state."""
        return curve_value(self.t, self.level(state), self.curves) - self.base

    def slope(self, state: np.ndarray) -> np.ndarray:
        """The gradient with respect to the state: (J,)."""
        return (1 - self.alpha) * curve_slope(self.t, self.level(state), self.curves)

    def inside(self, state: np.ndarray) -> bool:
        """Whether the sum is defined at this state (an extrapolated one may not be)."""
        bend, used = self.curves.bend, self.t > 0
        level = (1 - self.alpha) * state + self.smooth
        return bool((level[:bend][used[:bend]] > 0).all() and (self.curves.rate * state[bend:] > -1).all())


@compiled
def bend_of(index, first, last, bend):  # type: ignore[no-untyped-def]
    """The first place of a row, index[first:last], whose atom saturates: such atoms stand last in a row."""
    if first == last or index[last - 1] < bend:
        return last
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if index[middle] < bend:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def factor_left(mass, value, rate):  # type: ignore[no-untyped-def]
    """The factor on the levels of words when `mass` of a row that has this number for them is added."""
    return 2.0 ** (-rate * mass * value)
