"""A scorer of your own: documents are scored by the share of distinct words, beside the built-in score.

python examples/own_scorer.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from made_corpus import SMALL, write_dump

from datamask import curate


class DistinctWords:
    """The share of a text's words that occur in it for the first time: 1 where no word is repeated."""

    def __init__(self, at_least: int = 1) -> None:
        """:param at_least: a text counts as if it had so many words."""
        self.at_least = at_least

    def score(self, documents):
        """documents.texts: n strings -> (n,) numbers; larger is better."""
        words = [text.lower().split() for text in documents.texts]
        return np.array([len(set(found)) / max(self.at_least, len(found)) for found in words])


def main(folder: Path) -> None:
    mine = {"kind": f"{Path(__file__).resolve()}:DistinctWords", "options": {"at_least": 20}, "weight": 0.5}
    quality = {"scorers": [{"kind": "content"}, mine], "combine": "rank"}
    release = curate(write_dump(folder / "dumps"), folder / "out", config=SMALL, quality=quality)
    print(release)
    chosen = release.dataset(library="pyarrow").to_table(["id", "quality_score"])
    print(chosen.sort_by([("quality_score", "descending")]).slice(0, 3).to_pylist())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/own_scorer"))
