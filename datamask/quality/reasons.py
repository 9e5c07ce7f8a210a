"""Why a document's scores are what they are: a sentence for each fault and each published rule that it breaks."""

from __future__ import annotations

from collections.abc import Mapping

from datamask.quality import rules, terms


def reasons(scores: Mapping[str, float | None]) -> list[str]:
    """The sentences for a row of a scores file. A scorer is recognised by its signals, whatever its name."""
    found: dict[str, None] = {}
    for signals, explain in ((terms.SIGNALS, terms.explain), (rules.SIGNALS, rules.explain)):
        for name in (column.removesuffix(f".{signals[1]}") for column in scores if column.endswith(f".{signals[1]}")):
            if all(f"{name}.{signal}" in scores for signal in signals):
                found |= dict.fromkeys(explain({signal: scores[f"{name}.{signal}"] for signal in signals}))
    return list(found)
