"""The inner loops of `ngrams`, compiled by Numba: hashes of words, and their counts.

They are a module of their own so that importing `ngrams` does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled

SEPARATOR, WORD, ALONE = 0, 1, 2  # kinds of character, as `ngrams` has them


@compiled
def mix_bits(value):  # type: ignore[no-untyped-def]
    """splitmix64's finaliser (Steele, Lea & Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def hash_words(points, ends, lower, kind, factors, single, pair, document):  # type: ignore[no-untyped-def]
    """Fills `single` with the words' hashes, `pair` with those of each word and the next, `document` with their texts.

    Returns the number of words. points: (C,) uint32 code points of all texts, one after the other; ends: (texts,) where
    each ends. factors: of the polynomial of a word's code points, the first one's power being 0; and of the first and
    the second word of a pair. pair[n] combines words n and n + 1 even if these are of two texts.
    """
    base, first, second = factors
    last = np.uint32(len(kind) - 1)
    words, start = 0, 0
    for text in range(len(ends)):
        total, power, open_ = np.uint64(0), np.uint64(1), False
        for at in range(start, ends[text]):
            point = min(points[at], last)
            of = kind[point]
            if open_ and of != WORD:
                single[words], document[words] = mix_bits(total), text
                words += 1
                open_ = False
            if of != SEPARATOR:
                if not open_:
                    total, power = np.uint64(0), np.uint64(1)
                total += mix_bits(np.uint64(lower[point]) + np.uint64(1)) * power
                power *= base
                open_ = True
                if of == ALONE:
                    single[words], document[words] = mix_bits(total), text
                    words += 1
                    open_ = False
        if open_:
            single[words], document[words] = mix_bits(total), text
            words += 1
        start = ends[text]
    for word in range(words - 1):
        pair[word] = mix_bits(single[word] * first + single[word + 1] * second)
    return words


@compiled
def count_words(single, pair, document, texts, buckets, starts, columns, values):  # type: ignore[no-untyped-def]
    """Fills one sparse row of counts for each text, columns ascending; returns the number of entries.

    starts: (texts + 1,); columns and values must have room for all entries.
    """
    counts, marks = np.zeros(buckets, np.float32), np.zeros((buckets + 63) // 64, np.uint64)
    word, filled, many = 0, 0, np.uint64(buckets)
    for text in range(texts):
        while word < len(single) and document[word] == text:
            bucket = np.int64(single[word] % many)
            marks[bucket >> 6] |= np.uint64(1) << np.uint64(bucket & 63)
            counts[bucket] += 1
            if word + 1 < len(single) and document[word + 1] == text:
                bucket = np.int64(pair[word] % many)
                marks[bucket >> 6] |= np.uint64(1) << np.uint64(bucket & 63)
                counts[bucket] += 1
            word += 1
        for block in range(len(marks)):  # the buckets met, in ascending order without sorting them
            mark, column = marks[block], block << 6
            marks[block] = 0
            while mark:
                if mark & np.uint64(1):
                    columns[filled], values[filled] = column, counts[column]
                    counts[column] = 0
                    filled += 1
                mark >>= np.uint64(1)
                column += 1
        starts[text + 1] = filled
    return filled
