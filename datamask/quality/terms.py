"""From what was measured of a document to one score, each term compared with what is usual in its language.

A term's fault is 0 where the document is as most others of its group are or better, and grows with its distance from
them in the group's own spread; the score falls with the sum of the faults, whatever they come from. A short document
shows little of itself: its distances are shrunk towards the usual, and its rank towards UNDECIDED.

Faults tell what is bad, not which of two sound texts is better: the fewest have texts without names, numbers and
capitals. So the score rises fast among the worst and hardly among the better half (docs/judge.md has what it gains).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from datamask.quality.language_models import CODE, OTHER
from datamask.quality.measures import MEASURES

EVIDENCE = 30.0  # words at which a document counts half
UNDECIDED = 0.1  # the rank, in its group, of a document too short to judge: undecided is not good
NOTHING = 2.0  # words at which that rank halves: one of a word or a mark is no text
GREATEST = 8.0  # a distance is counted up to so many spreads
# Of `order` in nats, measured in 17 languages: the spread of 15 to 60 words in a row beside their whole text, and of
# shuffled ones, times the root of their number (5.1 to 5.5, 2.7 to 3.6); what is left of it in long shuffled texts.
ONE_USUAL, ONE_CHANCE, LEAST_CHANCE = 5.0, 3.0, 0.1
GROUP = 10.0  # documents of a group that weigh as much as the whole pool in what is usual
# Of source code compared with what is usual in code, not with none: "|" is an operator.
USUAL_OF_CODE = ("bars",)
OF_KNOWN_LANGUAGES = ("order", "unknown")
TOLD = 1.0  # faults from which one is worth a sentence; one that lies as usual comes to .83 at most
GRID = np.linspace(0, 1, 101)
# Each document of the sample counts with none of these faults more in one half of the cases; in the other half they are
# spread as an exponential distribution of mean 2. Without them a sound text with one line of a site's notices would
# rank last in a language whose texts have none.
BLEMISHES = np.append(np.zeros(20), -2 * np.log(1 - (np.arange(20) + 0.5) / 20))
SATURATION = 4  # the score of rank r in its group: 1 − (1 − r)^SATURATION; of a text as usual r is ¾


@dataclass(frozen=True)
class MeasureTerm:
    """A measure, the side on which it is a fault, and its weight."""

    measure: str
    fault: Literal["low", "high"]
    weight: float
    spread: float  # the least spread of the measure that counts, after its square root is taken where `root`
    said: str  # in an explanation
    root: bool = False  # of shares of rare things, whose spread grows with them
    free: float = 0.5  # spreads from the usual that are no fault yet
    sharp: float = 2.0  # of the bend there
    fixed: bool = False  # compared with 0, not with what is usual: bad in any language
    allowed: float = 0.0  # of the measure beyond what is usual; from there on `spread` counts in any language
    of_one: float = 0.0  # spread among sound texts of one word: it falls with the root of their number

    def value(self, measured: np.ndarray) -> np.ndarray:
        """(n,) float64 of the (n, MEASURES) measured."""
        found = column_of(measured, self.measure)
        return np.sqrt(found) if self.root else found


def column_of(measured: np.ndarray, measure: str) -> np.ndarray:
    """(n,) float64: one measure of the (n, MEASURES) measured."""
    found: np.ndarray = measured[:, MEASURES.index(measure)].astype(np.float64)
    return found


TERMS: tuple[MeasureTerm, ...] = (
    MeasureTerm("order", "low", 8.0, 0.5, "its words follow one another as by chance", free=1.0),
    MeasureTerm("sentences", "low", 1.0, 0.08, "its words are in no sentences", free=0.0),
    MeasureTerm("figures", "high", 3.0, 0.03, "it is a table or list of figures", allowed=0.28),
    MeasureTerm("upper_case", "high", 2.2, 0.09, "it is written in capitals", free=1.0),
    MeasureTerm("prose", "low", 1.0, 0.08, "it does not read as running text", free=0.0),
    # Manuals of commands, and posts, name things that no other text does (benchmarks/LOG.md).
    MeasureTerm(
        "unknown", "high", 4.0, 0.0075, "its words are misspelt or of another language", free=2, sharp=5, of_one=0.1
    ),
    MeasureTerm("repeated", "high", 5.0, 0.06, "it repeats itself", free=2),
    MeasureTerm("tags", "high", 2.5, 0.04, "it holds HTML", root=True, fixed=True, free=0.2),
    # Of 2,657 main texts of pages 18 have any, half of these .0015 at most; texts misread as a whole .03 (German) to 1.
    MeasureTerm("broken", "high", 3.5, 0.02, "its characters are broken", root=True, fixed=True),
    MeasureTerm("bars", "high", 1.5, 0.04, "it is full of separators and pictures", root=True, fixed=True, free=0.0),
    # Of 26 kinds of installed source code 95 in 100 files have .83 at most; minified ones have .90 to .97.
    MeasureTerm("glued", "high", 4.0, 0.02, "no white space parts its words: it is minified", fixed=True, allowed=0.85),
    MeasureTerm("menus", "high", 2.0, 0.05, "it holds menus", root=True, fixed=True, free=0.6),
    MeasureTerm("notices", "high", 2.5, 0.08, "it holds a site's notices and forms", root=True, fixed=True),
    MeasureTerm("adverts", "high", 2.5, 0.05, "it is full of spam's words", root=True, free=0.8),
)
ORDER, FIGURES, UNKNOWN = (
    next(n for n, term in enumerate(TERMS) if term.measure == name) for name in ("order", "figures", "unknown")
)
SIGNALS: tuple[str, ...] = (*MEASURES, *(f"{term.measure}_fault" for term in TERMS))


@dataclass(frozen=True)
class UsualTerms:
    """What is usual in each group: medians and spreads of the terms, and the distribution of what they come to."""

    median: np.ndarray  # (groups, TERMS) float64
    spread: np.ndarray  # (groups, TERMS) float64
    ranks: np.ndarray  # (groups, GRID) float64: quantiles of the goodness in each group

    @property
    def order(self) -> np.ndarray:
        """(groups,) the usual `order`; inf where the pool does not know the words."""
        known = np.isfinite(self.spread[:, ORDER])
        return np.where(known, np.maximum(self.median[:, ORDER], LEAST_CHANCE), np.inf)


def fit_usual(measured: np.ndarray, group: np.ndarray, names: Sequence[str]) -> UsualTerms:
    """Of a sample: (n, MEASURES), its (n,) groups and their names.

    Documents of no language that the sample has (groups that begin with OTHER) are compared with the whole pool, by
    what needs no words of theirs: what is usual among pages that nobody can tell the language of is menus.
    """
    groups = len(names)
    values = np.stack([term.value(measured) for term in TERMS], axis=1)
    usual = UsualTerms(*_middles(values, measured, group, names), np.zeros((groups, len(GRID))))
    values[:, FIGURES] = listed(measured, usual.order[group])
    usual = UsualTerms(*_middles(values, measured, group, names), usual.ranks)
    goodness = 1 - faults(measured, group, usual).sum(axis=1)
    goodness = goodness[:, None] - BLEMISHES
    everyone = np.quantile(goodness, GRID)
    for one in range(groups):
        mine = goodness[group == one]
        weight = 0 if names[one].startswith(OTHER) else len(mine) / (len(mine) + GROUP)
        usual.ranks[one] = weight * np.quantile(mine, GRID) + (1 - weight) * everyone if weight else everyone
        if names[one] == CODE:  # ranked no higher than its faults rank in the whole pool
            usual.ranks[one] = np.maximum(usual.ranks[one], everyone)
    return usual


def _middles(
    values: np.ndarray, measured: np.ndarray, group: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """(groups, TERMS) medians and spreads of the terms' (n, TERMS) values."""
    groups = len(names)
    strange = np.array([name.startswith(OTHER) for name in names])
    usual_of_code = np.array([term.measure in USUAL_OF_CODE for term in TERMS])
    enough = evidence(measured) > 0.5
    everyone = _quartiles(values[enough] if enough.any() else values)
    median, spread = np.zeros((groups, len(TERMS))), np.zeros((groups, len(TERMS)))
    least, fixed, allowed = (
        np.array([getattr(term, name) for term in TERMS]) for name in ("spread", "fixed", "allowed")
    )
    for one in range(groups):
        mine = values[(group == one) & enough]
        weight = 0 if strange[one] else len(mine) / (len(mine) + GROUP)
        found = _quartiles(mine) if weight else everyone
        found = np.where(np.isnan(found), everyone, found)
        low, middle, high = weight * found + (1 - weight) * everyone
        zero = fixed & ~usual_of_code if names[one] == CODE else fixed
        median[one] = np.where(zero, 0, middle) + allowed
        spread[one] = np.where(zero | (allowed > 0), least, np.maximum((high - low) / 1.349, least))
        spread[one, UNKNOWN] /= max(weight, 1e-9)  # few documents teach few words
        if strange[one]:
            spread[one, [term.measure in OF_KNOWN_LANGUAGES for term in TERMS]] = np.inf
    return median, spread


def _quartiles(values: np.ndarray) -> np.ndarray:
    """(3, TERMS), NaN where nothing is measured."""
    found = np.full((3, values.shape[1]), np.nan)
    for place, column in enumerate(values.T):
        column = column[~np.isnan(column)]
        if len(column):
            found[:, place] = np.quantile(column, (0.25, 0.5, 0.75))
    return found


def evidence(measured: np.ndarray) -> np.ndarray:
    """(n,) in [0, 1): how much the document shows of itself."""
    number = column_of(measured, "words") ** 2
    return number / (number + EVIDENCE**2)


def faults(measured: np.ndarray, group: np.ndarray, usual: UsualTerms) -> np.ndarray:
    """(n, TERMS) float64, 0 and more: each term's weight times its distance beyond what is usual."""
    sure, root = evidence(measured), np.sqrt(np.maximum(column_of(measured, "words"), 1))
    found = np.zeros((len(measured), len(TERMS)))
    for place, term in enumerate(TERMS):
        median, spread = usual.median[group, place], usual.spread[group, place]
        if term.measure == "order":
            distance = by_chance(measured, median, spread)
        else:
            value = listed(measured, usual.order[group]) if place == FIGURES else term.value(measured)
            distance = sure * (value - median) / np.hypot(spread, term.of_one / root)
            distance = -distance if term.fault == "low" else distance
        distance = np.clip(np.nan_to_num(distance, nan=0.0), -GREATEST, GREATEST)
        found[:, place] = term.weight * np.logaddexp(0, term.sharp * (distance - term.free)) / term.sharp
    return found


def listed(measured: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(n,) the share of words in passages of figures, but for those that are text with numbers in it: of the words that
    may be (`numbered`), as large a part as their order is of the usual one, (n,)."""
    figures, numbered, mine = (column_of(measured, name) for name in ("figures", "numbered", "numbered_order"))
    text: np.ndarray = np.clip(np.nan_to_num(mine) / order, 0, 1)
    return np.maximum(figures - text * numbered, 0)


def by_chance(measured: np.ndarray, median: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """(n,) by how many nats the order of a document's words is likelier of shuffled words than of words as usual.

    Shuffled words have 0 in every language; texts (n,) medians, with the spreads of whole documents. Both vary the more
    the fewer words there are. What is above the median, or below 0, is as the median or 0 are.
    """
    order, words = column_of(measured, "order"), np.maximum(column_of(measured, "words"), 1)
    usual, chance = np.hypot(spread, ONE_USUAL / np.sqrt(words)), np.hypot(LEAST_CHANCE, ONE_CHANCE / np.sqrt(words))
    far, near = np.minimum(order - median, 0) / usual, np.maximum(order, 0) / chance
    found: np.ndarray = (far**2 - near**2) / 2 + np.log(usual / chance)
    return np.where(np.isfinite(spread), found, 0.0)


def score_terms(measured: np.ndarray, group: np.ndarray, usual: UsualTerms) -> tuple[np.ndarray, np.ndarray]:
    """(n,) float32 in [0, 1], and the (n, TERMS) faults."""
    found = faults(measured, group, usual)
    goodness = 1 - found.sum(axis=1)
    ranked = np.zeros(len(goodness))
    for one in np.unique(group):
        mine = group == one
        above = np.interp(goodness[mine], usual.ranks[one], GRID)  # of equal documents the best's rank, and the worst's
        below = np.interp(-goodness[mine], -usual.ranks[one][::-1], GRID)
        ranked[mine] = (above + 1 - below) / 2
    sure, words = evidence(measured), column_of(measured, "words")
    ranked = sure * ranked + (1 - sure) * UNDECIDED * words / (words + NOTHING)
    return (1 - (1 - ranked) ** SATURATION).astype(np.float32), found


def explain(signals: Mapping[str, float | None]) -> list[str]:
    """What pulled a score down, worst first: each fault of TOLD or more with its measure and its part in them all.

    :param signals: of SIGNALS; None where there was nothing to measure
    """
    found = [(signals[f"{term.measure}_fault"] or 0.0, term) for term in TERMS]
    total = sum(fault for fault, _ in found)
    said = [
        f"{term.measure} {signals[term.measure]:.3g}: {term.said} ({fault:.1f} of {total:.1f} faults)"
        for fault, term in sorted(found, key=lambda one: -one[0])
        if fault >= TOLD and signals[term.measure] is not None
    ]
    words = signals["words"] or 0
    if words < EVIDENCE:
        said.append(f"words {words:.0f}: too few to judge it by, so its rank is drawn towards {UNDECIDED} or less")
    return said
