"""Moves the weights that tell source code from prose (`datamask/quality/code_shapes.json`), and says what they tell.

    python benchmarks/quality_code.py --code samples/code --prose samples/prose [--to datamask/quality/code_shapes.json]

Each folder has a folder of text files for each programming language, or for each kind of prose, named `source--n`:
`quality_code_samples.py` gathers them. A file most of whose characters are comments or documentation is prose with code
in it and is left out; --comments 1 keeps these. Half of the sources, packages say, fit, and the files of the others are
judged; then the other way round. The second table holds out a fifth of the languages and kinds, the third judges the
weights that there are. The fit starts from these and stays near them, so that what earlier files taught is kept; what
is held out may have been among those.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, String
from quality_planted import items
from scipy.optimize import minimize

from datamask.quality.code_shapes import PAIRS as ALL_PAIRS
from datamask.quality.code_shapes import pair_name, shape_pairs, weights_of_pairs
from datamask.text.batch_words import BatchWords

CHARACTERS = 16_000  # of a file, its first
STRENGTH, PROSE = 3.0, 4.0  # inverse of the pull towards the earlier weights; what prose weighs beside code
FOLDS = 5  # of languages and kinds
PATCH = re.compile(r"^[> ]*(diff |@@ |\+\+\+ |--- a/)", re.MULTILINE)  # mail that holds code
LISTS = (  # no prose, and no code either: made of the words of each kind of prose
    "| {number} | {0} ({1}) | [{price}] |",
    "[{number}] {0}, {1}: {year}, pp. {number}-{day}. [{0}]",
    "* {0} [{1}] ({day}/{month}/{year}) - {number}",
    "{day}) {0} ......... {number}",
    "=== {0} {1} ===",
    "> {0} {1} [{number}]",
    "{0}_{1}.jpg ({number} KB) {year}-{month:02}-{day:02}",
    "#{0} #{1} (+{number}) ~{price}",
    "http://www.{0}.com/{1}.php?id={number}&c=({number})#top",
)
Features = dict[tuple[bool, str], sp.csr_matrix]
Kinds = dict[tuple[bool, str], tuple[sp.csr_matrix, np.ndarray]]  # and the half that each file's source is in


def features(texts: list[str]) -> sp.csr_matrix:
    """(texts, pairs): the root of each pair's share, as `code_shapes.weigh_pairs` has it."""
    words = BatchWords(texts)
    found = shape_pairs(words, np.ones(len(words), bool))
    counted = np.flatnonzero(found >= 0)
    shape = len(texts), ALL_PAIRS
    counts = sp.csr_matrix((np.ones(len(counted)), (words.document[counted], found[counted])), shape=shape)
    counts.sum_duplicates()
    counts.data = np.sqrt(counts.data / np.repeat(np.diff(words.first), np.diff(counts.indptr)))
    return counts


def half_of(path: Path) -> int:
    """0 or 1: all files of a source are in one half."""
    return blake2b(path.name.partition("--")[0].encode()).digest()[0] % 2


def share_of_comments(text: str, lexer: Lexer) -> float:
    """Of the characters that are not blank, which stand in comments and documentation, POD say."""
    sizes = Counter[bool]()
    for kind, value in lexer.get_tokens(text):
        of_program = kind in Comment.Preproc and lexer.name != "Perl"  # what follows __END__ has this kind there
        commented = (kind in Comment and not of_program) or kind in String.Doc
        sizes[commented] += len("".join(value.split()))
    return sizes[True] / max(sizes.total(), 1)


def read(folder: Path, is_code: bool, comments: float) -> Kinds:
    """The features of each kind's files, and their halves."""
    found: Kinds = {}
    for kind in sorted(path for path in folder.iterdir() if path.is_dir()):
        read = [(path.read_text("utf-8", "replace")[:CHARACTERS], half_of(path)) for path in sorted(kind.iterdir())]
        read = [(text, half) for text, half in read if text.strip() and (is_code or not PATCH.search(text))]
        if is_code:
            lexer = get_lexer_by_name(kind.name)
            read = [(text, half) for text, half in read if share_of_comments(text, lexer) <= comments]
        texts = [text for text, _ in read]
        if not is_code and len(texts) > len(LISTS):
            generator = random.Random(len(texts))
            vocabulary = [word for text in texts for word in text.split()]
            lists = [items(generator, vocabulary, text[:2000], form) for form in LISTS for text in texts[:3]]
            found[False, f"lists of {kind.name}"] = features(lists), np.arange(len(lists)) % 2
            apart = [
                " ".join(re.findall(r"\w+|[^\w\s]", text)).lower() for text in texts[:40]
            ]  # as tokenizers write it
            found[False, f"tokens of {kind.name}"] = features(apart), np.array([half for _, half in read[:40]])
        parts = [features(texts[at : at + 40]) for at in range(0, len(texts), 40)]
        if parts:
            found[is_code, kind.name] = sp.vstack(parts).tocsr(), np.array([half for _, half in read])
    return found


def fit(kinds: Features) -> tuple[np.ndarray, float]:
    """(pairs,) weights and the intercept, of the pairs that had a weight before; every kind counts alike."""
    before, intercept = weights_of_pairs()
    kept = np.flatnonzero(before)
    number = {side: sum(one[0] == side for one in kinds) for side in (True, False)}
    rows = sp.vstack(list(kinds.values())).tocsr()[:, kept]
    sign = np.concatenate([np.full(one.shape[0], 1.0 if side else -1.0) for (side, _), one in kinds.items()])
    weight = np.concatenate(
        [
            np.full(one.shape[0], (1 if side else PROSE) / one.shape[0] / number[side])
            for (side, _), one in kinds.items()
        ]
    )
    weight *= STRENGTH * len(weight) / weight.sum()

    def loss(moved: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (rows @ (before[kept] + moved[:-1]) + intercept + moved[-1])
        slope = -sign * weight / (1 + np.exp(margin))
        gradient = np.append(rows.T @ slope + moved[:-1], slope.sum())
        return weight @ np.logaddexp(0, -margin) + moved[:-1] @ moved[:-1] / 2, gradient

    moved = minimize(loss, np.zeros(len(kept) + 1), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    weights = before.astype(np.float64)
    weights[kept] += moved[:-1]
    return weights, intercept + float(moved[-1])


def told(kinds: Features, weights: np.ndarray, intercept: float) -> dict[tuple[bool, str], np.ndarray]:
    """Of each kind's files, which are taken for code."""
    return {kind: rows @ weights + intercept > 0 for kind, rows in kinds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--prose", type=Path, required=True)
    parser.add_argument("--comments", type=float, default=0.5, help="greatest share of a file of code")
    parser.add_argument("--to", type=Path)
    arguments = parser.parse_args()
    kinds = read(arguments.code, True, arguments.comments) | read(arguments.prose, False, 1)
    whole: Features = {kind: rows for kind, (rows, _) in kinds.items()}
    tables: dict[str, dict[tuple[bool, str], list[bool]]] = {}
    for title in ("sources held out", "languages and kinds held out"):
        found = tables[title] = {kind: [] for kind in kinds}
        for half in range(2 if title == "sources held out" else FOLDS):
            if title == "sources held out":
                train, test = (
                    {kind: rows[halves == side] for kind, (rows, halves) in kinds.items() if (halves == side).any()}
                    for side in (half, 1 - half)
                )
            else:
                side = {kind: blake2b(kind[1].encode()).digest()[0] % FOLDS for kind in kinds}
                train, test = ({kind: whole[kind] for kind in whole if (side[kind] != half) == own} for own in (1, 0))
            for kind, taken in told(test, *fit(train)).items():
                found[kind] += taken.tolist()
    tables["the weights as they stand"] = {
        kind: taken.tolist() for kind, taken in told(whole, *weights_of_pairs()).items()
    }
    for title, found in tables.items():
        print(f"\n| {title} | files | taken for code |\n|---|--:|--:|")
        for side, name in ((True, "code"), (False, "prose")):
            ours = {kind[1]: values for kind, values in found.items() if kind[0] == side and len(values) >= 12}
            shares = {kind: float(np.mean(values)) for kind, values in ours.items()}
            files = sum(map(len, ours.values()))
            print(f"| {name}, mean of {len(ours)} kinds | {files:,} | {np.mean(list(shares.values())):.4f} |")
            for label, share in sorted(shares.items(), key=lambda one: one[1], reverse=not side)[:9]:
                print(f"| {label} | {len(ours[label])} | {share:.3f} |")
    weights, intercept = fit(whole)
    if arguments.to:
        pairs = {pair_name(pair): round(float(weights[pair]), 3) for pair in np.flatnonzero(np.round(weights, 3))}
        arguments.to.write_text(json.dumps({"intercept": round(intercept, 3), "pairs": pairs}, indent=0) + "\n")


if __name__ == "__main__":
    main()
