"""The inner loops of `bpe`, compiled by Numba."""

from __future__ import annotations

import heapq

import numpy as np

from datamask.compiling import compiled

MIXER = np.uint64(0x9E3779B97F4A7C15)
NOBODY = np.int64(-1)
KEY, TALLY, HEAD = 0, 1, 2  # of a pair: its tokens, how often it stands in the words, and a list of words with it


@compiled
def slot_of(table, key):  # type: ignore[no-untyped-def]
    """Where a pair stands in an open-addressing table (slots, 4) of key, tally and head, or the empty slot for it."""
    mask = len(table) - 1
    slot = np.int64((np.uint64(key) * MIXER) >> np.uint64(32)) & mask
    while table[slot, KEY] != NOBODY and table[slot, KEY] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def empty(slots):  # type: ignore[no-untyped-def]
    """A table of so many empty slots."""
    table = np.zeros((slots, 4), np.int64)
    table[:, KEY] = NOBODY
    table[:, HEAD] = NOBODY
    return table


@compiled
def grown(table):  # type: ignore[no-untyped-def]
    """The table with twice the slots."""
    found = empty(2 * len(table))
    for old in range(len(table)):
        if table[old, KEY] != NOBODY:
            found[slot_of(found, table[old, KEY])] = table[old]
    return found


@compiled
def doubled(array):  # type: ignore[no-untyped-def]
    """The array with room for as much again."""
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def token_slot(slots, letters, ends, spelled, size):  # type: ignore[no-untyped-def]
    """Where a token of these letters stands in `slots`, which hold its number, or the empty slot (−1) for it."""
    mask = len(slots) - 1
    total = np.uint64(size)
    for at in range(size):
        total = (total ^ np.uint64(spelled[at])) * np.uint64(0x100000001B3)
    slot = np.int64((total * MIXER) >> np.uint64(32)) & mask
    while slots[slot] >= 0:
        token = slots[slot]
        if ends[token + 1] - ends[token] == size:
            same = True
            for at in range(size):
                same &= letters[ends[token] + at] == spelled[at]
            if same:
                break
        slot = (slot + 1) & mask
    return slot


@compiled
def learn(symbols, starts, counts, vocabulary, least, longest):  # type: ignore[no-untyped-def]
    """The pairs of tokens that become one, in order: the left ones and the right ones, int32 (merges,) each.

    Step for step the trainer of `tokenizers`: the most frequent pair first, of equals that of the least numbers; an
    entry of the queue knows the words in which its pair came up at one time, and merges it there alone.

    symbols: int32, the words' letters 0 to 255, one word's after the other's, overwritten; starts: (words + 1,);
    counts: (words,) int64; vocabulary: greatest number of tokens; least: count of a pair; longest:
    letters of a token, plus one.
    """
    vocabulary = max(vocabulary, 256)
    lefts, rights = np.empty(vocabulary, np.int32), np.empty(vocabulary, np.int32)
    words = len(starts) - 1
    sizes = starts[1:] - starts[:-1]
    letters, ends = np.empty(1 << 16, np.uint8), np.empty(vocabulary + 2, np.int64)
    slots = np.full(1 << 16, np.int32(-1))
    while len(slots) < 4 * vocabulary:
        slots = np.full(2 * len(slots), np.int32(-1))
    spelled = np.empty(2 * longest, np.uint8)
    ends[0] = 0
    for token in range(256):
        letters[token] = spelled[0] = token
        ends[token + 1] = token + 1
        slots[token_slot(slots, letters, ends, spelled, 1)] = token
    known = 256

    table = empty(1 << 16)
    filled = 0  # pairs in the table
    member, following = np.empty(1 << 20, np.int32), np.empty(1 << 20, np.int64)  # lists of words
    members = 0
    touched = np.empty(1 << 16, np.int64)  # keys whose lists have just begun
    touches = 0
    for word in range(words):
        for at in range(starts[word], starts[word + 1] - 1):
            key = np.int64(symbols[at]) << 32 | np.int64(symbols[at + 1])
            if 2 * filled >= len(table):
                table = grown(table)
            slot = slot_of(table, key)
            if table[slot, KEY] == NOBODY:
                table[slot, KEY] = key
                filled += 1
            table[slot, TALLY] += counts[word]
            if table[slot, HEAD] == NOBODY:
                if touches == len(touched):
                    touched = doubled(touched)
                touched[touches] = key
                touches += 1
            if table[slot, HEAD] == NOBODY or member[table[slot, HEAD]] != word:
                if members == len(member):
                    member, following = doubled(member), doubled(following)
                member[members], following[members] = word, table[slot, HEAD]
                table[slot, HEAD] = members
                members += 1
    queue = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    for n in range(touches):
        slot = slot_of(table, touched[n])
        if table[slot, TALLY] > 0:
            queue.append((-table[slot, TALLY], touched[n], table[slot, HEAD]))
        table[slot, HEAD] = NOBODY
    heapq.heapify(queue)

    length = np.ones(vocabulary + 1, np.int64)  # letters of each token
    merges = 0
    while known < vocabulary and len(queue):
        minus, key, head = heapq.heappop(queue)
        now = table[slot_of(table, key), TALLY]
        if -minus != now:
            heapq.heappush(queue, (-now, key, head))
            continue
        if now < 1 or now < least:
            break
        left, right = np.int32(key >> 32), np.int32(key & 0xFFFFFFFF)
        size = length[left] + length[right]
        for at in range(length[left]):
            spelled[at] = letters[ends[left] + at]
        for at in range(length[right]):
            spelled[length[left] + at] = letters[ends[right] + at]
        place = token_slot(slots, letters, ends, spelled, size)
        if slots[place] < 0:
            while ends[known] + size > len(letters):
                letters = doubled(letters)
            letters[ends[known] : ends[known] + size] = spelled[:size]
            ends[known + 1] = ends[known] + size
            slots[place], length[known] = known, size
            known += 1
        made = slots[place]
        if merges == len(lefts):  # a token may be made in several ways
            lefts, rights = doubled(lefts), doubled(rights)
        lefts[merges], rights[merges] = left, right
        merges += 1

        touches = 0
        while head != NOBODY:
            word = member[head]
            head = following[head]
            first, held, weight = starts[word], sizes[word], counts[word]
            to = 0
            at = 0
            while at < held:
                here = symbols[first + at]
                if here != left or at + 1 >= held or symbols[first + at + 1] != right:
                    symbols[first + to] = here
                    to, at = to + 1, at + 1
                    continue
                for side in range(2):
                    if side == 0:
                        if to == 0:
                            continue
                        beside = symbols[first + to - 1]
                        old = np.int64(beside) << 32 | np.int64(left)
                        new = np.int64(beside) << 32 | np.int64(made)
                    else:
                        if at + 2 >= held:
                            continue
                        beside = symbols[first + at + 2]
                        old = np.int64(right) << 32 | np.int64(beside)
                        new = np.int64(made) << 32 | np.int64(beside)
                    if 2 * filled + 2 >= len(table):
                        table = grown(table)
                    slot = slot_of(table, old)
                    if table[slot, KEY] == NOBODY:
                        table[slot, KEY] = old
                        filled += 1
                    table[slot, TALLY] -= weight
                    if length[beside] + size >= longest:
                        continue
                    slot = slot_of(table, new)
                    if table[slot, KEY] == NOBODY:
                        table[slot, KEY] = new
                        filled += 1
                    table[slot, TALLY] += weight
                    if table[slot, HEAD] == NOBODY:
                        if touches == len(touched):
                            touched = doubled(touched)
                        touched[touches] = new
                        touches += 1
                    if table[slot, HEAD] == NOBODY or member[table[slot, HEAD]] != word:
                        if members == len(member):
                            member, following = doubled(member), doubled(following)
                        member[members], following[members] = word, table[slot, HEAD]
                        table[slot, HEAD] = members
                        members += 1
                symbols[first + to] = made
                to, at = to + 1, at + 2
            sizes[word] = to
        for n in range(touches):
            slot = slot_of(table, touched[n])
            if table[slot, TALLY] > 0:
                heapq.heappush(queue, (-table[slot, TALLY], touched[n], table[slot, HEAD]))
            table[slot, HEAD] = NOBODY
    return lefts[:merges], rights[:merges]
