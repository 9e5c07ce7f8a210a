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

from datamask.quality.batch_words import BatchWords
from datamask.quality.shape_loops import MARKS, SHAPES, pair_shapes, weigh_pairs
from datamask.quality.word_tables import tables

PAIRS = SHAPES * SHAPES * 2
LEAST_MARKS = 0.01  # share of characters that programs are written with: with less, a document is no code
_WORDS = ("lower", "Capital", "UPPER", "mixed", "number", "letters", "letter")  # in the order of `shape_loops`
NAMES: tuple[str, ...] = (*_WORDS, *MARKS, "mark", *(mark * 2 for mark in MARKS), "marks")  # doubled: a run of it


def code_probability(words: BatchWords) -> np.ndarray:
    """(documents,) float64: the probability that each is source code; 0 where it has hardly a mark of code."""
    weights, intercept = weights_of_pairs()
    marks = words.characters[:, 3] > LEAST_MARKS * np.maximum(words.characters[:, 0], 1)
    sums = np.zeros(len(words))
    weigh_pairs(shape_pairs(words, marks), words.first, marks, weights, sums)
    found: np.ndarray = np.where(marks, 1 / (1 + np.exp(-(sums + intercept))), 0.0)
    return found


def shape_pairs(words: BatchWords, wanted: np.ndarray) -> np.ndarray:
    """(tokens,) int64: which pair of shapes each token and the one before it are; −1: none that counts.

    :param wanted: (documents,) bool, of which documents
    """
    found = np.empty(len(words.start), np.int64)
    of_tokens = words.start, words.end, words.is_word, words.first, wanted
    pair_shapes(words.points, tables().packed, *of_tokens, found)
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
