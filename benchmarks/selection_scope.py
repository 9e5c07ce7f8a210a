"""One selection from all shards against each shard on its own, on shards sorted by topic.

python benchmarks/selection_scope.py --documents 10000 --shards 20 --metric pairwise
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from selection_scale import embedded

from datamask.config import Config, Select
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.moment_rounds import MomentRounds
from datamask.selection.problem.pool import Pool


@dataclass
class Rows:
    rows: np.ndarray
    quality: np.ndarray
    tokens: np.ndarray
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    reads: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def features(self) -> np.ndarray:
        self.reads += 1
        return self.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--metric", default="pairwise")
    parser.add_argument("--room", type=int, default=3000, help="undecided documents that may be held at once")
    parser.add_argument("--embeddings", help=".npz with features and quality instead of synthetic clusters")
    arguments = parser.parse_args()
    settings = Select(algorithm=arguments.metric)
    features, quality = embedded(arguments.embeddings, arguments.documents)
    topic = np.argmax(features.astype(np.float32) @ features[:64].astype(np.float32).T, axis=1)
    order = np.argsort(topic, kind="stable")
    features, quality = features[order], quality[order]
    tokens = np.ones(len(quality))
    problem = make_problem(Pool(features, quality), settings)

    def shards(parts: list[np.ndarray]) -> list[Rows]:
        return [Rows(features[part], quality[part], tokens[part]) for part in parts]

    def value(parts: list[np.ndarray], masks: list[np.ndarray]) -> float:
        mask = np.zeros(len(quality), bool)
        for part, selected in zip(parts, masks, strict=True):
            mask[part] = selected
        return problem.objective.evaluate(torch.from_numpy(mask)).objective

    rows = np.arange(len(quality))
    sorted_parts = np.array_split(rows, arguments.shards)
    shuffled = np.array_split(np.random.default_rng(0).permutation(rows), arguments.shards)
    print(f"| shards ({arguments.shards}) | scope | objective |\n|---|---|---|")
    for name, parts in (("sorted by topic", sorted_parts), ("random", shuffled)):
        together = solve_problem(problem)
        print(f"| {name} | corpus, joint | {value([rows], [together.selected]):.5f} |", flush=True)
        made = shards(parts)
        with tempfile.TemporaryDirectory() as folder:
            room = arguments.room * features.shape[1] * 2
            found = MomentRounds(made, Config(select=settings), folder, room=room).run()
            masks = [each.read("selected")[0] for each in found.decided]
        reads = max(shard.reads for shard in made)
        print(f"| {name} | corpus, in groups, {reads} read | {value(parts, masks):.5f} |", flush=True)
        alone = [solve_problem(make_problem(Pool(features[p], quality[p]), settings)).selected for p in parts]
        print(f"| {name} | shard | {value(parts, alone):.5f} |", flush=True)
    print(f"bound of the whole corpus: {together.upper_bound:.5f}")


if __name__ == "__main__":
    main()
