"""The study of choices: does a model learn more from one choice of documents than from another?

    targets = read_targets(["tasks/arc_easy.jsonl.gz", "notes.txt"])
    read = code_targets(cut_texts(texts, 4_600_000), targets)      # seconds, no network trained
    mean_bits(read)                                                # bits a byte, every target alike; less is better

`datamask judge OUT --targets …` does all of it, with random draws, intervals and controls (docs/judge.md).
"""

from datamask.study.coder import CodedItems, code_targets, mean_bits
from datamask.study.targets import Item, Target, cut_texts, read_targets

__all__ = ["CodedItems", "Item", "Target", "code_targets", "cut_texts", "mean_bits", "read_targets"]
