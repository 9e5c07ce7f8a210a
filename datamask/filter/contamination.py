"""Which documents hold test items, of those that hold some of their words in a row (`leaks`).

A row is a run of ROW words. An item has parts: its text, question, answer, or question and answer. A document is
contaminated by a part if its rows cover the share `filter.contamination` of the part's words, or WORDS words. Two
kinds of rows do not count:

- A common row is a phrase that people use and a test item quotes. It stands in more than COMMON documents, and these
  do not hold nearly all of its part. Where a part is one row alone, all documents count.
- A row that is not varied: less than half of its words are different ones (`word_rows`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from datamask import storage
from datamask.config import Config
from datamask.filter.leaks import Items, items_of
from datamask.filter.word_rows import ROW
from datamask.stages import ShardFiles, required

COMMON = 10  # documents that hold a common row, at least
WORDS = 3 * ROW  # as many words as three rows that do not overlap
PLANTED = 0.8  # share of a part's words; a document that holds so much of it quotes the item, not a phrase


def wanted(config: Config) -> bool:
    """Whether the settings ask for it."""
    return bool(config.filter.decontaminate)


def common_rows(all_files: Iterable[ShardFiles], config: Config) -> frozenset[int]:
    """The numbers of the rows that are common in the pool: the reduce over all shards' leaks."""
    if not wanted(config):
        return frozenset()
    items = items_of(config)
    loose: Counter[int] = Counter()
    for files in all_files:
        for row in _rows(files):
            held = _held(row["gram"], items, frozenset())
            planted = {part for part, words in held.items() if len(words) >= PLANTED * items.rows.words[part]}
            for gram in set(row["gram"]):
                owners = {part for part, _ in items.rows.texts_with(gram)}
                alone = all(items.rows.words[part] <= ROW for part in owners)
                if alone or not owners & planted:
                    loose[gram] += 1
    return frozenset(gram for gram, documents in loose.items() if documents > COMMON)


def contaminated(files: ShardFiles, config: Config, common: frozenset[int]) -> dict[int, str]:
    """chunk_id: what it holds, as JSON: item (file:line), part, words of the part, how many were found, span."""
    if not wanted(config):
        return {}
    items = items_of(config)
    found = {}
    for row in _rows(files):
        if verdict := _judge(row, items, common, config.filter.contamination):
            found[row["chunk_id"]] = json.dumps(verdict, ensure_ascii=False)
    return found


def _judge(row: Mapping[str, Any], items: Items, common: frozenset[int], least: float) -> dict[str, Any] | None:
    held = _held(row["gram"], items, common).items()
    ranked = [(len(words) / items.rows.words[part], len(words), -part) for part, words in held]
    found = [(share, words, part) for share, words, part in ranked if share >= least or words >= WORDS]
    if not found:
        return None
    _, words, negated = max(found)
    part = -negated
    return {
        "item": items.names[part],
        "part": items.parts[part],
        "words": int(items.rows.words[part]),
        "found": words,
        "span": _span(row, items, common, part),
    }


def _held(grams: Sequence[int], items: Items, common: frozenset[int]) -> dict[int, set[int]]:
    """The words of each part that rows cover."""
    held: dict[int, set[int]] = defaultdict(set)
    for gram in dict.fromkeys(grams):
        if gram not in common:
            for part, place in items.rows.texts_with(gram):
                held[part].update(range(place, place + int(items.rows.length[gram])))
    return held


def _span(row: Mapping[str, Any], items: Items, common: frozenset[int], part: int) -> str:
    """The stretch of the document that covers most of the part."""
    own = np.array(
        [
            (place, place + items.rows.length[gram] - 1)
            for gram, place in zip(row["gram"], row["place"], strict=True)
            if gram not in common and any(part == owner for owner, _ in items.rows.texts_with(gram))
        ]
    )
    runs = row["runs"]
    inside = [int(((own[:, 0] >= run["first"]) & (own[:, 1] <= run["last"])).sum()) for run in runs]
    ranked = [(held, run["first"] - run["last"]) for held, run in zip(inside, runs, strict=True)]
    return str(runs[ranked.index(max(ranked))]["text"])  # the shortest of those that hold most


def _rows(files: ShardFiles) -> list[dict[str, Any]]:
    return storage.read_table(required(files.leaks).path).to_pylist()
