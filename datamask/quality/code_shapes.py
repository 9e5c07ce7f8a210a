"""Whether a document is source code: by the shapes of its words and marks, two neighbours at a time.

    code(BatchWords(["def f(x): return x", "The cat sat on the mat."]))      # probabilities, (2,)

A word's shape is its case and its digits, a mark's shape is the mark itself; two neighbours also say whether white
space stands between them. Links are left out. So `name(`, `);` and dots or underscores within names count; line ends,
indentation and the words of any language do not.
Weights are a logistic regression's, fitted by benchmarks/quality_code.py to files of 40 programming languages, and to
mail, changelogs, manuals, fortunes, web pages, prose in 30 languages, logs and JSON.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

import numpy as np

from datamask.compiling import compiled
from datamask.text.batch_words import BatchWords
from datamask.text.word_tables import DIGIT, LOWER, UPPER, tables

MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"  # ASCII's, in its order
WORDS = 7  # shapes of words: see `shape_of`
SHAPES = WORDS + 2 * (len(MARKS) + 1)  # a mark, and a run of it; the last of each is any other mark
LOWERED, CAPITAL, UPPERED, MIXED, NUMBER, UNCASED, LETTER = range(WORDS)
PLACES = np.full(128, len(MARKS), np.int64)  # of a mark in MARKS
PLACES[[ord(mark) for mark in MARKS]] = np.arange(len(MARKS))
PAIRS = SHAPES * SHAPES * 2
LEAST_MARKS = 0.01  # share of characters that programs are written with: with less, a document is no code
_WORDS = ("lower", "Capital", "UPPER", "mixed", "number", "letters", "letter")  # in the order of LOWERED … LETTER
NAMES: tuple[str, ...] = (*_WORDS, *MARKS, "mark", *(mark * 2 for mark in MARKS), "marks")  # doubled: a run of it


def code_probability(words: BatchWords) -> np.ndarray:
    """(documents,) float64: the probability that each is source code; 0 where it has hardly a mark of code."""
    weights, intercept = weights_of_pairs()
    marks = words.characters[:, 3] > LEAST_MARKS * np.maximum(words.characters[:, 0], 1)
    sums = np.zeros(len(words))
    weigh_pairs(shape_pairs(words, marks), words.first, marks, weights, sums)
    return np.where(marks, 1 / (1 + np.exp(-(sums + intercept))), 0.0)


def shape_pairs(words: BatchWords, wanted: np.ndarray) -> np.ndarray:
    """(tokens,) int64: which pair of shapes each token and the one before it are; −1: none that counts, as in a link.

    :param wanted: (documents,) bool, of which documents
    """
    found = np.empty(len(words.start), np.int64)
    of_tokens = words.start, words.end, words.is_word, words.first, wanted
    pair_shapes(words.points, tables().packed, *of_tokens, found)
    found[words.linked] = -1
    return found


def pair_name(pair: int) -> str:
    """`lower ( glued`: the two shapes and whether they touch."""
    first, second = divmod(pair // 2, SHAPES)
    return f"{NAMES[first]} {NAMES[second]}{' glued' if pair % 2 else ''}"


@cache
def weights_of_pairs() -> tuple[np.ndarray, float]:
    """(pairs,) float32 weights, mostly 0, and the intercept."""
    told = json.loads(resources.files(__package__).joinpath("code_shapes.json").read_text(encoding="utf-8"))
    places = {pair_name(pair): pair for pair in range(PAIRS)}
    weights = np.zeros(len(places), np.float32)
    for name, weight in told["pairs"].items():
        weights[places[name]] = weight
    return weights, float(told["intercept"])


@compiled
def shape_of(points, table, start, end, is_word):  # type: ignore[no-untyped-def]
    """The shape of a token: of a word its case and digits, of a mark which it is and whether it is a run."""
    point = points[start]
    if not is_word:
        mark = PLACES[point] if point < 128 else len(MARKS)
        return WORDS + mark + (len(MARKS) + 1) * (end - start > 1)
    upper, lower, digits = 0, 0, 0
    for place in range(start, end):
        kind = table[points[place]]
        upper += kind & np.uint64(UPPER) != 0
        lower += kind & np.uint64(LOWER) != 0
        digits += kind & np.uint64(DIGIT) != 0
    if digits:
        return MIXED if upper + lower else NUMBER
    if upper and lower:
        return CAPITAL if upper == 1 and table[point] & np.uint64(UPPER) else MIXED
    if upper:
        return CAPITAL if upper == 1 else UPPERED
    if lower:
        return LETTER if end - start == 1 else LOWERED
    return UNCASED


@compiled
def pair_shapes(points, table, start, end, is_word, first, wanted, found):  # type: ignore[no-untyped-def]
    """Fills found (tokens,) with the number of each token's pair with the one before it; −1 where a document begins
    or is not wanted (documents,)."""
    for document in range(len(first) - 1):
        if not wanted[document]:
            found[first[document] : first[document + 1]] = -1
            continue
        before = -1
        for at in range(first[document], first[document + 1]):
            shape = shape_of(points, table, start[at], end[at], is_word[at])
            pair = (before * SHAPES + shape) * 2 + (start[at] == end[at - 1])
            found[at] = -1 if before < 0 else pair
            before = shape


@compiled
def weigh_pairs(pairs, first, wanted, weights, found):  # type: ignore[no-untyped-def]
    """Fills found (documents,) with the sum over a document's pairs of weight times the root of the pair's share; 0
    where it is not wanted (documents,).

    pairs: (tokens,) of `pair_shapes`; weights: of each pair, mostly 0.
    """
    counts = np.zeros(len(weights), np.int64)
    for document in range(len(first) - 1):
        low, high = first[document], first[document + 1]
        found[document] = 0.0
        if not wanted[document]:
            continue
        for at in range(low, high):
            if pairs[at] >= 0:
                counts[pairs[at]] += 1
        total = 0.0
        for at in range(low, high):
            if pairs[at] >= 0 and counts[pairs[at]]:  # each pair once, where it is first met
                total += weights[pairs[at]] * np.sqrt(counts[pairs[at]] / (high - low))
                counts[pairs[at]] = 0
        found[document] = total
