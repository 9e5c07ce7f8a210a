"""Counting hashed word uni- and bigrams of real texts: ours, scikit-learn's, and one pass in C over the same bytes.

    python benchmarks/word_counts.py ../shared/data/real --documents 8000

Processor seconds of one thread, the compiler's not included. The pass in C is BLAKE2b of the text in UTF-8.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pyarrow.parquet as pq
from sklearn.feature_extraction.text import HashingVectorizer

from datamask.corpus.ngrams import BUCKETS, count_ngrams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=8000)
    arguments = parser.parse_args()
    files = sorted(arguments.folder.glob("*.parquet"))
    texts: list[str] = []
    for path in files:
        column = pq.read_table(path, columns=["text"])["text"].drop_null()
        texts += column.slice(0, -(-arguments.documents // len(files))).to_pylist()
    size = sum(len(text.encode()) for text in texts)
    count_ngrams(texts[:10])
    vectorizer = HashingVectorizer(n_features=BUCKETS, ngram_range=(1, 2), norm=None, alternate_sign=False)
    ways: dict[str, Callable[[], object]] = {
        "datamask": lambda: count_ngrams(texts),
        "scikit-learn HashingVectorizer": lambda: vectorizer.transform(texts),
        "BLAKE2b of the text": lambda: [blake2b(text.encode()).digest() for text in texts],
    }
    print(f"{len(texts):,} documents, {size / 1e6:.1f} MB of text\n\n| way | seconds | MB a second |\n|---|--:|--:|")
    for name, way in ways.items():
        begun = time.process_time()
        way()
        spent = time.process_time() - begun
        print(f"| {name} | {spent:.2f} | {size / 1e6 / spent:.0f} |", flush=True)


if __name__ == "__main__":
    main()
