"""A small corpus of made-up documents in FineWeb's columns, so that every recipe runs at once and anywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOPICS = {
    "sea": "ship wave harbour captain storm anchor sail tide island fish",
    "law": "court judge statute contract appeal clause verdict party rights evidence",
    "cell": "protein enzyme membrane tissue receptor gene nucleus blood muscle nerve",
    "code": "function variable loop integer string array return compile debug pointer",
}
COMMON = ["the", "of", "and", "to", "in", "that", "it", "is", "was", "for", "on", "with", "as", "by", "at", "from"]

# Small enough for a corpus of a few hundred documents; leave these out for your own.
SMALL = {"encoder": {"dimensions": 32, "vocabulary": 500, "fit_documents": 200}, "select": {"select_ratio": 0.2}}


def write_dump(folder: Path, dump: str = "CC-2026-01", documents: int = 120) -> Path:
    """Writes <folder>/<dump>.parquet and returns its path. Another dump has other documents."""
    generator = np.random.default_rng(sum(dump.encode()))
    rows = []
    for number in range(documents):
        topic = list(TOPICS)[number % len(TOPICS)]
        words = [*TOPICS[topic].split(), *COMMON]
        sentences = [" ".join(generator.choice(words, generator.integers(6, 14))) + "." for _ in range(9)]
        rows.append(
            {
                "text": "\n".join(sentence.capitalize() for sentence in sentences),
                "id": f"{dump}/{number}",
                "dump": dump,
                "source": topic,
                "url": f"https://{topic}.example/{number}",
                "language": "en",
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dump}.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
