"""An encoder of your own: texts become vectors by hashing their words.

python examples/own_encoder.py [FOLDER]
"""

import sys
from pathlib import Path
from zlib import crc32

import numpy as np
from made_corpus import write_dump

from datamask import curate


class HashedWords:
    """Counts of words by their hash: no model, nothing to fit."""

    version = 1  # raise it when the vectors change for a reason that this file's bytes do not show

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def encode(self, texts):
        """n strings -> (n, dimensions); brought to unit length afterwards."""
        found = np.zeros((len(texts), self.dimensions))
        for row, text in zip(found, texts, strict=True):
            for word in text.lower().split():
                row[crc32(word.encode()) % self.dimensions] += 1
        return found


def main(folder: Path) -> None:
    encoder = {"model": f"{Path(__file__).resolve()}:HashedWords", "dimensions": 64, "options": {"dimensions": 64}}
    select = {"algorithm": "Pair_simi", "select_ratio": 0.2}
    release = curate(write_dump(folder / "dumps"), folder / "out", encoder=encoder, select=select)
    print(release, release.certificate["gap"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/own_encoder"))
