"""Selection alone: features and quality that you have as arrays, no files and no pipeline.

python examples/selection_only.py
"""

import numpy as np

from datamask import select


def main() -> None:
    generator = np.random.default_rng(0)
    topic = generator.integers(0, 5, 400)
    features = generator.standard_normal((5, 16))[topic] + 0.5 * generator.standard_normal((400, 16))
    quality = generator.random(400) + (topic == 0)  # topic 0 is by far the best
    for lamb in (1.0, 0.5, 0.0):
        found = select(features, quality, select_ratio=0.1, lamb=lamb, algorithm="Pair_simi")
        topics = len(set(topic[found.selected]))
        print(f"λ = {lamb}: {topics} topics, mean quality {quality[found.selected].mean():.2f}, gap {found.gap}")
    tokens = generator.integers(50, 500, 400)
    quotas = [{"column": "topic", "maximum": {"0": 0.25}}]
    groups = {"topic": topic.astype(str)}
    found = select(features, quality, tokens=tokens, groups=groups, budget_tokens=10_000, quotas=quotas)
    share = tokens[found.selected & (topic == 0)].sum() / tokens[found.selected].sum()
    print(f"{tokens[found.selected].sum()} tokens, {share:.0%} of them of topic 0")


if __name__ == "__main__":
    main()
