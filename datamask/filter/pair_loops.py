"""The inner loops of pairing documents and comparing texts and samples; without the interpreter's lock, so that threads
compare at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, slot_of
from datamask.text.letters import WINDOW

WIDTH = 41  # bits of a document's number
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # xxHash's primes
PRIME = np.uint64(0x100000001B3)  # FNV's
A_WORD = 4  # letters: more than one Han letter counts for
AROUND = 2  # letters on either side by which shorter places are compared


@compiled
def codes_of_meetings(document, key, first, most, parts, found, part):  # type: ignore[no-untyped-def]
    """Returns how many pairs meet at shingles, of which run r is document[first[r] : first[r + 1]], and fills found
    with the codes (`duplicate_candidates.PairCodes`) of as many as it has room for, and part with their parts.

    A document is paired with the `most` first ones of its run, and with as many next before it; one of two has the
    shingle as a key.
    """
    number, room = 0, len(found)
    for run in range(len(first) - 1):
        begin, end = first[run], first[run + 1]
        keyed = False
        for place in range(begin, end):
            keyed |= key[place]
        if not keyed:
            continue
        for place in range(begin + 1, end):
            last = min(place, begin + most)  # of the first ones
            skipped = max(last, place - most) - last
            for other in range(begin, place - skipped):
                other += skipped * (other >= last)
                if not (key[place] or key[other]):
                    continue
                if number < room:
                    a, b = np.uint64(document[place]), np.uint64(document[other])
                    found[number] = min(a, b) // np.uint64(parts) << np.uint64(WIDTH) | max(a, b)
                    part[number] = min(a, b) % np.uint64(parts)
                number += 1
    return number


@compiled
def in_common(one, other):  # type: ignore[no-untyped-def]
    """How many values two ascending arrays, each value once, have in common."""
    a = b = common = 0
    while a < len(one) and b < len(other):
        x, y = one[a], other[b]
        common += x == y  # without branches, which nobody could foretell
        a += x <= y
        b += y <= x
    return common


@compiled
def shared_by_pairs(values, bounds, one, values_other, bounds_other, other, found):  # type: ignore[no-untyped-def]
    """(P,) int64: how many values the runs of each pair have in common; fills found with as many as it has room for,
    pair by pair.

    Run r of ascending values, each once, is values[bounds[r, 0] : bounds[r, 1]]; run −1 is empty.
    """
    common, filled = np.zeros(len(one), np.int64), 0
    for pair in range(len(one)):
        a, b = one[pair], other[pair]
        if a < 0 or b < 0:
            continue
        here, there, before = bounds[a, 0], bounds_other[b, 0], filled
        while here < bounds[a, 1] and there < bounds_other[b, 1]:
            x, y = values[here], values_other[there]
            if filled < len(found):
                found[filled] = x  # stays where it is in both, else the next takes its place
            filled += x == y  # without branches, which nobody could foretell
            here += x <= y
            there += y <= x
        common[pair] = filled - before
    return common


@compiled
def held_by_both(one, other, mine, theirs):  # type: ignore[no-untyped-def]
    """How many values two ascending arrays, each value once, have in common; mine and theirs, bool, say which."""
    mine[: len(one)], theirs[: len(other)] = False, False
    a = b = common = 0
    while a < len(one) and b < len(other):
        x, y = one[a], other[b]
        same = x == y
        mine[a], theirs[b] = same, same  # one that is not passed yet is asked again
        common += same
        a += x <= y
        b += y <= x
    return common


@compiled
def missing_runs(numbers, held, letters, window):  # type: ignore[no-untyped-def]
    """(R, 2) int64: where the letters begin and end that each run of windows missing elsewhere stands for.

    A word put in breaks window − 1 windows and adds as many as it has letters: a run of r windows stands for
    r − window + 1 letters, at either end of the text for r. They may be none: the end is then the begin.

    numbers: (W,) of a text's windows, in order, which of its shingles they are; held: bool, which of these the other
    text has; letters: how many the text has.
    """
    runs, found, inside = 0, np.empty((len(numbers) // 2 + 1, 2), np.int64), False
    for place in range(len(numbers) + 1):
        missing = False
        if place < len(numbers):
            missing = not held[numbers[place]]
        if missing and not inside:
            found[runs, 0] = place + window - 1 if place else 0
        elif inside and not missing:
            found[runs, 1] = max(place if place < len(numbers) else letters, found[runs, 0])
            runs += 1
        inside = missing
    return found[:runs].copy()


@compiled
def measured(units, runs, word, around, found):  # type: ignore[no-untyped-def]
    """Fills found (4,): how many runs, (R, 2), there are; of a text's letters, (U,) code points, how many lie in them
    and in the longest; what share of the runs is `repeated`, of words or of any with what is around.

    word: letters of a run that may be one; around: letters on either side.
    """
    letters, longest = 0, 0
    for run in range(len(runs)):
        length = runs[run, 1] - runs[run, 0]
        letters, longest = letters + length, max(longest, length)
    found[0], found[1], found[2] = len(runs), letters, longest
    found[3] = max(repeated(units, runs, word, 0), repeated(units, runs, 1, around))


@compiled
def likeness_doubled(shingles, one, shingles_other, other, window):  # type: ignore[no-untyped-def]
    """The Jaccard of two texts by shingles of 24 letters, which say as much as five words; a shorter text keeps those
    of 12.

    A word put in breaks as many of them as of MinHash's 5-grams of words, so that a share of these says the same.

    shingles, one: a text's as `held_texts.numbered` has them, and the other's; window: how many letters each has.
    """
    sizes, common = np.zeros(2, np.int64), 0
    table, taken = empty_set(len(one))
    theirs, also = empty_set(len(other))
    for side in range(2):
        numbers, hashes = (other, shingles_other) if side else (one, shingles)
        further = window if len(numbers) > window else 0
        for place in range(len(numbers) - further):
            value = np.uint64(hashes[numbers[place]])
            if further:
                value = value * FIRST ^ np.uint64(hashes[numbers[place + further]]) * SECOND
            slot = slot_of(table, taken, value)
            if side == 0:
                sizes[0] += not taken[slot]
                table[slot], taken[slot] = value, True
                continue
            place_there = slot_of(theirs, also, value)
            if not also[place_there]:
                theirs[place_there], also[place_there] = value, True
                sizes[1] += 1
                common += taken[slot]
    return common / (sizes[0] + sizes[1] - common) if sizes[0] and sizes[1] else 0.0


@compiled
def rolled(units, begin, end, value):  # type: ignore[no-untyped-def]
    """A hash, uint64, of a text's letters from begin to end, which goes on from a value."""
    for place in range(begin, end):
        value = value * PRIME + np.uint64(units[place])
    return value


@compiled
def repeated(units, runs, least, around):  # type: ignore[no-untyped-def]
    """Of the runs (R, 2) of at least so many letters, the share that are equal to one before, with so many letters on
    either side; 0 if there is none. units: (U,) of the text.
    """
    table, taken = empty_set(len(runs))
    number = again = 0
    for run in range(len(runs)):
        begin, end = runs[run, 0], runs[run, 1]
        if end - begin < least:
            continue
        number += 1
        begin, end = max(0, begin - around), min(end + around, len(units))
        value = rolled(units, begin, end, np.uint64(end - begin))
        at = slot_of(table, taken, value)
        again += taken[at]
        table[at], taken[at] = value, True
    return 1 - (number - again) / number if number else 0.0


class Texts(NamedTuple):
    """Texts one after another, see `held_texts.numbered`."""

    numbers: np.ndarray
    shingles: np.ndarray
    units: np.ndarray
    first: np.ndarray  # (texts + 1, 3), where each text's of these begin


class Asked(NamedTuple):
    """Likeness from which more is asked of a pair."""

    strong: float  # Jaccard
    least: float  # Jaccard
    contained: float  # containment


@compiled
def side_by_side(texts, one, other, asked, likes, found):  # type: ignore[no-untyped-def]
    """Fills likes (P, 2) with how many shingles the texts of each pair have in common, and, where their Jaccard is
    `strong`, with `likeness_doubled`, else nan; found (P, 2, 4) with what is `measured` of what each has of its own,
    where their Jaccard is `least` or their containment `contained`, else nan.

    texts: `Texts`; one, other: (P,) their numbers; asked: `Asked`.
    """
    numbers, shingles, units, first = texts
    strong, least, contained = asked
    most = 0
    for text in range(len(first) - 1):
        most = max(most, first[text + 1, 1] - first[text, 1])
    held = np.empty(most, np.bool_), np.empty(most, np.bool_)
    for pair in range(len(one)):
        a, b = one[pair], other[pair]
        mine, theirs = shingles[first[a, 1] : first[a + 1, 1]], shingles[first[b, 1] : first[b + 1, 1]]
        common = held_by_both(mine, theirs, held[0], held[1])
        likes[pair, 0], likes[pair, 1] = common, np.nan
        found[pair] = np.nan
        if not len(mine) or not len(theirs):
            continue
        jaccard = common / (len(mine) + len(theirs) - common)
        if jaccard >= strong:
            windows = numbers[first[a, 0] : first[a + 1, 0]], numbers[first[b, 0] : first[b + 1, 0]]
            likes[pair, 1] = likeness_doubled(mine, windows[0], theirs, windows[1], WINDOW)
        if jaccard >= least or common / min(len(mine), len(theirs)) >= contained:
            for side in range(2):
                text = b if side else a
                letters = units[first[text, 2] : first[text + 1, 2]]
                windows_of = numbers[first[text, 0] : first[text + 1, 0]]
                runs = missing_runs(windows_of, held[side], len(letters), WINDOW)
                measured(letters, runs, A_WORD, AROUND, found[pair, side])
