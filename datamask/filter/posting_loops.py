"""The inner loops of laying out samples and finding who shares them; without the interpreter's lock."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled

WIDTH = 41  # bits of a document's number
INSERTED = 24  # values that are sorted by insertion, at most
DRAWER = 8  # hashes that are sorted together, about


@compiled
def within_scales(lengths, hashes, bounds, found):  # type: ignore[no-untyped-def]
    """Fills found (n, scales) with how many hashes of each sample are not above each scale's bound, (scales,) uint64.

    lengths: (n,) of the samples; hashes: theirs, one after another.
    """
    begin = 0
    for document in range(len(lengths)):
        end = begin + lengths[document]
        for scale in range(len(bounds)):
            count = 0
            for place in range(begin, end):
                count += hashes[place] <= bounds[scale]
            found[document, scale] = min(count, 0xFFFF)
        begin = end


@compiled
def flagged(lengths, keys, found):  # type: ignore[no-untyped-def]
    """Fills found (H,) with documents' numbers · 2, + 1 for the first `keys` of each sample; lengths: (n,) of these."""
    place = 0
    for document in range(len(lengths)):
        for rank in range(lengths[document]):
            found[place] = 2 * document + (rank < keys)
            place += 1


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
def several(hashes, values):  # type: ignore[no-untyped-def]
    """(hashes, values; where each run of equal hashes begins and the last ends) of the ascending hashes, (n,), that are
    there twice or more."""
    found, along = np.empty_like(hashes), np.empty_like(values)
    starts = np.empty(len(hashes) // 2 + 1, np.int64)
    filled = runs = begin = 0
    while begin < len(hashes):
        end = begin + 1
        while end < len(hashes) and hashes[end] == hashes[begin]:
            end += 1
        if end - begin > 1:
            starts[runs] = filled
            runs += 1
            for place in range(begin, end):
                found[filled], along[filled] = hashes[place], values[place]
                filled += 1
        begin = end
    starts[runs] = filled
    return found[:filled].copy(), along[:filled].copy(), starts[: runs + 1].copy()


@compiled
def different(hashes, values):  # type: ignore[no-untyped-def]
    """(hashes, each once; how many different values, int64, each has) of ascending hashes and their values, (n,)."""
    found, counts = np.empty_like(hashes), np.empty(len(hashes), np.int64)
    runs = begin = 0
    while begin < len(hashes):
        end = begin + 1
        while end < len(hashes) and hashes[end] == hashes[begin]:
            end += 1
        count = 0
        if end - begin > INSERTED:
            ordered = np.sort(values[begin:end])
            for place in range(len(ordered)):
                count += place == 0 or ordered[place] != ordered[place - 1]
        else:
            for place in range(begin, end):
                before = begin
                while values[before] != values[place]:
                    before += 1
                count += before == place
        found[runs], counts[runs] = hashes[begin], count
        runs, begin = runs + 1, end
    return found[:runs].copy(), counts[:runs].copy()


@compiled
def by_document(documents, hashes, apart):  # type: ignore[no-untyped-def]
    """(documents, ascending, each once; where the hashes of each begin and end; hashes by document, of each in the
    order given). documents, hashes: (n,); any two documents differ by a multiple of `apart`.
    """
    least = most = np.int64(0)
    for place, document in enumerate(documents):
        if place == 0:
            least = most = np.int64(document)
        least, most = min(least, np.int64(document)), max(most, np.int64(document))
    ends = np.zeros((most - least) // apart + 2, np.int64)
    for document in documents:
        ends[(np.int64(document) - least) // apart + 1] += 1
    held = 0
    for place in range(1, len(ends)):
        held += ends[place] > 0
        ends[place] += ends[place - 1]
    found, filled = np.empty(len(hashes), np.uint64), ends.copy()
    for place in range(len(hashes)):
        drawer = (np.int64(documents[place]) - least) // apart
        found[filled[drawer]] = hashes[place]
        filled[drawer] += 1
    each, bounds, many = np.empty(held, np.int64), np.empty((held, 2), np.int64), 0
    for drawer in range(len(ends) - 1):
        if ends[drawer + 1] > ends[drawer]:
            each[many], bounds[many, 0], bounds[many, 1] = least + drawer * apart, ends[drawer], ends[drawer + 1]
            many += 1
    return each, bounds, found


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


@compiled
def met_often(codes, part, parts, scale, sampled, room, found):  # type: ignore[no-untyped-def]
    """Returns how many pairs are twice or more among these codes, (n,) uint64 ascending, or once where the samples have
    less room than that for what they may have in common; fills found with their codes, each once.

    scale, sampled: see `postings.SeenDocuments`.
    """
    number = at = 0
    while at < len(codes):
        code = codes[at]
        several = at + 1 < len(codes) and codes[at + 1] == code
        if not several:
            one = np.int64(code >> np.uint64(WIDTH)) * parts + part
            other = np.int64(code & np.uint64((1 << WIDTH) - 1))
            both = max(scale[one], scale[other])
            several = min(sampled[one, both], sampled[other, both]) < room
        found[number] = code
        number += several
        while at < len(codes) and codes[at] == code:
            at += 1
    return number


@compiled
def places_among(ascending, values):  # type: ignore[no-untyped-def]
    """(n,) int64: where each value, (n,) uint64, is among ascending ones, (m,), each once; it is one of them.

    They are evenly spread, so that a value's first bits lead to its neighbours.
    """
    found = np.empty(len(values), np.int64)
    if not len(ascending):
        return found
    least, shift = ascending[0], np.uint64(0)
    while (ascending[-1] - least) >> shift > np.uint64(len(ascending)):
        shift += np.uint64(1)
    begins = np.empty(np.int64((ascending[-1] - least) >> shift) + 1, np.int64)
    filled = 0
    for place in range(len(ascending)):
        drawer = np.int64((ascending[place] - least) >> shift)
        while filled <= drawer:
            begins[filled] = place
            filled += 1
    for asked in range(len(values)):
        drawer = min(np.int64((values[asked] - least) >> shift), np.int64(len(begins) - 1))
        place = begins[drawer]
        while place < len(ascending) - 1 and ascending[place] != values[asked]:
            place += 1
        found[asked] = place
    return found


@compiled
def of_many(keys, others, order, many, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) bool with whether `many` others or more, (n,), different ones, stand beside each one's key.

    keys: (n,); order: (n,) places in which equal keys come together. A key's last WIDTH bits are no other of its own.
    """
    seen = np.empty(many, others.dtype)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and keys[order[end]] == keys[order[begin]]:
            end += 1
        number, own = 0, keys[order[begin]] & ((1 << WIDTH) - 1)
        for place in range(begin, end):
            other = others[order[place]]
            if number == many or other == own or np.any(seen[:number] == other):
                continue
            seen[number] = other
            number += 1
        for place in range(begin, end):
            found[order[place]] = number == many
        begin = end
