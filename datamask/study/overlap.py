"""Targets that stand in the pool: a model that has read the question says nothing by knowing it.

    kept, found = without_overlap(targets, texts, names)      # found: target -> items that stand in the pool

An item counts as found where 13 of its words stand in a row in a document (`filter.word_rows.WordRows`, which
`filter.decontaminate` goes by too); an item of 8 to 13 words where all of them do. Shorter ones are not looked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datamask.errors import InputError
from datamask.filter.word_rows import WordRows
from datamask.study.targets import LEAST_ITEMS, Target
from datamask.text.ngrams import hashed_words


@dataclass(frozen=True)
class Overlap:
    """Items of a target that stand in the pool, and the first of them with its document."""

    items: int
    of: int
    example: str
    document: str


def without_overlap(
    targets: Sequence[Target], texts: Sequence[bytes], names: Sequence[str]
) -> tuple[list[Target], dict[str, Overlap]]:
    """The targets without the items that stand in the pool; and what was found, by target.

    :param texts, names: the pool's documents and what to call them.
    :raises InputError: more than half of a target stands in the pool, or fewer than LEAST_ITEMS of it are left.
    """
    owners = [(place, number) for place, target in enumerate(targets) for number, _ in enumerate(target.items)]
    rows = WordRows([_text(item.whole) for target in targets for item in target.items])
    hits: dict[tuple[int, int], str] = {}
    first = 0
    for single, _, document, count in hashed_words(_text(text) for text in texts):
        gram, at = rows.find(single, document)
        for number, one in sorted({(int(of), int(g)) for g, of in zip(gram, document[at], strict=True)}):
            for item, _ in rows.texts_with(one):
                hits.setdefault(owners[item], names[first + number])
        first += count
    kept, found = [], {}
    for place, target in enumerate(targets):
        own = sorted(number for of, number in hits if of == place)
        if own:
            example = target.items[own[0]].whole.decode("utf-8", "replace")
            found[target.name] = Overlap(
                len(own), len(target.items), " ".join(example.split())[:80], hits[place, own[0]]
            )
        kept.append(_checked(target, own, found))
    return kept, found


def _checked(target: Target, own: Sequence[int], found: Mapping[str, Overlap]) -> Target:
    rest = tuple(item for number, item in enumerate(target.items) if number not in set(own))
    if own and (len(own) > len(target.items) / 2 or len(rest) < LEAST_ITEMS):
        told = found[target.name]
        raise InputError(
            f"target {target.name} stands in the pool: {told.items} of {told.of} items, the first, {told.example!r}, "
            f"in document {told.document}; a choice that holds it would win by memory, so name another target"
        )
    return replace(target, items=rest)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
