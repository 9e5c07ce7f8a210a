"""A selection's certificate in words: one sentence that a curator understands, and the number that compares runs.

describe({"objective": 0.903, "upper_bound": 1.057, "gap": 0.145, "integrality": 0.144}, calibrated=True)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOOSE = 0.5  # of the bound: with a greater gap it says nothing of the choice
SHOWN = 0.0005  # of the bound: a part of the gap below it is not named
SCALE = "0: a random choice of this size, 1: each goal at its own best"


def describe(certificate: Mapping[str, Any], calibrated: bool) -> str:
    """Score, bound and what lies between them; '' where the solver gives no objective.

    Shares of the bound are points: 100 points are the bound.

    :param certificate: objective, upper_bound, gap, integrality: of `Selection.facts`.
    :param calibrated: whether the objective is measured from a random choice to each term's own best.
    """
    score, bound, gap = (certificate.get(name) for name in ("objective", "upper_bound", "gap"))
    if score is None:
        return ""
    text = f"score {score:.4f}" + (f" ({SCALE})" if calibrated else "")
    if bound is None or gap is None:
        return f"{text}; this solver proves no bound"
    whole = min(certificate.get("integrality") or 0.0, gap)
    if gap > LOOSE and whole <= LOOSE:
        return (
            f"{text}; the bound that is proved, {bound:.4f}, is too far above it to say how near the best choice is: "
            "compare the score with that of other runs over the same corpus, budget and target"
        )
    if gap > LOOSE:
        return (
            f"{text}; the bound, {bound:.4f}, is what parts of documents could score, and says little of whole ones: "
            f"the search ends within {points(gap - whole)} of it. Compare the score with that of other runs over the "
            "same corpus, budget and target"
        )
    if bound <= 0:
        return f"{text}; no choice within the budget can score more than {bound:.4f} (gap {points(gap)})"
    text += (
        f"; no choice within the budget can score more than {bound:.4f}, so it reaches {1 - gap:.1%} of the possible"
    )
    if whole < SHOWN:
        return text
    return f"{text}. Of the missing {points(gap)} at most {points(whole)} are because documents are whole"


def points(share: float) -> str:
    """A share of the bound in points of it, of which the bound has 100."""
    return f"{100 * share:.2f} points"
