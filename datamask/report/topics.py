"""The topics on the page: what was kept of each beside the pool, and which are no good groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datamask.report.formatting import percent
from datamask.report.tally import GroupCounts
from datamask.stages import ShardFiles

ONE_POINT = 0.95  # median cosine of pairs: SemDeDup's ε, at which half of a topic's pairs would be near-duplicates
MIXED = 0.5  # share of the most frequent language, below which a topic has no language of its own


def topic_rows(all_files: Sequence[ShardFiles], groups: GroupCounts) -> list[dict[str, Any]]:
    """A row for each topic, the largest first: name, documents, selected, the shares of these, and a remark; [] where
    there are no topics.

    :param groups: exact counts by topic over all rows.
    """
    facts = next((files.topics.facts for files in all_files if files.topics), {"topics": ()})
    topics = {topic["name"]: topic for topic in facts["topics"]}
    named = [place for place, value in enumerate(groups.values) if value in topics]
    counts = {"documents": groups.count()[named], "selected": groups.count("selected")[named]}
    shares = {f"share{end}": n / max(n.sum(), 1) for end, n in zip(("", "_selected"), counts.values(), strict=True)}
    rows = []
    for n, topic in enumerate(topics[groups.values[place]] for place in named):
        numbers = {name: values[n].item() for name, values in {**counts, **shares}.items()}
        rows.append({"name": topic["name"], **numbers, "language": topic["language"], "remark": remark(topic)})
    return sorted(rows, key=lambda row: (-row["documents"], row["name"]))


def remark(topic: Mapping[str, Any]) -> str:
    """Why a topic is no good group; empty: it is one. It is judged by the sample on which it was fitted."""
    found = []
    if topic["cosine"] >= ONE_POINT:
        found.append(f"vectors fall on one point (median cosine {topic['cosine']:.2f})")
    if topic["language"] and topic["language_share"] < MIXED:
        found.append(f"mixes languages ({topic['language']} has {percent(topic['language_share'])})")
    return "; ".join(found)
