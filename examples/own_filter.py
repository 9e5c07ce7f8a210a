"""A filter of your own: a rule in Python, which a document's `explain` names as the reason.

python examples/own_filter.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from made_corpus import SMALL, write_dump

from datamask import curate


class NoWord:
    """Keeps the documents that do not hold a word."""

    columns = ("text",)  # what it reads: of the corpus, or a score, or token_count

    def __init__(self, word: str) -> None:
        self.word = word

    def keep(self, documents):
        """documents: a pyarrow.Table of `columns` -> (n,) bool, true for what stays."""
        return np.array([self.word not in text.lower().split() for text in documents["text"].to_pylist()])


def main(folder: Path) -> None:
    own = {"use": f"{Path(__file__).resolve()}:NoWord", "options": {"word": "captain"}}
    release = curate(write_dump(folder / "dumps"), folder / "out", config=SMALL, filter={"own": [own]})
    print(release.counts["filtered"])
    fell = next(row for row in release.decisions().to_pylist() if row["reason"] == "NoWord")
    print(release.explain(fell["id"])[0]["decision"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/own_filter"))
