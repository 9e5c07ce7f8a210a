"""Gopher's repetition measures: duplicated lines, and characters in repeated n-grams of words.

Rae et al. 2021 (arXiv 2112.11446), table A1, computed as datatrove does (gopher_repetition_filter.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datamask.quality.page_layout import Spans

TOP = (2, 3, 4)
DUPLICATED = (5, 6, 7, 8, 9, 10)

_mixer = np.random.default_rng(0x6772616D)  # constants of the n-gram hashes; any odd numbers do
_PLACE = _mixer.integers(1 << 62, size=max(DUPLICATED), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_DOCUMENT = np.uint64(0xD6E8FEB86659FD93)


def duplicates(pieces: Spans, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pieces equal to an earlier one of their document: how many, and their characters; each (documents,) int64."""
    documents = len(pieces.first) - 1
    keys = hashes + pieces.document.astype(np.uint64) * _DOCUMENT
    order = np.argsort(keys)
    repeated = order[1:][keys[order[1:]] == keys[order[:-1]]]
    document = pieces.document[repeated]
    return (
        np.bincount(document, minlength=documents),
        np.bincount(document, weights=pieces.length[repeated], minlength=documents).astype(np.int64),
    )


@dataclass
class _Grams:
    """The n-grams that occur more than once in their document: where each occurrence starts, and which it is."""

    position: np.ndarray  # (m,) int64, ascending: index of the first word
    key: np.ndarray  # (m,) uint64: equal n-grams of a document, equal keys
    group: np.ndarray  # (m,) int64: the same, numbered from 0


def repeated_ngrams(words: Spans, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Characters of each document in its most frequent n-gram, and in n-grams that repeat an earlier one.

    :return: (documents, 3) for n = 2, 3, 4 with the spaces between words; (documents, 6) for n = 5 … 10 without,
        counted from left to right, each repeat skipped over; both int64.
    """
    documents = len(words.first) - 1
    document, last = words.document, words.first[1:]
    letters = np.concatenate([[0], np.cumsum(words.length)])
    top = np.zeros((documents, len(TOP)), dtype=np.int64)
    duplicated = np.zeros((documents, len(DUPLICATED)), dtype=np.int64)
    position = np.arange(len(hashes))
    key = hashes * _PLACE[0] + document.astype(np.uint64) * _DOCUMENT
    for n in range(2, max(DUPLICATED) + 1):
        # an n-gram that repeats starts with an (n − 1)-gram that repeats: only those are looked at
        inside = position + n <= last[document[position]]
        position, key = position[inside], key[inside]
        key = key + hashes[position + n - 1] * _PLACE[n - 1]
        grams = _repeats(position, key)
        position, key = grams.position, grams.key
        if n in TOP:
            top[:, TOP.index(n)] = _most_frequent(grams, n, words, document, letters)
        elif n in DUPLICATED:
            starts = _from_left_to_right(grams, n)
            sizes = letters[starts + n] - letters[starts]
            counted = np.bincount(document[starts], weights=sizes, minlength=documents)
            duplicated[:, DUPLICATED.index(n)] = counted.astype(np.int64)
    return top, duplicated


def _repeats(position: np.ndarray, key: np.ndarray) -> _Grams:
    order = np.argsort(key)
    ordered = key[order]
    same = ordered[1:] == ordered[:-1]
    member = np.zeros(len(key), dtype=bool)
    member[1:] = same
    member[:-1] |= same
    order, ordered = order[member], ordered[member]
    group = np.zeros(len(order), dtype=np.int64)
    group[1:] = np.cumsum(ordered[1:] != ordered[:-1])
    appearance = np.argsort(position[order])
    return _Grams(position[order[appearance]], ordered[appearance], group[appearance])


def _most_frequent(grams: _Grams, n: int, words: Spans, document: np.ndarray, letters: np.ndarray) -> np.ndarray:
    """(documents,) characters of all occurrences of the most frequent n-gram; of equally frequent ones, the first."""
    first, counts = words.first[:-1].copy(), np.where(words.count >= n, 1, 0)
    if len(grams.position):
        times = np.bincount(grams.group)
        where = np.full(len(times), len(document), dtype=np.int64)
        np.minimum.at(where, grams.group, grams.position)
        best = np.lexsort((-where, times, document[where]))  # by document, the last of each is the one
        final = best[np.append(np.diff(document[where[best]]) > 0, True)]
        first[document[where[final]]], counts[document[where[final]]] = where[final], times[final]
    end = np.minimum(first + n, len(document))
    return (letters[end] - letters[np.minimum(first, len(document))] + n - 1) * counts


def _from_left_to_right(grams: _Grams, n: int) -> np.ndarray:
    """Starts of the n-grams that were seen before, where a repeat is skipped as a whole."""
    seen: set[int] = set()
    starts: list[int] = []
    free = 0
    for position, group in zip(grams.position.tolist(), grams.group.tolist(), strict=True):
        if position < free:
            continue
        if group in seen:
            starts.append(position)
            free = position + n
        else:
            seen.add(group)
    return np.array(starts, dtype=np.int64)
