"""The heuristic signals of a batch of documents: what the rules of `rules.py` are about, all counted at once.

Thresholds and definitions are datatrove's defaults (gopher_quality_filter.py, gopher_repetition_filter.py,
c4_filters.py, fineweb_quality_filter.py), the FineWeb recipe. A rule is applied to the document as it is: C4's
filter rewrites a document and the ones after it judge the rewritten one, while here nothing is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from datamask.quality import characters as ch
from datamask.quality.page_layout import PageLayout, Spans
from datamask.quality.repetition import DUPLICATED, TOP, duplicates, repeated_ngrams
from datamask.quality.rules import SIGNALS

_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")  # Gopher's
_POLICY = (b"terms of use", b"privacy policy", b"cookie policy", b"uses cookies", b"use of cookies", b"use cookies")
_ELLIPSIS = ord("…")


def compute(texts: Sequence[str]) -> np.ndarray:
    """(documents, signals) float32, columns in the order of `rules.SIGNALS`; NaN where a signal does not apply."""
    if not texts:
        return np.zeros((0, len(SIGNALS)), dtype=np.float32)
    layout, dots = PageLayout(texts), np.array([text.count("...") for text in texts])
    found = {**_words(layout), **_symbols(layout, dots), **_repetition(layout), **_c4(layout), **_fineweb(layout)}
    return np.stack([np.asarray(found[name], dtype=np.float32) for name in SIGNALS], axis=1)


def _ratio(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    return count / np.maximum(total, 1)


def _words(layout: PageLayout) -> dict[str, np.ndarray]:
    words, flags = layout.words, layout.word_flags
    real = (flags & ch.SYMBOL) == 0
    spaced = real & ((flags & ch.UNSPACED) == 0)
    spaced_count, real_count = words.sum(spaced), words.sum(real)
    # the length of a word says nothing where scripts without spaces prevail
    length = words.sum(words.length * spaced) / np.maximum(spaced_count, 1)
    hashes = layout.hashes(words)
    known = PageLayout(_STOP_WORDS)
    stop_words = np.zeros(len(words.count), dtype=np.int64)
    for stop_word in known.hashes(known.words):
        places = np.flatnonzero(hashes == stop_word)
        stop_words += np.diff(np.searchsorted(places, words.first)) > 0
    repeated = repeated_ngrams(words, hashes)
    return {
        "words": real_count,
        "word_length": np.where(spaced_count * 2 >= np.maximum(real_count, 1), length, np.nan),
        "words_with_letters": _ratio(words.sum((flags & ch.ALPHA) != 0), words.count),
        "stop_words": stop_words,
        "newlines_per_word": _ratio(layout.total(layout.points == 10), words.count),
        **{f"top_{n}_gram": _ratio(repeated[:, n], layout.characters) for n in TOP},
        **{f"duplicate_{n}_grams": _ratio(repeated[:, n], layout.characters) for n in DUPLICATED},
    }


def _symbols(layout: PageLayout, dots: np.ndarray) -> dict[str, np.ndarray]:
    """dots: (documents,) numbers of "..."."""
    points, words, lines = layout.points, layout.words.count, layout.split_lines
    start, end = layout.stripped(lines)
    first, last = points[start], points[end - 1]
    inked = end > start
    bullets = inked & ((first == ord("•")) | (first == ord("-")))
    trailing = inked & ((last == _ELLIPSIS) | _ends_in_dots(layout, start, end))
    return {
        "hashes_per_word": _ratio(layout.total(points == ord("#")), words),
        "ellipses_per_word": _ratio(layout.total(points == _ELLIPSIS) + dots, words),
        "bullet_lines": _ratio(lines.sum(bullets), lines.count),
        "ellipsis_lines": _ratio(lines.sum(trailing), lines.count),
    }


def _ends_in_dots(layout: PageLayout, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """(lines,) bool: the stripped line ends in "..."."""
    dot = layout.points == ord(".")
    return (end - start >= 3) & dot[end - 1] & dot[np.maximum(end - 2, 0)] & dot[np.maximum(end - 3, 0)]


def _repetition(layout: PageLayout) -> dict[str, np.ndarray]:
    paragraphs = layout.paragraphs
    paragraph_count, paragraph_characters = duplicates(paragraphs, layout.hashes(paragraphs))
    # re.split("\n+", text): the lines that are not empty, and an empty one at either end where a newline stands there
    lines = layout.lines.where(layout.lines.length > 0)
    line_count, line_characters = duplicates(lines, layout.hashes(lines))
    filled = layout.characters > 0
    empty_first = filled & (layout.points[layout.starts] == 10)
    empty_last = filled & (layout.points[layout.ends - 1] == 10)
    return {
        "duplicate_paragraphs": _ratio(paragraph_count, paragraphs.count),
        "duplicate_paragraph_characters": _ratio(paragraph_characters, layout.characters),
        "duplicate_lines": _ratio(
            line_count + (empty_first & empty_last), lines.count + empty_first.astype(int) + empty_last
        ),
        "duplicate_line_characters": _ratio(line_characters, layout.characters),
    }


def _c4(layout: PageLayout) -> dict[str, np.ndarray]:
    lines, chunks = layout.split_lines, layout.chunks
    number = lines.number_of(chunks.start)
    long_word = lines.number_of(chunks.start[chunks.length > 1000]) > 0
    filled = number > 0
    short = filled & (number < 3) & ~long_word
    kept = filled & ~long_word & ~short
    lower = np.minimum(layout.points, 0x80).astype(np.uint8).tobytes().lower()
    lorem_ipsum = kept & _lines_with(lower, (b"lorem ipsum",), lines)
    javascript = kept & _lines_with(lower, (b"javascript",), lines)
    kept &= ~javascript
    brackets = kept & (lines.number_of(np.flatnonzero(layout.points == ord("{"))) > 0)
    policy = kept & _lines_with(lower, _POLICY, lines)
    kept &= ~policy
    start, end = layout.stripped(lines)
    closing = layout.flags[end - 1] & (ch.TERMINAL | ch.QUOTE) != 0
    closing &= (end > start) & ~_ends_in_dots(layout, start, end)
    total = lines.sum(filled)
    return {
        "c4_lorem_ipsum": lines.sum(lorem_ipsum) > 0,
        "c4_curly_bracket": lines.sum(brackets) > 0,
        "c4_sentences": lines.sum(_sentences(layout, lines) * kept),
        "c4_short_lines": _ratio(lines.sum(short), total),
        "c4_long_word_lines": _ratio(lines.sum(long_word), total),
        "c4_javascript_lines": _ratio(lines.sum(javascript), total),
        "c4_policy_lines": _ratio(lines.sum(policy), total),
        "c4_unpunctuated": _ratio(lines.sum(filled & ~closing), total),
    }


def _lines_with(text: bytes, phrases: Sequence[bytes], lines: Spans) -> np.ndarray:
    """(lines,) bool: the line holds one of the phrases, whose bytes are all ASCII, one byte a code point."""
    places = sorted(match.start() for phrase in phrases for match in re.finditer(phrase, text))
    return lines.number_of(np.array(places, dtype=np.int64)) > 0


def _sentences(layout: PageLayout, lines: Spans) -> np.ndarray:
    """(lines,) sentences: one, and one more at each word that follows a word of sentence-ending punctuation alone."""
    words, flags = layout.words, layout.word_flags
    ends = ((flags & (ch.TERMINAL | ch.SYMBOL)) == (ch.TERMINAL | ch.SYMBOL)) & (words.length == 1)
    stops, real = words.start[ends], words.start[(flags & ch.SYMBOL) == 0]
    # a line's first word follows what stands before it in the line alone
    line = lines.start[np.searchsorted(lines.start, real, "right") - 1]
    before = np.maximum(np.append(0, real)[: len(real)], line)
    return 1 + lines.number_of(real[np.searchsorted(stops, real) > np.searchsorted(stops, before)])


def _fineweb(layout: PageLayout) -> dict[str, np.ndarray]:
    start, end = layout.stripped(layout.lines)
    lines = layout.lines.where(end > start)
    closing = (layout.flags[lines.end - 1] & ch.TERMINAL) != 0
    _, repeated = duplicates(lines, layout.hashes(lines))
    newlines = layout.total(layout.points == 10)
    return {
        "line_punctuation": _ratio(lines.sum(closing), lines.count),
        "short_lines": _ratio(lines.sum(lines.length <= 30), lines.count),
        "duplicate_characters": _ratio(repeated, layout.characters - newlines),
    }
