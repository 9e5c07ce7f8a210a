"""Tune λ and the mixture of diversities to texts like those your model shall be good at.

python examples/tune.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from made_corpus import COMMON, SMALL, TOPICS, write_dump

from datamask import cli, curate


def write_targets(folder: Path) -> list[str]:
    """Two sets of texts from outside the corpus; use your own benchmarks' questions and answers."""
    generator = np.random.default_rng(7)
    paths = []
    for topic in ("sea", "cell"):
        words = [*TOPICS[topic].split(), *COMMON]
        paths.append(folder / f"{topic}.txt")
        paths[-1].write_text("\n\n".join(" ".join(generator.choice(words, 60)) for _ in range(40)))
    return [str(path) for path in paths]


def main(folder: Path) -> None:
    curate(write_dump(folder / "dumps", documents=400), folder / "out", config=SMALL)
    targets = [part for path in write_targets(folder) for part in ("--targets", path)]
    few = ["--evaluations", "12", "--documents", "200", "--pools", "2", "--bytes", "8000"]  # your own: leave these out
    try:
        cli.main(["tune", str(folder / "out"), *targets, *few, "--to", str(folder / "tuned.yaml")])
    except SystemExit as end:
        if end.code:
            raise
    print((folder / "tuned.yaml").read_text())  # datamask curate --config tuned.yaml …


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/tune"))
