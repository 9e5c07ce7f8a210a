"""The inner loops of the content score, compiled by Numba: one pass where arrays would be passed over many times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, slot_of
from datamask.quality.word_tables import (
    BAR,
    BLANK,
    BROKEN,
    BYTE,
    CLAUSE,
    CODE,
    DIGIT,
    FOLDED,
    JOINER,
    LEADS,
    LETTERS,
    MARK,
    MEANING,
    ORDINARY,
    QUOTE,
    SINGLE,
    SPACED,
    STOP,
    UPPER,
    WORD,
)

REACH = 12  # words on either side: what stands among them is judged in 25 words at a time, whatever the lines are
SEVERAL = 4  # of 25 words: so many words of menus make one
FIGURES = 0.3  # share of numbers and marks; .05 is usual in prose, .4 to .8 in tables
RUN = 8
SENTENCE = (3, 60)
CHANCE = np.float32(0.2)  # greatest probability of a word by chance
POINT = np.uint64(0x1FFFFF)
AS_FOLDED = np.uint64(0x51ED270B)  # added to a folded code point before it is hashed
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: of the polynomial of a word's code points
PAIR = BASE  # factor of the first of two hashes
BLOCK = 256  # pairs of words that are looked up one after the other
LESS, AMPERSAND, SEMICOLON, SLASH, EXCLAMATION, GREATER, H = (ord(char) for char in "<&;/!>h")
SHORTEST, LONGEST = SENTENCE
LEFT_QUOTES = (ord("«"), ord("‹"))
PIPE = ord("|")
CAPITALS = 0.5  # share of words with a capital, from which 25 words are a menu's or a list's


@compiled
def mix_hash(value):  # type: ignore[no-untyped-def]
    """A hash, or an array of them in place, scrambled: every bit depends on every bit."""
    value ^= value >> np.uint64(31)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(29)
    return value


@compiled
def hashed(point, total, power):  # type: ignore[no-untyped-def]
    """(total, power) of a hash, a polynomial in BASE, with one code point more."""
    return total + (point + AS_FOLDED) * power, power * BASE


@compiled
def folded(entry):  # type: ignore[no-untyped-def]
    """The code point, uint64, that one folds to, of its `WordTables.packed`."""
    return (entry >> np.uint64(FOLDED)) & POINT


@compiled
def span_hashes(points, start, end, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) uint64 with hashes of the code points from start (n,) to end (n,)."""
    for span in range(len(start)):
        total, power = np.uint64(0), np.uint64(1)
        for at in range(start[span], end[span]):
            total, power = hashed(np.uint64(points[at]), total, power)
        found[span] = mix_hash(total)


class Tokens(NamedTuple):
    """Of each token: where it starts and ends, the kind of its first code point, whether it is a word, whether most of
    it is capitals, whether it closes a sentence or a clause, and the hashes of it and of its first and last LETTERS."""

    start: np.ndarray
    end: np.ndarray
    kinds: np.ndarray
    is_word: np.ndarray
    shouted: np.ndarray
    closes: np.ndarray
    hashes: np.ndarray
    heads: np.ndarray
    tails: np.ndarray


class WordsInGroup(NamedTuple):
    """What `Languages` looks a word up in."""

    place: np.ndarray  # rows of `keys` by the first bits of a hash
    shift: np.uint64  # bits by which a hash is shifted
    keys: np.ndarray
    frequent: np.ndarray  # (keys, groups) bool
    usual: np.ndarray  # (groups,) shares of frequent words


class PairKeys(NamedTuple):
    """(tokens,) each: keys of the first and the second of a pair, and their counts, float32, 0 if not known."""

    left: np.ndarray
    right: np.ndarray
    before: np.ndarray
    after: np.ndarray


@compiled
def find_tokens(points, table, ends, found, counts, marks):  # type: ignore[no-untyped-def]
    """Fills `found`, `Tokens` with room for all, and `marks` with the places of "<" and "&". Hashes are of the
    folded code points. Returns the number of tokens, and of marks.

    A word begins where the one before is none, or where a letter stands alone; a mark for itself begins always, but a
    run of the same mark is one. A joiner between two letters is of their word.

    counts: (documents, 5) is filled with numbers of code points: not blank, broken, separators, of programs; and of
    places where UTF-8 was read as cp1252 or Latin-1. A run of one mark counts once. The pipes of a table's rows are
    left out: where one row ends and the next begins, two pipes stand with only a blank between. «» are
    separators as far as one stands without the other.

    points: between line ends; ends: (documents,) where the line end after each stands; table: `WordTables.packed`.
    """
    start, end, kinds, is_word, shouted, closes, hashes, heads, tails = found
    tokens, angles, document, last = 0, 0, 0, len(points) - 1
    ink, broken, bars, code, misread = 0, 0, 0, 0, 0
    quotes = 0  # right ones less left ones
    row, width = 0, 0  # pipes since the last row of a table began, and in the row before
    capitals = 0  # of the token
    before, open_ = False, False  # whether the code point before is of a word, and of a token
    held, single = np.uint64(0), np.uint64(SINGLE)
    total, power, head, size = np.uint64(0), np.uint64(1), np.uint64(0), 0
    for at in range(1, len(points)):
        point = points[at]
        entry = table[point]
        if entry & np.uint64(ORDINARY) and before and not held & single:  # most of most texts
            total, power = hashed(folded(entry), total, power)
            size += 1
            if size == LETTERS:
                head = total
            ink += 1
            held = np.uint64(WORD)
            continue
        kind = entry & np.uint64(0xFF)
        blank = entry & np.uint64(BLANK) != 0
        word = kind & np.uint64(WORD) != 0
        if kind & np.uint64(JOINER) and held & np.uint64(WORD) and table[points[min(at + 1, last)]] & np.uint64(WORD):
            word = True
        if word:
            follows = before and not kind & single and not (held & single and not kind & np.uint64(MARK))
        else:
            follows = point == points[at - 1]
        before, held = word, kind
        if open_ and (blank or not follows):
            token = tokens - 1
            end[token] = at
            hashes[token] = heads[token] = tails[token] = mix_hash(total)
            if size > LETTERS:
                heads[token] = mix_hash(head)
                total, power = np.uint64(0), np.uint64(1)
                for place in range(at - LETTERS, at):
                    total, power = hashed(folded(table[points[place]]), total, power)
                tails[token] = mix_hash(total)
            shouted[token] = capitals > 1 and 2 * capitals > at - start[token]
            open_ = False
        if blank:
            if document < len(ends) and at == ends[document]:
                bars += abs(quotes) - min(row, width)  # the last row of a table is one too
                counts[document] = (ink, broken, bars, code, misread)
                quotes, row, width, ink, broken, bars, code, misread = (0,) * 8
                document += 1
                continue
        else:
            if not open_:
                start[tokens], kinds[tokens], is_word[tokens] = at, kind, word
                closes[tokens] = not word and (kind & np.uint64(STOP) != 0 or entry & np.uint64(CLAUSE) != 0)
                tokens += 1
                open_, capitals = True, 0
                total, power, size = np.uint64(0), np.uint64(1), 0
            total, power = hashed(folded(entry), total, power)
            size += 1
            capitals += kind & np.uint64(UPPER) != 0
            if size == LETTERS:
                head = total
        if not blank:
            ink += word or point != points[at - 1]  # a rule of equal marks is one mark
        means = (entry >> np.uint64(MEANING)) & np.uint64(7)
        if means:
            broken += means == BROKEN
            bars += means == BAR
            if point == PIPE:
                back, begin = at - 1, ends[document - 1] if document else 0
                while back > begin and table[points[back]] & np.uint64(BLANK):
                    back -= 1
                if back < at - 1 and back > begin and points[back] == PIPE:  # a row of a table ends, another begins
                    bars, width, row = bars - row, row, 0
                row += 1
            if means == QUOTE:
                quotes += -1 if point in LEFT_QUOTES else 1
            code += means == CODE
        lead = (entry >> np.uint64(BYTE)) & np.uint64(0xFF)
        if LEADS[0] <= lead <= LEADS[1]:  # a lead byte and as many others as belong to it
            good = True
            for step in range(1, 2 + (lead >= 0xE0) + (lead >= 0xF0)):
                after = table[points[min(at + step, last)]]
                other = (after >> np.uint64(BYTE)) & np.uint64(0xFF)
                if after & np.uint64(BLANK):
                    good &= SPACED[0] <= lead <= SPACED[1] and not table[points[at - 1]] & np.uint64(UPPER)
                else:
                    good &= 0x80 <= other < 0xC0
            misread += good
        if point in (LESS, AMPERSAND):
            marks[angles] = at
            angles += 1
    return tokens, angles


@compiled
def count_tags(points, table, marks, ends, tokens, elements, found):  # type: ignore[no-untyped-def]
    """Adds to found (documents,) the number of "<" before an HTML element's name, "/" and one, or "!"; and of "&"
    before a name or number and ";".

    What only looks so is left out: names of one letter ("a<b" in a formula) that neither ">" nor "href" follows.

    marks: places of "<" and "&"; tokens: where each starts and ends, and its hash; elements: hashes of names,
    ascending.
    """
    start, end, hashes = tokens
    document, token, last = 0, 0, len(points) - 1
    for mark in marks:
        while mark >= ends[document]:
            document += 1
        if points[mark] == AMPERSAND:
            for place in range(mark + 1, min(mark + 9, len(points))):
                if points[place] == SEMICOLON:
                    found[document] += place > mark + 1
                    break
                if table[points[place]] & np.uint64(BLANK):
                    break
            continue
        begins = mark + 1
        if points[begins] == EXCLAMATION:
            found[document] += 1
            continue
        closing = points[begins] == SLASH
        begins += closing
        while token < len(start) and start[token] < begins:
            token += 1
        if token == len(start) or start[token] != begins:
            continue
        place = np.searchsorted(elements, hashes[token])
        if place == len(elements) or elements[place] != hashes[token]:
            continue
        after = min(end[token], last)
        then = after
        while then < last and table[points[then]] & np.uint64(BLANK):
            then += 1
        link = then > after and points[then] == H  # <a href
        found[document] += after - begins > 1 or closing or link or points[after] == GREATER


@compiled
def find_figures(first, kinds, is_word, found):  # type: ignore[no-untyped-def]
    """Fills found (tokens,) with which tokens stand in a passage of figures: a table, a formula, a head of mail. There
    more than FIGURES of the tokens up to REACH away are numbers or marks that end no sentence."""
    for document in range(len(first) - 1):
        low, high, figures = first[document], first[document + 1], 0
        for at in range(low - REACH, high):
            enters, leaves = at + REACH, at - REACH - 1
            if enters < high:
                figures += kinds[enters] & DIGIT != 0 if is_word[enters] else kinds[enters] & STOP == 0
            if leaves >= low:
                figures -= kinds[leaves] & DIGIT != 0 if is_word[leaves] else kinds[leaves] & STOP == 0
            if at >= low:
                found[at] = figures > FIGURES * (min(enters, high - 1) - max(leaves, low - 1))


@compiled
def standing(first, is_word, shouted, closes, figures, found):  # type: ignore[no-untyped-def]
    """Fills found (documents, 4) with numbers of words, of those in passages of figures, of the others in sentences or
    clauses, the last of which may be cut off, and of the others that are `shouted`."""
    for document in range(len(first) - 1):
        number, apart, said, since, loud = 0, 0, 0, 0, 0
        for at in range(first[document], first[document + 1]):
            if is_word[at]:
                number += 1
                apart += figures[at]
                since += not figures[at]
                loud += shouted[at] and not figures[at]
            elif closes[at]:
                if SHORTEST <= since <= LONGEST:
                    said += since
                since = 0
        if said and SHORTEST <= since <= LONGEST:
            said += since
        found[document] = (number, apart, said, loud)


@compiled
def repeated(points, start, end, kinds, hashes, first, found):  # type: ignore[no-untyped-def]
    """Fills found (documents, 2) with the number of runs of RUN words that came before in the document, and of all.

    Numbers are told apart here, though one `hashes` stands for all of a length: lines of a table, or of a law, that
    differ in theirs repeat nothing.
    """
    longest = 1
    for document in range(len(first) - 1):
        longest = max(longest, first[document + 1] - first[document])
    keys = np.empty(longest, np.uint64)
    for document in range(len(first) - 1):
        low, size = first[document], first[document + 1] - first[document]
        runs = max(size - RUN + 1, 0)
        found[document] = (0, runs)
        if not runs:
            continue
        for at in range(size):
            key = hashes[low + at]
            if kinds[low + at] & DIGIT:
                for place in range(start[low + at], end[low + at]):
                    key = mix_hash(key * PAIR + points[place] + AS_FOLDED)
            keys[at] = key
        step = 1
        while step < RUN:
            size -= step
            for at in range(size):
                keys[at] = mix_hash(keys[at] * PAIR + keys[at + step])
            step *= 2
        table, taken = empty_set(runs)
        for at in range(runs):
            key = keys[at] >> np.uint64(20)
            slot = slot_of(table, taken, key)
            found[document, 0] += taken[slot]
            table[slot], taken[slot] = key, True


@compiled
def neighbours(left, right):  # type: ignore[no-untyped-def]
    """(tokens,) uint64: the key of each token's `left` and the next one's `right`; the last has none."""
    found = np.zeros(len(left), np.uint64)
    for at in range(len(left) - 1):
        found[at] = mix_hash(left[at] * PAIR + right[at + 1])
    return found


@compiled
def within(table, taken, values):  # type: ignore[no-untyped-def]
    """(n,) bool: which of the values are in a set, see `hash_sets`."""
    found = np.empty(len(values), np.bool_)
    for at in range(len(values)):
        found[at] = taken[slot_of(table, taken, values[at])]
    return found


@compiled
def counted(slots, shift, counts, key):  # type: ignore[no-untyped-def]
    """The count of one key in its half's slots."""
    held = slots[np.int64(key >> shift)]
    same = (held >> np.uint16(6)) == np.uint16(key & np.uint64(0x3FF))
    return counts[np.int64(held & np.uint16(63)) * np.int64(same)]  # without a branch, which nobody could foretell


@compiled
def look_up_all(slots, shift, counts, keys, first, half, found):  # type: ignore[no-untyped-def]
    """Fills found (n,) float32 with the counts of keys (n,), document d's from first[d] to first[d + 1], in its half
    (documents,); see `character_ngrams.CountTable`.

    slots: (halves, 2**k) uint16; shift: 64 − k; counts: (64,).
    """
    for document in range(len(first) - 1):
        mine = slots[half[document]]
        for at in range(first[document], first[document + 1]):
            found[at] = counted(mine, shift, counts, keys[at])


@compiled
def usual_words(  # type: ignore[no-untyped-def]
    first, words, group, looked_up, found
):
    """Fills found (documents, 2) with numbers of words: of prose, which are those among which there are enough of the
    words that most documents of the group hold, and few capitals, outside passages of figures; and of the others, those
    among which stand SEVERAL of `menus`.

    words: hashes, kinds, whether each is a word, in a passage of figures, and one of menus; group: (documents,);
    looked_up: `WordsInGroup`.
    """
    hashes, kinds, is_word, figures, menus = words
    place, shift, keys, frequent, usual = looked_up
    function = np.empty(len(hashes), np.bool_)
    nothing = len(keys) - 1
    for document in range(len(first) - 1):
        low, high, column = first[document], first[document + 1], group[document]
        reads, listed = 0, 0
        for at in range(low, high):
            row = place[np.int64(hashes[at] >> shift)]
            if keys[row] != hashes[at]:
                row = nothing
            function[at] = is_word[at] and frequent[row, column]
        least = 0.33 * max(usual[column], 0.02)
        of_function, of_capitals, of_words = 0, 0, 0  # among the tokens up to REACH away
        of_menus = 0
        for at in range(low - REACH, high):
            enters, leaves = at + REACH, at - REACH - 1
            if enters < high:
                of_function += function[enters]
                of_capitals += kinds[enters] & UPPER != 0
                of_words += is_word[enters]
                of_menus += menus[enters]
            if leaves >= low:
                of_function -= function[leaves]
                of_capitals -= kinds[leaves] & UPPER != 0
                of_words -= is_word[leaves]
                of_menus -= menus[leaves]
            if at >= low and is_word[at]:
                number = max(of_words, 1)
                if not figures[at] and of_function >= least * number and of_capitals <= CAPITALS * number:
                    reads += 1
                else:
                    listed += of_menus >= SEVERAL
        found[document] = (reads, listed)


@compiled
def lifts_of(apart, first, pairs, half, table, size, found, number):  # type: ignore[no-untyped-def]
    """Fills `found` with P(second | first) / P(second), the former smoothed towards the latter, of the tokens that have
    another `apart` places further in their document, both of them known; and number (documents,) with how many each
    has. Returns how many there are.

    pairs: `PairKeys`; half: (documents,); table: slots, shift and counts of the table of pairs, and float32
    pseudo-counts; size: (documents,) float32 words of each document's language in a half.
    """
    left, right, before, after = pairs
    slots, shift, counts, strength = table
    keys, seconds, firsts = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    filled = 0
    for document in range(len(first) - 1):
        begun, mine, stop = filled, slots[half[document]], first[document + 1] - apart
        for block in range(first[document], stop, BLOCK):
            known = 0  # their keys lie side by side, so that many are looked up at once
            for here in range(block, min(block + BLOCK, stop)):
                there = here + apart
                keys[known] = mix_hash(left[here] * PAIR + right[there])
                firsts[known], seconds[known] = before[here], after[there]
                known += (before[here] > 0) & (after[there] > 0)
            for place in range(known):
                both = counted(mine, shift, counts, keys[place])
                chance = min(seconds[place] / size[document], CHANCE)
                found[filled + place] = (both / chance + strength) / (firsts[place] + strength)
            filled += known
        number[document] = filled - begun
    return filled
