"""Choices without a target, by language: the coder reads a choice's documents of a language, then held-out ones.

    python benchmarks/judge_languages.py out/real

Held-out documents of each stated language with 300 candidates and more are in no pool. Choices are made of the whole
pool, a tenth of its tokens. Bits a byte minus the mean of eight random choices; the interval is over the languages.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from datamask.config import Select
from datamask.selection.arrays import select
from datamask.study.coder import Coder
from datamask.study.embedded import load_corpus
from datamask.study.targets import Item, Target
from datamask.text.ngrams import count_ngrams

LEAST, HELD, DRAWS, SHARE = 300, 60, 8, 0.1
CURVE = {"curve": "saturating", "buckets": 1 << 18}
ARMS: Mapping[str, Mapping[str, Any]] = {
    "likelihood, words 3 : embedding 1, λ 0.7": {
        "lamb": 0.7,
        "coverage": {"atoms": {"ngrams": 3, "embedding": 1}, "curve": "likelihood", "buckets": 10_000},
    },
    "saturating, words 3 : embedding 1, λ 0.3": {
        "lamb": 0.3,
        "coverage": {"atoms": {"ngrams": 3, "embedding": 1}, **CURVE},
    },
    "the same, languages as in the pool ± 5 %": {
        "lamb": 0.3,
        "coverage": {"atoms": {"ngrams": 3, "embedding": 1}, **CURVE},
        "quotas": [{"column": "language", "as_pool": 0.05}],
    },
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="an output folder of datamask curate")
    whole = load_corpus(parser.parse_args().corpus, 1_000_000)
    texts = [row["text"] for row in whole.sample.columns(whole.rows, ["text"])]
    language, rng = np.array([str(name) for name in whole.groups["language"]]), np.random.default_rng(0)
    names, sizes = np.unique(language, return_counts=True)
    names = [name for name, size in zip(names, sizes, strict=True) if size >= LEAST and name != "None"]
    pool = np.ones(len(texts), dtype=bool)
    held: dict[str, Target] = {}
    for name in names:
        rows = rng.permutation(np.flatnonzero(language == name))[:HELD]
        pool[rows] = False
        held[name] = Target(name, tuple(Item(texts[row].encode()[:4000]) for row in rows))
    rows = np.flatnonzero(pool)
    part, tokens = whole.subset(pool), whole.subset(pool).tokens
    counts = {
        buckets: count_ngrams((texts[row] for row in rows), buckets)
        for buckets in {changes["coverage"]["buckets"] for changes in ARMS.values()}
    }
    limit = SHARE * float(tokens.sum())
    masks: dict[str, list[Any]] = {"random": []}
    for _ in range(DRAWS):
        order = rng.permutation(len(rows))
        mask = np.zeros(len(rows), dtype=bool)
        mask[order[np.cumsum(tokens[order]) <= limit]] = True
        masks["random"].append(mask)
    for name, changes in ARMS.items():
        settings = Select.model_validate({"algorithm": "coverage", "budget_tokens": int(limit), **changes})
        atoms = counts[changes["coverage"]["buckets"]]
        groups = {"language": language[rows]} if "quotas" in changes else None
        found = select(part.features, part.quality, tokens=tokens, settings=settings, atoms=atoms, groups=groups)
        masks[name] = [found.selected]
    print("| language | bytes in a random choice |" + "".join(f" {name} | bytes |" for name in ARMS))
    print("|---|--:|" + "--:|--:|" * len(ARMS))
    gains = []
    for name in names:
        read, size = {}, {}
        for arm, drawn in masks.items():
            chosen = [[texts[row].encode() for row in rows[mask] if language[row] == name] for mask in drawn]
            read[arm] = np.mean([Coder().read(b"\n\n".join(one), [held[name]])[name].bits_per_byte for one in chosen])
            size[arm] = np.mean([sum(map(len, one)) for one in chosen])
        gains.append([read[arm] - read["random"] for arm in ARMS])
        told = "".join(f" {read[arm] - read['random']:+.3f} | {size[arm]:,.0f} |" for arm in ARMS)
        print(f"| {name} | {size['random']:,.0f} |{told}", flush=True)
    mean, error = np.mean(gains, axis=0), np.std(gains, axis=0, ddof=1) / len(gains) ** 0.5
    print("| mean | |" + "".join(f" {m:+.3f} ± {1.96 * e:.3f} | |" for m, e in zip(mean, error, strict=True)))


if __name__ == "__main__":
    main()
