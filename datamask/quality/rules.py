"""The published heuristic rules: signal, threshold, source. A document's verdict, with reasons, follows from them.

explain({"words": 31, "stop_words": 4, …})  →  ["gopher_words: 31 is less than 50 (Rae et al. 2021, …)"]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

HEURISTIC_VERSION = 2  # raised when a rule, a signal or the score changes
GOPHER = "Rae et al. 2021, arXiv 2112.11446, section A.1.1"
REPETITION = "Rae et al. 2021, arXiv 2112.11446, table A1"
C4 = "Raffel et al. 2020, arXiv 1910.10683, section 2.2, and its c4_utils.py, as FineWeb ran it"
FINEWEB = "Penedo et al. 2024, arXiv 2406.17557, section 3.5"


@dataclass(frozen=True)
class Rule:
    """A document fails when its signal is below (`least`) or above (`most`) the threshold."""

    name: str
    signal: str
    bound: Literal["least", "most"]
    threshold: float
    source: str
    english: bool = False  # says something of English text alone; left out of the score

    def passes(self, value: float | None) -> bool:
        """A signal that does not apply to a document (null) never fails it."""
        if value is None or value != value:
            return True
        signal, threshold = np.float32(value), np.float32(self.threshold)  # signals are float32 columns
        return bool(signal >= threshold if self.bound == "least" else signal <= threshold)


RULES: tuple[Rule, ...] = (
    Rule("gopher_few_words", "words", "least", 50, GOPHER),
    Rule("gopher_many_words", "words", "most", 100_000, GOPHER),
    Rule("gopher_short_words", "word_length", "least", 3, GOPHER),
    Rule("gopher_long_words", "word_length", "most", 10, GOPHER),
    Rule("gopher_hashes", "hashes_per_word", "most", 0.1, GOPHER),
    Rule("gopher_ellipses", "ellipses_per_word", "most", 0.1, GOPHER),
    Rule("gopher_bullets", "bullet_lines", "most", 0.9, GOPHER),
    Rule("gopher_ellipsis_lines", "ellipsis_lines", "most", 0.3, GOPHER),
    Rule("gopher_letters", "words_with_letters", "least", 0.8, GOPHER),
    Rule("gopher_stop_words", "stop_words", "least", 2, GOPHER, english=True),
    Rule("gopher_duplicate_paragraphs", "duplicate_paragraphs", "most", 0.30, REPETITION),
    Rule("gopher_duplicate_paragraph_characters", "duplicate_paragraph_characters", "most", 0.20, REPETITION),
    Rule("gopher_duplicate_lines", "duplicate_lines", "most", 0.30, REPETITION),
    Rule("gopher_duplicate_line_characters", "duplicate_line_characters", "most", 0.20, REPETITION),
    *(
        Rule(f"gopher_top_{n}_gram", f"top_{n}_gram", "most", most, REPETITION)
        for n, most in ((2, 0.20), (3, 0.18), (4, 0.16))
    ),
    *(
        Rule(f"gopher_duplicate_{n}_grams", f"duplicate_{n}_grams", "most", most, REPETITION)
        for n, most in zip(range(5, 11), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10), strict=True)
    ),
    Rule("c4_lorem_ipsum", "c4_lorem_ipsum", "most", 0, C4),
    Rule("c4_curly_bracket", "c4_curly_bracket", "most", 0, C4),
    Rule("c4_sentences", "c4_sentences", "least", 5, C4),
    Rule("fineweb_line_punctuation", "line_punctuation", "least", 0.12, FINEWEB),
    Rule("fineweb_short_lines", "short_lines", "most", 0.67, FINEWEB),
    Rule("fineweb_duplicate_characters", "duplicate_characters", "most", 0.01, FINEWEB),
    Rule("fineweb_newlines", "newlines_per_word", "most", 0.3, FINEWEB),
)

# C4's line rules, as shares of the lines that are not blank; C4 drops such lines and judges what is left.
C4_DROPPED = ("c4_short_lines", "c4_long_word_lines", "c4_javascript_lines", "c4_policy_lines")
C4_UNPUNCTUATED = "c4_unpunctuated"  # lines without terminal punctuation: C4 drops them too, FineWeb did not

SIGNALS: tuple[str, ...] = (*dict.fromkeys(rule.signal for rule in RULES), *C4_DROPPED, C4_UNPUNCTUATED)


def failures(signals: Mapping[str, float | None]) -> list[Rule]:
    """The rules a document fails, in the order of the recipe (Gopher, C4, FineWeb)."""
    return [rule for rule in RULES if not rule.passes(signals[rule.signal])]


def explain(signals: Mapping[str, float | None]) -> list[str]:
    """A sentence per failed rule: its name, the value found, the threshold and where that is from."""
    comparison = {"least": "less than", "most": "more than"}
    return [
        f"{rule.name}: {signals[rule.signal]:.4g} is {comparison[rule.bound]} {rule.threshold:.4g} ({rule.source})"
        for rule in failures(signals)
    ]


def score_rules(signals: np.ndarray) -> np.ndarray:
    """(documents, signals) to (documents,) float32 in [0, 1]: how well a document keeps the rules, by degrees.

    Each rule gives the share 1 / (1 + v/t) of its value v and threshold t (or its complement where the rule asks for
    at least t): ½ at the threshold, more on the good side. A family's score is the mean over its rules, and the score
    is the geometric mean of the four families (Gopher quality, Gopher repetition, C4, FineWeb), so that none makes up
    for another. Nothing is fitted to labels. Three choices keep the score from measuring something else:

    - length: too few words multiply the first family by 1 / (1 + (50/words)^8), which is 1 in effect from 100 words on,
      and the greatest number of words and C4's five sentences are left out;
    - language: stop words are left out, the length of words where a script has no spaces;
    - C4's family is the share of lines that C4 keeps, that of lines with terminal punctuation (its own rule, which
      FineWeb left out as a filter), and the absence of braces and lorem ipsum.
    """
    column = {name: signals[:, place].astype(np.float64) for place, name in enumerate(SIGNALS)}
    shares = {rule.name: _share(rule, column[rule.signal]) for rule in RULES if rule.threshold and not rule.english}
    few, quality = shares["gopher_few_words"], [r.name for r in RULES if r.source == GOPHER and r.name in shares]
    enough = few**8 / (few**8 + (1 - few) ** 8)
    families = [
        [shares[name] for name in quality if name not in ("gopher_few_words", "gopher_many_words")],
        [shares[rule.name] for rule in RULES if rule.source == REPETITION],
        [
            np.maximum(0, 1 - sum(column[name] for name in C4_DROPPED)),
            1 - column[C4_UNPUNCTUATED],
            1 - np.maximum(column["c4_curly_bracket"], column["c4_lorem_ipsum"]),
        ],
        [shares[rule.name] for rule in RULES if rule.source == FINEWEB],
    ]
    means = [np.mean(family, axis=0) for family in families]
    means[0] *= enough
    return (np.prod(means, axis=0) ** (1 / len(means))).astype(np.float32)


def _share(rule: Rule, value: np.ndarray) -> np.ndarray:
    share = 1 / (1 + value / rule.threshold)
    return np.nan_to_num(1 - share if rule.bound == "least" else share, nan=1)
