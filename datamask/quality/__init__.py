"""Stage 3, score: how good a document is on its own, by rules, models or what the corpus says, and why.

quality = prepare_quality(shards, encoder, config, work)
output = score_shard(files, quality, encoder, config, work)
sentences = reasons(row)
"""

from datamask.quality.documents import Documents, Scorer, Scores
from datamask.quality.prepare import prepare_quality
from datamask.quality.quality_ref import QualityRef
from datamask.quality.rules import RULES
from datamask.quality.score import score_shard
from datamask.quality.scorers import reasons

__all__ = [
    "RULES",
    "Documents",
    "QualityRef",
    "Scorer",
    "Scores",
    "prepare_quality",
    "reasons",
    "score_shard",
]
