"""The inner loops of the content score, compiled by Numba: one pass each where arrays would be passed over many times.

A module of its own, so that importing `words` does not wait for the compiler.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.quality.batch_words import AT, BAR, BROKEN, CODE, DIGIT, EXCLAIM, JOINER, MARK, SINGLE, UPPER, WORD
from datamask.quality.characters import SPACE
from datamask.quality.measures import CHANCE


@compiled
def lay(points, table, flags, kinds, blank, start, end, is_word):  # type: ignore[no-untyped-def]
    """Fills kinds and blank (points,), and of each token where it starts and ends and whether it is a word.

    A word begins where the one before is none, or where a letter stands alone; a mark for itself begins always, but a
    run of the same mark is one. A joiner between two letters is of their word. Returns the number of tokens.
    """
    tokens, last = 0, len(points) - 1
    for at in range(len(points)):
        kinds[at] = table[points[at]]
        blank[at] = flags[points[at]] & SPACE != 0
    before = False  # whether the code point before is of a word
    for at in range(1, len(points)):
        kind, held = kinds[at], kinds[at - 1]
        word = kind & WORD != 0
        if kind & JOINER and held & WORD and kinds[min(at + 1, last)] & WORD:
            word = True
        if word:
            follows = before and not kind & SINGLE and not (held & SINGLE and not kind & MARK)
        else:
            follows = points[at] == points[at - 1]
        begins = not blank[at] and not follows
        if not blank[at - 1] and (begins or blank[at]):
            end[tokens - 1] = at
        if begins:
            start[tokens], is_word[tokens] = at, word
            tokens += 1
        before = word
    return tokens


@compiled
def mixed(value):  # type: ignore[no-untyped-def]
    """As `words.mix`."""
    value ^= value >> np.uint64(31)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(29)
    return value


@compiled
def hash_spans(points, folded, start, end, base, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) with hashes of the folded code points from start to end: polynomials in `base`."""
    for span in range(len(start)):
        total, power = np.uint64(0), np.uint64(1)
        for at in range(start[span], end[span]):
            total += (np.uint64(folded[points[at]]) + np.uint64(0x51ED270B)) * power
            power *= base
        found[span] = mixed(total)


@compiled
def characters(points, kinds, blank, meaning, byte, starts, ends, found):  # type: ignore[no-untyped-def]
    """Fills found (documents, 9) with numbers of code points: not blank, digits, of words, capitals, marks that shout,
    broken, separators, of programs; and places where UTF-8 was read as cp1252 or Latin-1."""
    last = len(points) - 1
    for document in range(len(starts)):
        ink, digits, letters, upper, shouts, broken, bars, code, misread = 0, 0, 0, 0, 0, 0, 0, 0, 0
        for at in range(starts[document], ends[document]):
            kind, point = kinds[at], points[at]
            means = meaning[point]
            ink += not blank[at]
            digits += kind & DIGIT != 0
            letters += kind & WORD != 0
            upper += kind & UPPER != 0
            shouts += EXCLAIM <= means <= AT
            broken += means == BROKEN
            bars += means == BAR
            code += means == CODE
            lead = byte[point]
            if 0xC2 <= lead <= 0xF4:  # a lead byte and as many others as belong to it
                good = True
                for step in range(1, 2 + (lead >= 0xE0) + (lead >= 0xF0)):
                    good &= 0x80 <= byte[points[min(at + step, last)]] < 0xC0
                misread += good
        found[document] = (ink, digits, letters, upper, shouts, broken, bars, code, misread)


@compiled
def around(mask, first, reach, found):  # type: ignore[no-untyped-def]
    """Fills found (tokens,): how many tokens up to `reach` away in the same document have mask (tokens,) true."""
    for document in range(len(first) - 1):
        low, high = first[document], first[document + 1]
        total = 0
        for at in range(low, min(low + reach, high)):
            total += mask[at]
        for at in range(low, high):
            if at + reach < high:
                total += mask[at + reach]
            if at - reach > low:
                total -= mask[at - reach - 1]
            found[at] = total


@compiled
def look_up(slots, shift, counts, keys, half, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) float32 with the counts of keys (n,), each in its own half (n,); see `character_ngrams.Table`.

    slots: (halves, 2**k) uint16; shift: 64 − k; counts: (64,).
    """
    for at in range(len(keys)):
        key = keys[at]
        held = slots[half[at], np.int64(key >> shift)]
        same = (held >> np.uint16(6)) == np.uint16(key & np.uint64(0x3FF))
        found[at] = counts[held & np.uint16(63)] if same else counts[0]


@compiled
def known_pairs(apart, first, left, right, before, after, half, pair, place, keys, halves, number):  # type: ignore[no-untyped-def]
    """Fills place, keys and halves with the tokens that have another `apart` places further in their document, both of
    them known; and number (documents,) with how many each has. Returns how many there are.

    left, right: (tokens,) keys of the first and the second of a pair; before, after: their counts, 0 if not known.
    """
    filled = 0
    for document in range(len(first) - 1):
        begun = filled
        for here in range(first[document], first[document + 1] - apart):
            there = here + apart
            if before[here] > 0 and after[there] > 0:
                place[filled], halves[filled] = here, half[here]
                keys[filled] = mixed(left[here] * pair + right[there])
                filled += 1
        number[document] = filled - begun
    return filled


@compiled
def lifts(apart, place, before, after, both, size, strength):  # type: ignore[no-untyped-def]
    """Turns `both` (n,), how often pairs occur, into P(second | first) / P(second), the former smoothed towards the
    latter. All are float32; strength: pseudo-counts."""
    for at in range(len(place)):
        here = place[at]
        first, second = before[here], after[here + apart]
        chance = min(second / size[here], CHANCE)
        both[at] = (both[at] / chance + strength) / (first + strength)
