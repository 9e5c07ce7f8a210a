"""Which documents to keep: quality and diversity maximised together."""

from __future__ import annotations


def metric_names() -> list[str]:
    return ["pairwise", "disf", "facility"]
