"""The inner loops of telling copies apart by the pool's counts: many pairs at once, without the interpreter's lock."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import set_of, slot_of
from datamask.quality.character_ngrams import PAIR
from datamask.quality.inner_loops import counted, mixed
from datamask.quality.measures import _STRENGTH, CHANCE, JOINTS, UNIT
from datamask.quality.measures import MOST as MOST_OF_PAIR

# A text of the sample finds most of its pairs of words in the half that it was counted in, but for those whose slot a
# more frequent pair took (a fifth, at most). What other texts have of a text's pairs is two thirds at most in English.
HELD = 0.72
SHORTEST = 8  # words, below which nothing is said of this
REST = 100.0  # words of the corpus that a text's own words are mixed with: one that recurs in it is at home there
MOST = 4.0  # nats that one word may say
STRANGE = 2.0  # nats against a word that neither the rest of its text nor the corpus has: typing errors, broken words
OF_PAIRS, OF_JOINTS = _STRENGTH["pairs"], _STRENGTH["joints"]


@compiled
def neighbours(left, right):  # type: ignore[no-untyped-def]
    """(tokens,) uint64: the key of each token's `left` and the next one's `right`, as `character_ngrams.pairs` makes
    them; the last has none.
    """
    found = np.zeros(len(left), np.uint64)
    for at in range(len(left) - 1):
        found[at] = mixed(left[at] * PAIR + right[at + 1])
    return found


@compiled
def held_in(slots, shift, counts, keys, first, half):  # type: ignore[no-untyped-def]
    """Replaces half (texts,) by −1 where it has not counted the text.

    keys: `neighbours` of words; first: (texts + 1,).
    """
    for text in range(len(half)):
        there, pairs = 0, first[text + 1] - first[text] - 1
        if pairs + 1 < SHORTEST:
            half[text] = -1
            continue
        for at in range(first[text], first[text] + pairs):
            there += counted(slots[half[text]], shift, counts, keys[at]) > 0
        if there / pairs <= HELD:
            half[text] = -1


@compiled
def among(ascending, value):  # type: ignore[no-untyped-def]
    """How often a value is among ascending ones."""
    low = np.searchsorted(ascending, value)
    high = low
    while high < len(ascending) and ascending[high] == value:
        high += 1
    return high - low


@compiled
def without(table, key, mine, half, theirs, other):  # type: ignore[no-untyped-def]
    """The count of a key in both halves, without what two texts were counted for.

    table: see `inner_loops.look_up_all`. mine, theirs: the keys of each, ascending; half, other: in which half it was
    counted, or −1.
    """
    slots, shift, counts = table
    total = 0.0
    for one in range(len(slots)):
        found = np.float64(counted(slots[one], shift, counts, key))
        if half == one:
            found -= among(mine, key)
        if other == one:
            found -= among(theirs, key)
        if found >= 0.5:  # counts are kept within 9 %
            total += found
    return total


@compiled
def lift(first, second, both, size, strength):  # type: ignore[no-untyped-def]
    """As `measures.lift`, in nats; 0 where the pool lacks one of the words."""
    if first <= 0 or second <= 0:
        return 0.0
    found = np.log((both / min(second / size, np.float64(CHANCE)) + strength) / (first + strength))
    return np.rint(min(max(found, -MOST_OF_PAIR), MOST_OF_PAIR) * UNIT) / UNIT


@compiled
def altered_of_pairs(one, other, size, first, is_word, tokens, held, words, tails, heads, pairs, joints, found):  # type: ignore[no-untyped-def]
    """Fills found (P,) with `CopyCounts.altered` of pairs of texts: one, other (P,) their numbers.

    size: (P,) words of their language; first: (texts + 1,) into the tokens; tokens: of each its hash, tail, head, and
    its keys with the next (`neighbours`); held: (texts,) see `held_in`; words and so on: the tables.
    """
    for pair in range(len(one)):
        nats = np.zeros(2)
        for side in range(2):
            text, copy = (one[pair], other[pair]) if side == 0 else (other[pair], one[pair])
            mine, theirs = slice(first[text], first[text + 1]), slice(first[copy], first[copy + 1])
            nats[side] = likely(
                is_word[mine],
                ordered(tokens, mine, held[text]),
                ordered(tokens, theirs, held[copy]),
                (tokens[0][mine], tokens[1][mine], tokens[2][mine], tokens[3][mine], tokens[4][mine]),
                tokens[3][theirs],
                (held[text], held[copy]),
                size[pair],
                (words, tails, heads, pairs, joints),
            )
        found[pair] = nats[0] - nats[1]


@compiled
def ordered(tokens, part, held):  # type: ignore[no-untyped-def]
    """Ascending, what a text was counted for: nothing if it was not."""
    if held < 0:
        nothing = np.zeros(0, np.uint64)
        return nothing, nothing, nothing, nothing, nothing
    last = slice(part.start, max(part.stop - 1, part.start))
    return (
        np.sort(tokens[0][part]),
        np.sort(tokens[1][part]),
        np.sort(tokens[2][part]),
        np.sort(tokens[3][last]),
        np.sort(tokens[4][last]),
    )


@compiled
def likely(is_word, mine, theirs, tokens, others, held, size, tables):  # type: ignore[no-untyped-def]
    """Nats that the words of a text say that it has of its own: beside their neighbours, and in the rest of the text.

    mine, theirs: see `ordered`; others: the keys of the copy's neighbours, the last one's none.
    """
    hashes, tails, heads, by_word, by_joint = tokens
    table, taken = set_of(others[: max(len(others) - 1, 0)])
    before, after = np.zeros(len(hashes), np.bool_), np.zeros(len(hashes), np.bool_)
    said = 0.0
    for at in range(len(hashes) - 1):
        if taken[slot_of(table, taken, by_word[at])]:
            continue
        after[at] = before[at + 1] = True
        known = without(tables[0], hashes[at], mine[0], held[0], theirs[0], held[1])
        known_next = without(tables[0], hashes[at + 1], mine[0], held[0], theirs[0], held[1])
        ends = without(tables[1], tails[at], mine[1], held[0], theirs[1], held[1])
        begins = without(tables[2], heads[at + 1], mine[2], held[0], theirs[2], held[1])
        both = without(tables[3], by_word[at], mine[3], held[0], theirs[3], held[1])
        joint = without(tables[4], by_joint[at], mine[4], held[0], theirs[4], held[1])
        said += lift(known, known_next, both, size, OF_PAIRS) + JOINTS * lift(ends, begins, joint, size, OF_JOINTS)
    own = np.zeros(len(hashes), np.bool_)
    for at in range(len(hashes)):
        begun, ended = before[at] or at == 0, after[at] or at == len(hashes) - 1
        own[at] = begun and ended and (before[at] or after[at])
    rest = np.sort(hashes[~own])
    home = 0.0
    for at in range(len(hashes)):
        if not own[at]:
            continue
        times = among(rest, hashes[at])
        known = without(tables[0], hashes[at], mine[0], held[0], theirs[0], held[1])
        likelier = np.log((times / ((known + 0.5) / size) + REST) / (len(rest) + REST))
        home += min(max(likelier, -MOST), MOST)
        if times == 0 and known == 0 and is_word[at]:
            home -= STRANGE
    return said + home
