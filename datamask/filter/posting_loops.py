"""The inner loops of laying out samples and finding who shares them; without the interpreter's lock."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled

WIDTH = 41  # bits of a document's number
INSERTED = 24  # values that are sorted by insertion, at most
DRAWER = 8  # hashes that are sorted together, about


@compiled
def by_hash(hashes, values):  # type: ignore[no-untyped-def]
    """(hashes, values), (n,) each, by ascending hash, uint64; of equal ones in the order given.

    Hashes are evenly spread: dealt to drawers of about DRAWER by their first bits, and sorted there.
    """
    number = len(hashes)
    found, along = np.empty(number, np.uint64), np.empty(number, values.dtype)
    if not number:
        return found, along
    least = most = hashes[0]
    for value in hashes:
        least, most = min(least, value), max(most, value)
    shift = np.uint64(0)
    while (most - least) >> shift > np.uint64(max(number // DRAWER, 1)):
        shift += np.uint64(1)
    ends = np.zeros(np.int64((most - least) >> shift) + 2, np.int64)
    for value in hashes:
        ends[np.int64((value - least) >> shift) + 1] += 1
    for drawer in range(1, len(ends)):
        ends[drawer] += ends[drawer - 1]
    for place in range(number):
        there = np.int64((hashes[place] - least) >> shift)
        found[ends[there]], along[ends[there]] = hashes[place], values[place]
        ends[there] += 1
    begin = np.int64(0)
    for drawer in range(len(ends) - 1):
        end = ends[drawer]
        if end - begin > INSERTED:
            order = np.argsort(found[begin:end], kind="mergesort")
            found[begin:end], along[begin:end] = found[begin:end][order], along[begin:end][order]
        else:
            for place in range(begin + 1, end):
                mine, with_it, at = found[place], along[place], place
                while at > begin and found[at - 1] > mine:
                    found[at], along[at] = found[at - 1], along[at - 1]
                    at -= 1
                found[at], along[at] = mine, with_it
        begin = end
    return found, along


@compiled
def sort_within(values, first):  # type: ignore[no-untyped-def]
    """Sorts each run of the values (n,), run r being values[first[r] : first[r + 1]]."""
    for run in range(len(first) - 1):
        begin, end = first[run], first[run + 1]
        if end - begin > INSERTED:
            values[begin:end] = np.sort(values[begin:end])
            continue
        for place in range(begin + 1, end):
            mine, at = values[place], place
            while at > begin and values[at - 1] > mine:
                values[at] = values[at - 1]
                at -= 1
            values[at] = mine


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
