"""Does the default score read the words? Junk planted among real documents, layouts, labels, and what is at both ends.

    python benchmarks/quality_words.py --data '../shared/data/real/real-*.parquet' [--seed 4] [--read 20]

Planted: of each language with enough documents of 50 words or more, junk of each kind of `quality_planted.py` made of
real documents; the area under the curve by which the score puts the intact above the junk. The pool is fitted without
these documents: junk must not be known by what it is made of. With --unstated, nobody says any document's language.
Additions: how far a table or a head of mail moves the document that it is put into.
Layouts: how far the same words laid out otherwise move the score. Labels: nothing is fitted to them, and the published
rules beside. Ends: shares of sources and languages in the top and bottom hundredth; with --read, documents of each.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import duckdb
import numpy as np
from quality_planted import additions, layouts, pieces, planted
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from datamask.quality import pool_model as pool
from datamask.quality.documents import Documents
from datamask.quality.rules import score_rules as by_rules
from datamask.quality.scorers import ContentScorer

PLANTED_SOURCES = ("masakhanews", "de_federal_law", "movie_reviews", "udhr2")


def score(texts: Sequence[str], languages: Sequence[str | None], model: pool.PoolModel) -> np.ndarray:
    return ContentScorer(model).score(Documents(np.arange(len(texts)), texts, languages=languages)).score


def auc(good: np.ndarray, bad: np.ndarray) -> float:
    return float(roc_auc_score(np.r_[np.ones(len(good)), np.zeros(len(bad))], np.r_[good, bad]))


def laid_out(layout: str, text: str) -> str:
    return layouts(text)[layout]


def fit(rows: Sequence[dict[str, Any]], stated: bool) -> pool.PoolModel:
    return pool.fit_pool_model(*pool.sample((row["text"], row["language"] if stated else None) for row in rows))


def plant(rows: list[dict[str, Any]], documents: int, seed: int, stated: bool) -> None:
    chosen: dict[str, list[str]] = {}
    for row in rows:
        if row["source"] in PLANTED_SOURCES and row["language"] and len(row["text"].split()) >= 50:
            chosen.setdefault(row["language"], []).append(row["text"])
    chosen = {
        name: random.Random(seed).sample(texts, min(documents, len(texts)))
        for name, texts in sorted(chosen.items())
        if len(texts) >= 50
    }
    held_out = {text for texts in chosen.values() for text in texts}
    model = fit([row for row in rows if row["text"] not in held_out], stated)
    table: dict[str, dict[str, float]] = {}
    moved: dict[str, list[np.ndarray]] = {}
    for language, texts in chosen.items():
        said = language if stated else None
        intact = score(texts, [said] * len(texts), model)
        for kind, made in planted(texts, random.Random(seed + 1), language).items():
            if len(made) >= 15:
                junk = score([text for _, text in made], [said] * len(made), model)
                table.setdefault(kind, {})[language] = auc(intact, junk)
        vocabulary = [word for text in texts for word in pieces(text, language)]
        changes = additions(random.Random(seed + 2), vocabulary, language)
        changes |= {kind: partial(laid_out, kind) for kind in layouts("")}
        for kind, change in changes.items():
            laid = score([change(text) for text in texts], [said] * len(texts), model)
            moved.setdefault(kind, []).append(np.abs(laid - intact))
    print(f"\n| junk | mean of {len(chosen)} languages | least | below .95 |\n|---|--:|--:|---|")
    for kind, by in table.items():
        low = ", ".join(f"{x} {by[x]:.3f}" for x in sorted(by, key=by.__getitem__) if by[x] < 0.95)
        print(f"| {kind} | {np.mean([*by.values()]):.3f} | {min(by.values()):.3f} | {low} |")
    print(f"\n| put in | mean of {len(chosen)} languages | most moved language's |\n|---|--:|--:|")
    for kind, parts in moved.items():
        print(f"| {kind} | {np.concatenate(parts).mean():.3f} | {max(float(part.mean()) for part in parts):.3f} |")


def labels(rows: list[dict[str, Any]], found: dict[str, np.ndarray]) -> None:
    source = np.array([row["source"] for row in rows])
    quality = np.array([np.nan if row["quality"] is None else row["quality"] for row in rows])
    length = np.array([len(row["text"]) for row in rows], dtype=float)
    main, page = source == "wcxb_main", source == "wcxb_page"
    print(f"\n{'labels (nothing is fitted to them)':48}" + "".join(f"{name:>10}" for name in (*found, "length")))
    every = {**found, "length": length}
    print(
        f"{'main content against whole page (AUC)':48}"
        + "".join(f"{auc(s[main], s[page]):10.3f}" for s in every.values())
    )
    for name, title in (
        ("wcxb_page", "page's share of main content (Spearman)"),
        ("fineweb_gpt4_lines", "share of clean lines (Spearman)"),
        ("stackexchange_coffee", "votes (Spearman)"),
    ):
        mine = source == name
        print(f"{title:48}" + "".join(f"{spearmanr(s[mine], quality[mine])[0]:10.3f}" for s in every.values()))


def ends(rows: list[dict[str, Any]], found: np.ndarray, read: int) -> None:
    order = np.argsort(found, kind="stable")
    hundredth = len(order) // 100
    for title, some in (("top", order[::-1][:hundredth]), ("bottom", order[:hundredth])):
        print(f"\n{title} hundredth: documents (share of all there are)")
        for field in ("source", "language"):
            every = Counter(row[field] for row in rows)
            held = Counter(rows[place][field] for place in some).most_common(14)
            print(f"  {field}: " + ", ".join(f"{name} {n} ({100 * n / every[name]:.1f} %)" for name, n in held))
        for place in random.Random(1).sample(some.tolist(), min(read, len(some))):
            row = rows[place]
            excerpt = " ".join(row["text"].split())
            print(
                f"--- {found[place]:.3f} {row['source']} {row['language']} {len(row['text'])}: "
                f"{excerpt[:260]} … {excerpt[-80:]}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="glob of parquet files")
    parser.add_argument("--documents", type=int, default=100, help="of a language that junk is made of")
    parser.add_argument("--seed", type=int, default=3, help="of the documents and their junk")
    parser.add_argument("--unstated", action="store_true", help="no document's language is said")
    parser.add_argument("--read", type=int, default=0, help="documents of each end to print")
    options = parser.parse_args()
    query = f"select text, source, quality, language from read_parquet('{options.data}') where trim(text) <> ''"
    rows = [row for row in duckdb.sql(query).to_arrow_table().to_pylist() if not row["text"].isspace()]
    texts, said = [row["text"] for row in rows], [None if options.unstated else row["language"] for row in rows]
    model = fit(rows, not options.unstated)
    print(f"{len(rows):,} documents; groups: {', '.join(model.pool.languages.names)}")
    content = score(texts, said, model)
    rules = by_rules(Documents(np.arange(len(texts)), texts, languages=said).signals)
    labels(rows, {"content": content, "rules": rules})
    ends(rows, content, options.read)
    plant(rows, options.documents, options.seed, not options.unstated)


if __name__ == "__main__":
    main()
