"""Differences of arms with intervals: a two-way bootstrap over targets' items and over draws or pools.

    readings = {"random": [[read, read, …], …], "default": [[read], …]}   # arm -> pool -> draw -> target -> CodedItems
    trial = Trial(readings)
    trial.contrast("default", "random")                  # Contrast(difference=-0.014, half_width=0.004, p=…)
    holm([contrast.p for contrast in named])

The design is crossed: every arm is read on the same items. A round of the bootstrap draws items with replacement
within each target, the same for all arms; pools with replacement; and draws with replacement within a pool (Owen,
"The pigeonhole bootstrap", Annals of Applied Statistics 2007: such rounds overstate the variance of a crossed mean,
never understate it). An arm has one choice in each of a few pools, too few to tell its own spread from: what pools
and draws add to a reading is drawn from the residuals of all arms together (the two-way layout of arms and pools, with
one variance for all; Scheffé, The Analysis of Variance, 1959, chapter 4), that is of the reference's draws around
their pool's mean, and of the arms around what arm and pool explain. Residuals are widened to the variance that their
degrees of freedom give. Intervals are the estimate ± Student's t times the rounds' standard deviation, with the
residuals' degrees of freedom. Where the draws of two arms belong together (controls), their differences are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import stats

from datamask.errors import InputError
from datamask.study.coder import CodedItems

Floats = npt.NDArray[np.float64]
Draw = Mapping[str, CodedItems]  # target -> cost, of one choice
Readings = Mapping[str, Sequence[Sequence[Draw]]]  # arm -> pool -> draw
ROUNDS = 2_000
LEVEL = 0.05


@dataclass(frozen=True)
class Contrast:
    """first − second in bits a byte; below zero, first is the better. The interval is 95 %, of this contrast alone."""

    first: str
    second: str
    difference: float
    half_width: float
    p: float  # two-sided, of this contrast alone
    targets: Mapping[str, float]  # the difference on each target
    adjusted: float = float("nan")  # p after Holm's correction over the contrasts named before the run

    @property
    def low(self) -> float:
        return self.difference - self.half_width

    @property
    def high(self) -> float:
        return self.difference + self.half_width

    @property
    def interval(self) -> str:
        return f"{self.difference:+.4f} ± {self.half_width:.4f}"

    @property
    def says(self) -> str:
        """better, worse, or not told apart; by the adjusted p where there is one."""
        p = self.p if np.isnan(self.adjusted) else self.adjusted
        return ("better" if self.difference < 0 else "worse") if p < LEVEL else "not told apart"


@dataclass(frozen=True)
class Components:
    """Standard deviations in bits a byte: what one more pool, draw or set of items would move the reference's mean."""

    pool: float  # of pools' means beyond what their draws explain; nan with one pool
    draw: float  # of a draw within its pool; nan with one draw
    item: float  # of the mean over the targets, by their items


class Trial:
    """The readings of a judge, and what can be concluded from them."""

    def __init__(
        self,
        readings: Readings,
        reference: str = "random",
        own: Sequence[str] = (),
        rounds: int = ROUNDS,
        seed: int = 0,
    ) -> None:
        """
        :param reference: the arm whose draws say how much a choice of documents varies.
        :param own: targets that are shown and left out of every mean (held-out documents of the pool itself).
        :raises InputError: fewer than two arms, arms of different pools, or no target that may be part of a mean.
        """
        if len(readings) < 2:
            raise InputError(f"one arm ({', '.join(readings)}) cannot be compared; give two or more")
        pools = {name: len(by_pool) for name, by_pool in readings.items()}
        if len(set(pools.values())) != 1 or not all(all(by_pool) for by_pool in readings.values()):
            raise InputError(f"the arms were not read on the same pools: {pools}")
        self.readings, self.reference, self.rounds = readings, reference, rounds
        self.pools = next(iter(pools.values()))
        self._some = next(iter(readings.values()))[0][0]
        self.targets = [name for name in self._some if name not in own]
        if not self.targets:
            raise InputError("every target is the pool's own; give texts from outside the pool")
        self._seed = seed

    def means(self, arm: str, target: str | None = None) -> list[Floats]:
        """Pool -> (draws,) bits a byte: the mean of the targets, each alike, or one target's."""
        wanted = self.targets if target is None else [target]
        return [
            np.array([np.mean([draw[name].bits_per_byte for name in wanted]) for draw in draws])
            for draws in self.readings[arm]
        ]

    def mean(self, arm: str, target: str | None = None) -> float:
        """Bits a byte, the mean of the pools, each alike."""
        return float(np.mean([draws.mean() for draws in self.means(arm, target)]))

    def answers(self, arm: str) -> float:
        """Bits a byte of the answers given their questions, the mean of the targets that have any; nan if none."""
        found = [
            [draw[name].answer_bits_per_byte for name in self.targets if draw[name].answer_bytes.sum()]
            for draws in self.readings[arm]
            for draw in draws
        ]
        return float(np.mean(found)) if found and found[0] else float("nan")

    def contrast(self, first: str, second: str, paired: bool = False) -> Contrast:
        """first − second.

        :param paired: the draws of the two belong together, one by one, and are drawn together.
        :raises InputError: an arm is not there; or a single pool with one draw of everything, which has no spread.
        """
        for arm in (first, second):
            if arm not in self.readings:
                raise InputError(f"no arm {arm!r}; there are: {', '.join(self.readings)}")
        generator = np.random.default_rng([self._seed, 53])
        a, b = self._rounds[first], self._rounds[second]  # pool -> (rounds, draws)
        by_pool = np.empty((self.rounds, self.pools))
        for pool in range(self.pools):
            if paired:
                by_pool[:, pool] = _draw(a[pool] - b[pool], generator)
            else:
                by_pool[:, pool] = self._side(a[pool], generator) - self._side(b[pool], generator)
        spread = float(np.std(_draw(by_pool, generator) if paired else by_pool.mean(axis=1), ddof=1))
        difference = self.mean(first) - self.mean(second)
        freedom = self._residuals[1]
        if paired:
            freedom = self.pools - 1 or min(len(self.readings[arm][0]) for arm in (first, second)) - 1
        if freedom < 1:
            raise InputError("one pool and one draw of every arm have no spread; give several pools or random draws")
        half = float(stats.t.ppf(1 - LEVEL / 2, freedom) * spread)
        p = float(2 * stats.t.sf(abs(difference) / spread, freedom)) if spread > 0 else float(difference == 0)
        each = {name: self.mean(first, name) - self.mean(second, name) for name in self._some}
        return Contrast(first, second, difference, half, p, each)

    def named(self, contrasts: Sequence[tuple[str, str]]) -> list[Contrast]:
        """The contrasts named before the run, with Holm's correction over them."""
        found = [self.contrast(first, second) for first, second in contrasts]
        adjusted = holm([contrast.p for contrast in found])
        return [replace(contrast, adjusted=p) for contrast, p in zip(found, adjusted, strict=True)]

    def components(self) -> Components:
        """The reference's variance by where it comes from (method of moments, one-way random effects)."""
        means = self.means(self.reference)
        within = [float(draws.var(ddof=1)) for draws in means if len(draws) > 1]
        draw = float(np.mean(within)) if within else float("nan")
        between = float(np.var([draws.mean() for draws in means], ddof=1)) if self.pools > 1 else float("nan")
        explained = draw * float(np.mean([1 / len(draws) for draws in means])) if within else 0.0
        item = np.mean([rounds.mean(axis=1) for rounds in self._rounds[self.reference]], axis=0)
        return Components(
            pool=float(np.sqrt(max(0.0, between - explained))) if self.pools > 1 else float("nan"),
            draw=float(np.sqrt(draw)),
            item=float(np.std(item, ddof=1)),
        )

    @cached_property
    def _rounds(self) -> dict[str, list[Floats]]:
        """Arm -> pool -> (rounds, draws): bits a byte with each round's items, the same items for all."""
        generator = np.random.default_rng([self._seed, 47])
        weights = {}
        for name in self.targets:
            count = len(self._some[name].bits)
            weights[name] = generator.multinomial(count, np.full(count, 1 / count), self.rounds).astype(np.float64)
        sizes = {name: weights[name] @ self._some[name].bytes for name in self.targets}
        return {
            arm: [
                np.mean(
                    [
                        weights[name] @ np.stack([draw[name].bits for draw in draws], axis=1) / sizes[name][:, None]
                        for name in self.targets
                    ],
                    axis=0,
                )
                for draws in by_pool
            ]
            for arm, by_pool in self.readings.items()
        }

    @cached_property
    def _residuals(self) -> tuple[Floats, int]:
        """What pools and draws add to a reading, over all arms, widened to its variance; and its degrees of freedom."""
        reference = self.means(self.reference)
        found = [draws - draws.mean() for draws in reference]
        freedom = sum(len(draws) - 1 for draws in reference)
        others = [self.means(arm) for arm in self.readings if arm != self.reference]
        if self.pools > 1 and others:
            table = np.array([[draws.mean() for draws in arm] for arm in others])  # (arms, pools)
            if len(table) == 1:  # its differences from the reference, whose own spread is taken off
                table = table - np.array([draws.mean() for draws in reference])
                table /= np.sqrt(1 + np.mean([1 / len(draws) for draws in reference]))
                rest = table - table.mean()
            else:
                rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            found.append(rest.ravel())
            freedom += max(1, len(table) - 1) * (self.pools - 1)
        every = np.concatenate(found)
        return every * np.sqrt(len(every) / max(1, freedom)), freedom

    def _side(self, values: Floats, generator: np.random.Generator) -> Floats:
        """One arm of one pool, (rounds, draws) -> (rounds,): its mean and what the draws might have added."""
        residuals, _ = self._residuals
        return np.asarray(values.mean(axis=1) + generator.choice(residuals, values.shape).mean(axis=1))


def _draw(values: Floats, generator: np.random.Generator) -> Floats:
    """(rounds, n) -> (rounds,): the mean of n columns drawn with replacement, its deviation widened."""
    count = values.shape[1]
    centre = values.mean(axis=1)
    if count == 1:
        return np.asarray(centre)
    taken = generator.integers(0, count, values.shape)
    widened = np.sqrt(count / (count - 1))
    return np.asarray(centre + widened * (np.take_along_axis(values, taken, axis=1).mean(axis=1) - centre))


def holm(p: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm, Scandinavian Journal of Statistics 1979), in the order given."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(
        1.0, np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p, dtype=np.float64)[order])
    )
    return [float(value) for value in adjusted]


def agreement(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Kendall's τ-b of two judges over the arms both know; nan under three arms."""
    both = [arm for arm in first if arm in second]
    if len(both) < 3:
        return float("nan")
    return float(stats.kendalltau([first[arm] for arm in both], [second[arm] for arm in both]).statistic)
