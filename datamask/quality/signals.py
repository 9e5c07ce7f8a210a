"""The heuristic signals of a batch of documents: what the rules of `rules.py` are about, all counted at once.

Thresholds and definitions are datatrove's defaults (gopher_quality_filter.py, gopher_repetition_filter.py,
c4_filters.py, fineweb_quality_filter.py), the FineWeb recipe. A rule is applied to the document as it is: C4's
filter rewrites a document and the ones after it judge the rewritten one, while here nothing is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, set_of, slot_of
from datamask.quality.rules import SIGNALS
from datamask.text import characters as ch
from datamask.text.rule_words import RuleWords

_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")  # Gopher's
_LOREM_IPSUM, _JAVASCRIPT = (b"lorem ipsum",), (b"javascript",)
_POLICY = (b"terms of use", b"privacy policy", b"cookie policy", b"uses cookies", b"use of cookies", b"use cookies")
_LONG = 1000  # characters of a word
TOP, DUPLICATED = (2, 3, 4), (5, 6, 7, 8, 9, 10)  # Gopher's n
LEAST, MOST = TOP[0], DUPLICATED[-1]
_FACTORS = np.random.default_rng(0x6772616D).integers(1 << 62, size=MOST, dtype=np.uint64) * 2 + 1  # any odd numbers do


def compute(texts: Sequence[str]) -> np.ndarray:
    """(documents, signals) float32, columns in the order of `rules.SIGNALS`; NaN where a signal does not apply."""
    if not texts:
        return np.zeros((0, len(SIGNALS)), dtype=np.float32)
    words, lines = RuleWords(texts), [text.splitlines(keepends=True) for text in texts]
    each = zip(texts, lines, words.count.tolist(), sentences_of_lines(words, lines), strict=True)
    rows = [
        _symbols(text, split, number) | _repetition(text) | _c4(text, split, sentences) | _fineweb(text)
        for text, split, number, sentences in each
    ]
    found = _words(words, np.array([max(len(text), 1) for text in texts]))
    found |= {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return np.stack([np.asarray(found[name], dtype=np.float32) for name in SIGNALS], axis=1)


def _ratio(count: float, total: int) -> float:
    return count / max(total, 1)


def _words(words: RuleWords, characters: np.ndarray) -> dict[str, np.ndarray]:
    """characters: (documents,) numbers of them, 1 of an empty one."""
    real = (words.flags & ch.SYMBOL) == 0
    spaced = real & ((words.flags & ch.UNSPACED) == 0)
    spaced_count, real_count = words.sum(spaced), words.sum(real)
    # the length of a word says nothing where scripts without spaces prevail
    length = words.sum(words.length * spaced) / np.maximum(spaced_count, 1)
    stop_words = [words.sum(words.hashes == stop_word) > 0 for stop_word in _stop_words()]
    repeated = repeated_ngrams(words)
    return {
        "words": real_count,
        "word_length": np.where(spaced_count * 2 >= np.maximum(real_count, 1), length, np.nan),
        "words_with_letters": words.sum((words.flags & ch.ALPHA) != 0) / np.maximum(words.count, 1),
        "stop_words": np.sum(stop_words, axis=0),
        **{f"top_{n}_gram": repeated[:, n] / characters for n in TOP},
        **{f"duplicate_{n}_grams": repeated[:, n] / characters for n in DUPLICATED},
    }


@cache
def _stop_words() -> np.ndarray:
    """Their hashes."""
    return RuleWords(_STOP_WORDS).hashes


@cache
def _terminal() -> frozenset[str]:
    """The characters that end a sentence."""
    return frozenset(map(chr, np.flatnonzero(ch.tables().flags & ch.TERMINAL)))


def _symbols(text: str, lines: Sequence[str], words: int) -> dict[str, float]:
    """lines: of `str.splitlines`; words: how many."""
    stripped = [line.strip() for line in lines]
    return {
        "newlines_per_word": _ratio(text.count("\n"), words),
        "hashes_per_word": _ratio(text.count("#"), words),
        "ellipses_per_word": _ratio(text.count("…") + text.count("..."), words),
        "bullet_lines": _ratio(sum(line.startswith(("•", "-")) for line in stripped), len(lines)),
        "ellipsis_lines": _ratio(sum(line.endswith(("…", "...")) for line in stripped), len(lines)),
    }


def _repetition(text: str) -> dict[str, float]:
    paragraphs = re.split(r"\n\n+", text.strip())
    edges = text.startswith("\n") + text.endswith("\n")
    lines = [line for line in text.split("\n") if line] + [""] * edges  # re.split(r"\n+", text), which is slow
    (paragraph_count, paragraph_characters), (line_count, line_characters) = map(duplicates, (paragraphs, lines))
    return {
        "duplicate_paragraphs": _ratio(paragraph_count, len(paragraphs)),
        "duplicate_paragraph_characters": _ratio(paragraph_characters, len(text)),
        "duplicate_lines": _ratio(line_count, len(lines)),
        "duplicate_line_characters": _ratio(line_characters, len(text)),
    }


def duplicates(pieces: Sequence[str]) -> tuple[int, int]:
    """Of pieces equal to an earlier one: how many, and their characters."""
    distinct = set(pieces)
    return len(pieces) - len(distinct), sum(map(len, pieces)) - sum(map(len, distinct))


def _c4(text: str, lines: Sequence[str], sentences: Sequence[int]) -> dict[str, float]:
    """lines: of `str.splitlines`, each with its number of sentences."""
    terminal, folded = _terminal(), _fold(text)
    filled = [(line, words, number) for line, number in zip(lines, sentences, strict=True) if (words := line.split())]
    lasts = [words[-1] for _, words, _ in filled]
    closed = sum((word[-1] in terminal or word[-1] in "\"'") and not word.endswith("...") for word in lasts)
    short_words = [one for one in filled if len(one[0]) <= _LONG or max(map(len, one[1])) <= _LONG]
    long = [(line, number) for line, words, number in short_words if len(words) >= 3]
    kept = _without(_JAVASCRIPT, long, folded)
    clean = _without(_POLICY, kept, folded)
    return {
        "c4_lorem_ipsum": len(_without(_LOREM_IPSUM, long, folded)) < len(long),
        "c4_curly_bracket": "{" in text and any("{" in line for line, _ in kept),
        "c4_sentences": sum(number for _, number in clean),
        "c4_short_lines": _ratio(len(short_words) - len(long), len(filled)),
        "c4_long_word_lines": _ratio(len(filled) - len(short_words), len(filled)),
        "c4_javascript_lines": _ratio(len(long) - len(kept), len(filled)),
        "c4_policy_lines": _ratio(len(kept) - len(clean), len(filled)),
        "c4_unpunctuated": _ratio(len(filled) - closed, len(filled)),
    }


def _without(phrases: Sequence[bytes], lines: list[tuple[str, int]], folded: bytes) -> list[tuple[str, int]]:
    """The lines that hold none of the phrases. folded: the text that they are of, see `_fold`."""
    there = [phrase for phrase in phrases if phrase in folded]
    return [one for one in lines if not any(phrase in _fold(one[0]) for phrase in there)] if there else lines


def _fold(text: str) -> bytes:
    """With ASCII's letters in lower case."""
    return text.encode("utf-8", "surrogatepass").lower()


def sentences_of_lines(words: RuleWords, lines: Sequence[Sequence[str]]) -> list[list[int]]:
    """Of each document's lines the numbers of sentences: one, and one more at each word that follows a word of
    sentence-ending punctuation alone.

    lines: of each document, with their ends.
    """
    document = np.repeat(np.arange(len(lines)), [len(of_document) for of_document in lines])
    sizes = np.array([len(line) for of_document in lines for line in of_document], np.int64)
    begins = 1 + document + np.cumsum(sizes) - sizes  # a code point stands between two documents
    symbol = (words.flags & ch.SYMBOL) != 0
    ends = symbol & (words.flags & ch.TERMINAL != 0) & (words.length == 1)
    stops, real = words.start[ends], words.start[~symbol]
    line = np.searchsorted(begins, real, "right") - 1
    # a line's first word follows what stands before it in the line alone
    before = np.maximum(np.append(0, real)[: len(real)], begins[line])
    follows = np.searchsorted(stops, real) > np.searchsorted(stops, before)
    found = 1 + np.bincount(line[follows], minlength=len(begins))
    return [part.tolist() for part in np.split(found, np.searchsorted(document, np.arange(1, len(lines))))]


def _fineweb(text: str) -> dict[str, float]:
    lines = [line for line in text.split("\n") if line.strip()]
    _, repeated = duplicates(lines)
    return {
        "line_punctuation": _ratio(sum(line[-1] in _terminal() for line in lines), len(lines)),
        "short_lines": _ratio(sum(len(line) <= 30 for line in lines), len(lines)),
        "duplicate_characters": _ratio(repeated, len(text) - text.count("\n")),
    }


def repeated_ngrams(words: RuleWords) -> np.ndarray:
    """Gopher's repeated n-grams (table A1), as datatrove counts them.

    (documents, MOST + 1) int64, a column for each n: characters in the most frequent n-gram for n of TOP, with the
    spaces between words; for n of DUPLICATED in n-grams that repeat an earlier one, without, counted from left to
    right, each repeat skipped over.
    """
    found = np.zeros((len(words.first) - 1, MOST + 1), np.int64)
    count_repeats(words.first, words.length, words.hashes, _FACTORS, found)
    return found


@compiled
def count_repeats(first, lengths, hashes, places, found):  # type: ignore[no-untyped-def]
    """Fills found with `repeated_ngrams`. places: (MOST,) odd factors of an n-gram's words."""
    for document in range(len(found)):
        low, size = first[document], first[document + 1] - first[document]
        keys = hashes[low : low + size] * places[0]
        letters = np.zeros(size + 1, np.int64)
        letters[1:] = np.cumsum(lengths[low : low + size])
        for n in range(LEAST, min(MOST, size) + 1):
            keys = keys[: size - n + 1]
            for at in range(len(keys)):
                keys[at] += hashes[low + at + n - 1] * places[n - 1]
            if n in TOP:
                found[document, n] = of_most_frequent(keys, letters, n)
            else:
                found[document, n] = of_repeats(keys, letters, n)


@compiled
def of_most_frequent(keys, letters, n):  # type: ignore[no-untyped-def]
    """Characters of all occurrences of the most frequent n-gram; of equally frequent ones, the first."""
    table, taken = set_of(keys)
    slots, times = np.empty(len(keys), np.int64), np.zeros(len(table), np.int64)
    for at in range(len(keys)):
        slots[at] = slot_of(table, taken, keys[at])
        times[slots[at]] += 1
    best = np.argmax(times[slots])
    return (letters[best + n] - letters[best] + n - 1) * times[slots[best]]


@compiled
def of_repeats(keys, letters, n):  # type: ignore[no-untyped-def]
    """Characters of the n-grams that were seen before, where a repeat is skipped as a whole."""
    table, taken = empty_set(len(keys))
    total = free = 0
    for at in range(len(keys)):
        if at >= free:
            slot = slot_of(table, taken, keys[at])
            if taken[slot]:
                total += letters[at + n] - letters[at]
                free = at + n
            table[slot], taken[slot] = keys[at], True
    return total
