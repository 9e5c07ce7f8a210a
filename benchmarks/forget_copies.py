"""Are copies of forgotten texts known by hashes and samples alone, once the texts are gone, and does nothing else fall?

    python benchmarks/forget_copies.py CORPUS.parquet [TEXTS]

TEXTS documents of a real file, of 400 letters and more, are recorded as `datamask forget --texts` does. Copies of each
are made in five ways and asked about; so are all other documents of the file, whose hits are counted as false unless
they share 80 % of their five-word shingles with a forgotten text, or hold as much of one (counted without our code).
"""

from __future__ import annotations

import random
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.filter.forgotten import Entry, load_requests, record_entries
from datamask.filter.signatures import sign_texts
from datamask.text.text_hashes import text_hashes


def replaced(text: str, share: float, generator: random.Random, words: list[str]) -> str:
    return " ".join(generator.choice(words) if generator.random() < share else word for word in text.split(" "))


def grams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[place : place + 5]) for place in range(max(1, len(words) - 4))}


def main(path: str, number: int = 300) -> None:
    texts = [text for text in pq.read_table(path, columns=["text"])["text"].to_pylist() if text and len(text) >= 400]
    generator = random.Random(3)
    generator.shuffle(texts)
    forgotten, others = texts[:number], texts[number:]
    words = " ".join(others[:200]).split()
    out = tempfile.mkdtemp()
    record_entries(out, [Entry("texts", text, "list", n) for n, text in enumerate(forgotten)])
    requests = load_requests(f"{out}/work")
    assert requests is not None

    def found(given: list[str]) -> np.ndarray:
        array = pa.array(given, pa.string())
        signed = pa.Table.from_batches([sign_texts(pa.array(range(len(given)), pa.int64()), array)])
        by_hash = requests.match(pa.table({"text_hash": pa.array(text_hashes(array), pa.binary(16))}))
        return (by_hash >= 0) | (requests.match_samples(signed) >= 0)

    ways = {
        "the same": list(forgotten),
        "capitals, other lines": [text.upper().replace(". ", ".\n") for text in forgotten],
        "one word in 50 replaced": [replaced(text, 0.02, generator, words) for text in forgotten],
        "one in 20": [replaced(text, 0.05, generator, words) for text in forgotten],
        "one in 10": [replaced(text, 0.1, generator, words) for text in forgotten],
        "inside a page of twice its length": [
            f"{others[n][: len(text) // 2]}\n{text}\n{others[-n - 1][: len(text) // 2]}"
            for n, text in enumerate(forgotten)
        ],
    }
    print(f"| of {number} texts, found | {' | '.join(ways)} |\n|---|{'--:|' * len(ways)}")
    print(f"| by hashes and samples | {' | '.join(f'{found(given).mean():.3f}' for given in ways.values())} |")
    began = time.process_time()
    hits = np.flatnonzero(found(others))
    took = time.process_time() - began
    theirs = [grams(text) for text in forgotten]
    right = 0
    for place in hits.tolist():
        own = grams(others[place])
        right += any(len(own & them) >= 0.8 * min(len(own | them), len(them)) for them in theirs)
    print(
        f"\nOf {len(others):,} other documents of the file {len(hits)} are taken, {right} of them copies by 80 % of "
        f"five-word shingles; {len(others) / took:,.0f} documents a processor second, signing them too."
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
