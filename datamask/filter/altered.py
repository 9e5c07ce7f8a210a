"""Which of two copies of a text has words put in the place of others: what the pool's counts say where they differ.

    counts = CopyCounts(model)
    counts.altered([(one, other)])      # [12.3]: where they differ, the words of `one` are likelier by so many nats

A copy that the sample holds has been counted itself: its own counts say nothing about it and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import set_of, slot_of
from datamask.quality.measures import _STRENGTH, CHANCE, JOINTS, UNIT, word_order
from datamask.quality.measures import MOST as MOST_OF_PAIR
from datamask.quality.pool_model import CHARACTERS, PoolModel
from datamask.quality.word_counts import HALVES, counted, halves, neighbours
from datamask.text.batch_words import BatchWords

LEAST = 100_000.0  # words of a language: where its group has fewer, most that hold its words are in other groups
# A text of the sample finds most of its pairs of words in the half that it was counted in, but for those whose slot a
# more frequent pair took (a fifth, at most). What other texts have of a text's pairs is two thirds at most in English.
HELD = 0.72
SHORTEST = 8  # words, below which nothing is said of this
REST = 100.0  # words of the corpus that a text's own words are mixed with: one that recurs in it is at home there
MOST = 4.0  # nats that one word may say
ADDED = 4  # times what the other has of its own: one that has so much is the other with passages added
STRANGE = 2.0  # nats against a word that neither the rest of its text nor the corpus has: typing errors, broken words
HEADS, PAIRS = 2, 3  # rows of keys: words, their ends, their beginnings, pairs of words, of an end and a beginning
OF_PAIRS, OF_JOINTS = _STRENGTH["pairs"], _STRENGTH["joints"]


@dataclass(frozen=True, eq=False)
class CopyCounts:
    """The counts of the pool by which copies of one text are told apart."""

    model: PoolModel

    def natural(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, float]]:
        """Of each pair, copies of one text, how naturally the words of either follow one another, by the counts of both
        halves; nan: unknown.

        The texts' own counts are among them, so this is for telling copies from other texts, not for choosing one.
        """
        words = BatchWords([text for pair in pairs for text in pair])
        group = np.repeat(self.model.pool.languages.by_words(words, np.arange(0, len(words), 2)), 2)
        found = word_order(words, self.model.pool, group).tolist()
        return list(zip(found[::2], found[1::2], strict=True))

    def altered(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Of each pair, a text and a copy of it, by how many nats the words that the one has of its own are likelier
        than those of the other: after and before their neighbours by the corpus's counts, and in this text by what the
        rest of it says. 0: nothing is known.
        """
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        number = {text: place for place, text in enumerate(texts)}
        one, other = (np.array([number[pair[side]] for pair in pairs], np.int64) for side in (0, 1))
        words = BatchWords(texts)
        first, place = np.unique(one, return_inverse=True)
        group = self.model.pool.languages.by_words(words, first)[place]
        size = np.maximum(HALVES * self.model.pool.languages.words[group], LEAST)
        counts, found = self.model.pool.counts, np.empty(len(pairs))
        tables = (counts.words, counts.tails, counts.heads, counts.pairs, counts.joints)
        by_word, by_joint = neighbours(words.hashes, words.hashes), neighbours(words.tails, words.heads)
        tokens = np.stack([words.hashes, words.tails, words.heads, by_word, by_joint])
        counted, keys = words, by_word  # of what the sample counted: the texts' beginnings
        if max(map(len, texts), default=0) > CHARACTERS:
            counted = BatchWords([text[:CHARACTERS] for text in texts])
            keys = neighbours(counted.hashes, counted.hashes)
        held = halves(counted)  # the half that each text was counted in
        held_in(*counts.pairs.places, keys, counted.first, held)
        of_texts, places = CopyTexts(words.first, words.is_word, held), tuple(table.places for table in tables)
        altered_of_pairs(one, other, size, of_texts, tokens, places, found)
        return found.tolist()


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
def count_among(ascending, value):  # type: ignore[no-untyped-def]
    """How often a value is among ascending ones."""
    return np.searchsorted(ascending, value, "right") - np.searchsorted(ascending, value)


@compiled
def without(table, keys, mine, half, theirs, other):  # type: ignore[no-untyped-def]
    """(n,) the counts of keys (n,) in both halves, without what two texts were counted for.

    table: `CountTable.places`. mine, theirs: the keys of each, ascending; half, other: in which half it was
    counted, or −1.
    """
    slots, shift, counts = table
    total, found = np.zeros(len(keys)), np.empty(len(keys))
    for one in range(len(slots)):
        for at in range(len(keys)):  # nothing else here, so that the processor waits for many of them at once
            found[at] = counted(slots[one], shift, counts, keys[at])
        if half == one:
            for at in range(len(keys)):
                found[at] -= count_among(mine, keys[at])
        if other == one:
            for at in range(len(keys)):
                found[at] -= count_among(theirs, keys[at])
        for at in range(len(keys)):  # counts are kept within 9 %
            total[at] += found[at] * (found[at] >= 0.5)
    return total


@compiled
def pair_lift(first, second, both, size, strength):  # type: ignore[no-untyped-def]
    """Nats of ln P(second | first) / P(second), the former smoothed towards it; 0 where the pool lacks a word."""
    if first <= 0 or second <= 0:
        return 0.0
    found = np.log((both / min(second / size, np.float64(CHANCE)) + strength) / (first + strength))
    return np.rint(min(max(found, -MOST_OF_PAIR), MOST_OF_PAIR) * UNIT) / UNIT


class CopyTexts(NamedTuple):
    """Texts by their tokens."""

    first: np.ndarray  # (texts + 1,) into the tokens
    is_word: np.ndarray  # (tokens,)
    held: np.ndarray  # (texts,) see `held_in`


@compiled
def altered_of_pairs(one, other, size, texts, tokens, tables, found):  # type: ignore[no-untyped-def]
    """Fills found (P,) with `CopyCounts.altered` of pairs of texts: one, other (P,) their numbers.

    size: (P,) words of their language; texts: `CopyTexts`; tokens: (5, tokens) of each its hash, tail, head, and its
    keys with the next (`neighbours`); tables: of the pool's words, tails, heads, pairs and joints.
    """
    first, is_word, held = texts
    counted_for = tokens.copy()  # those of each text that was counted (`held_in`) ascending, none of a last word's next
    for text in range(len(held)):
        for row in range(len(tokens)):
            mine = counted_for[row, first[text] : first[text + 1] - (row >= PAIRS)]
            if held[text] >= 0:
                mine[:] = np.sort(mine)
    for pair in range(len(one)):
        said = np.zeros((2, 3))  # see `likely`
        for side in range(2):
            text, copy = (one[pair], other[pair]) if side == 0 else (other[pair], one[pair])
            mine, theirs = slice(first[text], first[text + 1]), slice(first[copy], first[copy + 1])
            said[side] = likely(
                is_word[mine],
                (counted_for[:, mine], counted_for[:, theirs]),
                tokens[:, mine],
                tokens[PAIRS, theirs][: max(first[copy + 1] - first[copy] - 1, 0)],
                (held[text], held[copy]),
                size[pair],
                tables,
            )
        nats = said[0] - said[1]
        found[pair] = nats[0] + nats[1] * (max(said[0, 2], said[1, 2]) >= ADDED * min(said[0, 2], said[1, 2]))


@compiled
def likely(is_word, counted_for, tokens, others, held, size, tables):  # type: ignore[no-untyped-def]
    """(nats, within, number) of the words that a text has of its own: what they say beside the words of both and in the
    rest of the text; how they follow one another; how many they are.

    `within` tells of a passage that was added, such as a menu. One put in another's place is as natural as that.

    counted_for: the text's and the copy's, others: the keys of the copy's neighbours; see `altered_of_pairs`.
    """
    hashes, by_word = tokens[0], tokens[PAIRS]
    table, taken = set_of(others)
    places = np.empty(max(len(hashes) - 1, 0), np.int64)  # of words that are followed by another in the copy
    number = 0
    for at in range(len(places)):
        places[number] = at
        number += not taken[slot_of(table, taken, by_word[at])]
    places = places[:number]
    before, after = np.zeros(len(hashes), np.bool_), np.zeros(len(hashes), np.bool_)
    after[places], before[places + 1] = True, True
    own = np.zeros(len(hashes), np.bool_)
    for at in range(len(hashes)):
        begun, ended = before[at] or at == 0, after[at] or at == len(hashes) - 1
        own[at] = begun and ended and (before[at] or after[at])
    counts = np.zeros((len(tables), len(hashes)))  # of the keys that are asked for
    for row in range(len(tables)):
        asked = np.flatnonzero(before | after) if row == 0 else places + (row == HEADS)
        mine, theirs = counted_for[0][row], counted_for[1][row]
        if row >= PAIRS:
            mine, theirs = mine[:-1], theirs[:-1]
        counts[row][asked] = without(tables[row], tokens[row][asked], mine, held[0], theirs, held[1])
    beside = within = 0.0
    for one in places:
        nats = JOINTS * pair_lift(counts[1, one], counts[HEADS, one + 1], counts[4, one], size, OF_JOINTS)
        nats += pair_lift(counts[0, one], counts[0, one + 1], counts[PAIRS, one], size, OF_PAIRS)
        if own[one] and own[one + 1]:
            within += nats
        else:
            beside += nats
    return beside + at_home(hashes, own, counts[0], is_word, size), within, float(np.sum(own))


@compiled
def at_home(hashes, own, known, is_word, size):  # type: ignore[no-untyped-def]
    """Nats that a text's own words say by how often they come in the rest of it. known: their counts."""
    number = np.sum(own)
    rest = len(hashes) - number
    table, taken = set_of(hashes[own])
    times = np.zeros(len(table), np.int64)  # in the rest
    for at in range(len(hashes)):
        if not own[at]:
            slot = slot_of(table, taken, hashes[at])
            times[slot] += taken[slot]
    home = 0.0
    for at in range(len(hashes)):
        if not own[at]:
            continue
        here = times[slot_of(table, taken, hashes[at])]
        likelier = np.log((here / ((known[at] + 0.5) / size) + REST) / (rest + REST))
        home += min(max(likelier, -MOST), MOST)
        if here == 0 and known[at] == 0 and is_word[at]:
            home -= STRANGE
    return home
