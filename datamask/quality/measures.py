"""What is measured of each document's words: counts and shares. What they are worth is in `terms.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from datamask.compiling import compiled
from datamask.hash_sets import empty_set, slot_of
from datamask.quality import code_shapes
from datamask.quality.batch_words import AMPERSAND, BatchWords
from datamask.quality.character_ngrams import HALVES, PAIR, NgramCounts, counted, halves
from datamask.quality.language_models import Languages
from datamask.quality.lexicon import LISTS, find_listed
from datamask.quality.page_layout import AS_FOLDED, mix_hash
from datamask.quality.word_tables import BAR, BLANK, DIGIT, UPPER, tables

CONTENT_VERSION = 13  # raised when a measure, a term or the score changes
MEASURES = (
    "words",
    "order",  # how much likelier neighbours with white space between are than words further apart, in nats: see there
    "sentences",  # share in sentences or clauses, of words in no figures: 3 to 60, closed by a mark that ends one or ;:
    "figures",  # share of words in passages of numbers and marks
    "upper_case",  # share of words in capitals, of those in no figures
    "repeated",  # share of runs of eight words that came before in the document
    "tags",  # HTML tags and entities a word
    "broken",  # share of characters that no writing has: U+FFFD, controls, private use, UTF-8 read as Latin-1
    "bars",  # separators, arrows, stars, pictures a word
    "menus",  # share of words among which stand several of those of a site's menus, where they are no prose
    "adverts",  # share of words that hardly stand but in spam: drugs, bets, fakes, sex
    "notices",  # share of words of a site's own notices and forms: cookies, passwords, rights reserved
    "prose",  # share of words among function words and few capitals, of those in no figures
    "glued",  # of source code, the share of words and marks with no white space before them
    "code",  # probability that it is source code, by the shapes of neighbouring words and marks
)
# what needs no pool, and is a share
PLAIN = ("sentences", "figures", "upper_case", "repeated", "tags", "broken", "bars", "code")
FREE_WORDS = 20  # words of a text need be in no sentences and no prose, and may be in figures: a title, a head, a date
_ELEMENTS = """a abbr address article aside audio b blockquote body br button canvas center cite code col dd del div dl
    dt em embed fieldset figcaption figure font footer form frame h0 head header hr html i iframe img
    input ins label legend li link main meta nav noscript object ol option p param pre q script section
    select small source span strike strong style sub summary sup svg table tbody td textarea tfoot th
    thead title tr tt u ul video"""
SEMICOLON, SLASH, EXCLAMATION, GREATER, H = (ord(char) for char in ";/!>h")
SHORTEST, LONGEST = 3, 60  # words of a sentence
SEVERAL = 4  # of 25 words: so many words of menus make one
CAPITALS = 0.5  # share of words with a capital, from which 25 words are a menu's or a list's
RUN = 8
CHANCE = np.float32(0.2)  # greatest probability of a word by chance
BLOCK = 256  # pairs of words that are looked up one after the other
UNIT = 1024  # logarithms are summed as integers in units of 1/1024 nat, so that sums do not depend on the order
APART = 7  # pairs of words this far apart serve as a shuffled document
JOINTS = 0.7  # weight of the pairs (end of a word, beginning of the next), relative to pairs of words
MOST = 4.0  # nats that one pair may say
PARTS = 3  # of a document, whose order is measured apart: the least counts, for a menu may stand before an article
LEAST_PART = 120  # tokens of a part
_STRENGTH = {"pairs": 4.0, "joints": 10.0}  # pseudo-counts of the smoothing towards chance


@dataclass(frozen=True)
class MeasuredPool:
    """The counts and languages of the pool that documents are measured against."""

    counts: NgramCounts
    languages: Languages


def measure(words: BatchWords, given: Sequence[str | None], pool: MeasuredPool) -> tuple[np.ndarray, np.ndarray]:
    """(documents, MEASURES) float32, NaN where there is nothing to measure; (documents,) int64 groups.

    :param given: the corpus's own statement of each document's language
    """
    found = pool_free_measures(words)
    group = pool.languages.groups(words, given, found["code"])
    found |= in_pool(words, pool, group, found["words"])
    # Code of which nobody says a language may be in another programming language than most of the pool's: its words
    # have an order that is no more usual there than a shuffled one.
    unsaid, is_code = np.array([not name for name in given], dtype=bool), group == pool.languages.languages
    found["order"][unsaid & is_code] = np.nan
    glued = share(words.count(~words.parted), np.diff(words.first))
    found["glued"] = np.where(is_code, glued, 0.0)
    return np.stack([np.asarray(found[name], dtype=np.float32) for name in MEASURES], axis=1), group


def share(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    """count / total, NaN where the total is 0."""
    return np.where(total > 0, count / np.maximum(total, 1), np.nan)


def most_of(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The share of words that are something, 1 if all but FREE_WORDS are; NaN where there are none."""
    return share(np.minimum(count + FREE_WORDS, total), total)


def pool_free_measures(words: BatchWords) -> dict[str, np.ndarray]:
    """The measures that need no pool, by name: (documents,) each."""
    ink, broken, bars, _, misread = words.characters.T
    tagged = np.zeros(len(words), np.int64)
    tokens = words.start, words.end, words.hashes
    count_tags(words.points, tables().packed, words.marks, words.ends, tokens, _elements(), tagged)
    stands, runs = np.empty((len(words), 4), np.int64), np.empty((len(words), 2), np.int64)
    standing(words.first, words.is_word, words.shouted, words.closes, words.figures, stands)
    number, apart, said, loud = stands.T
    repeated(words.points, words.start, words.end, words.kinds, words.hashes, words.first, runs)
    return {
        "words": number,
        "sentences": most_of(said, number - apart),
        "figures": 1 - most_of(number - apart, number),
        "upper_case": share(loud, number - apart),
        "repeated": runs[:, 0] / np.maximum(runs[:, 1], 1),
        "tags": tagged / np.maximum(number, 1),
        "broken": share(broken + 2 * misread, ink),
        "bars": bars / np.maximum(number, 1),
        "code": code_shapes.code_probability(words),
    }


@cache
def _elements() -> np.ndarray:
    """Hashes of the names of HTML's elements."""
    return np.unique(BatchWords(_ELEMENTS.split()).hashes)


def in_pool(words: BatchWords, pool: MeasuredPool, group: np.ndarray, number: np.ndarray) -> dict[str, np.ndarray]:
    """The measures against the half of the pool that does not hold the document, by name: (documents,) each.

    :param number: (documents,) of words
    """
    half = 1 - halves(words)
    known = pool.counts.words.of_documents(words.hashes, words.first, half)
    bars = tables().meaning[words.points[words.start]] == BAR
    known *= (words.kinds & DIGIT == 0) & ~bars  # what stands in a table follows no words
    follows = ~words.figures | (group == pool.languages.languages)[words.document]  # code is nothing but figures
    listed = find_listed(words)
    reads, menus = prose_and_menus(words, group, pool.languages, listed & LISTS["menus"] != 0)
    return {
        "order": _near_less_far(words, pool, group, half, known, words.parted, follows),
        "prose": most_of(words.count(reads), words.count(words.is_word & ~words.figures)),
        "menus": share(words.count(menus), number),
        **{kind: share(words.count(listed & LISTS[kind] != 0), number) for kind in ("notices", "adverts")},
    }


def prose_and_menus(
    words: BatchWords, group: np.ndarray, languages: Languages, of_menus: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(tokens,) bool each: the words of prose, which are those among which there are enough of the words that most
    documents of the group hold, and few capitals, outside passages of figures; and of the others, those among which
    stand SEVERAL of menus.

    :param group: (documents,)
    :param of_menus: (tokens,) bool, which are words of menus
    """
    mine = group[words.document]
    function = words.is_word & languages.frequent[languages.rows(words.hashes), mine]
    number = np.maximum(words.near(words.is_word), 1)
    least = 0.33 * np.maximum(languages.usual, 0.02)
    reads = (words.near(function) >= least[mine] * number) & ~words.figures
    reads &= words.near(words.kinds & UPPER != 0) <= CAPITALS * number
    return words.is_word & reads, words.is_word & ~reads & (words.near(of_menus) >= SEVERAL)


def word_order(words: BatchWords, pool: MeasuredPool, group: np.ndarray) -> np.ndarray:
    """(documents,) the measure `order`, averaged over both halves of the pool: any two texts are comparable."""
    every = [np.full(len(words), half, dtype=np.int64) for half in range(HALVES)]
    known = [pool.counts.words.of_documents(words.hashes, words.first, half) for half in every]
    whole = np.ones(len(words.hashes), bool)
    found: np.ndarray = np.mean(
        [_near_less_far(words, pool, group, *both, whole, whole) for both in zip(every, known, strict=True)], axis=0
    )
    return found


def _near_less_far(
    words: BatchWords,
    pool: MeasuredPool,
    group: np.ndarray,
    half: np.ndarray,
    known: np.ndarray,
    second: np.ndarray,
    follows: np.ndarray,
) -> np.ndarray:
    """(documents,) how much likelier the second of a pair is after the first than anywhere, in nats, of neighbours less
    of words APART.

    :param half: (documents,) which half of the pool is used
    :param known: (tokens,) counts of the words in it
    :param second: (tokens,) bool, which are looked at as the second of neighbours. A mark goes with its word whatever
        the order: only what is parted from the word before it tells shuffled words.
    :param follows: (tokens,) bool, which are looked at; the others are as if they were not there
    """
    counts = pool.counts
    first = np.append(0, np.cumsum(follows))[words.first]
    hashes, last, begin, known, second = (
        values[follows] for values in (words.hashes, words.tails, words.heads, known, second)
    )
    tails, heads = counts.tails.of_documents(last, first, half), counts.heads.of_documents(begin, first, half)
    first, owner = _parts(first)
    size = np.maximum(pool.languages.words[group], 1000.0).astype(np.float32)[owner]
    half = half[owner]
    said = []
    for apart, after in ((1, second), (APART, np.True_)):
        by_word = hashes, hashes, known, known * after
        by_joint = last, begin, tails, heads * after
        found = np.zeros(len(first) - 1)
        for kind, keys, table, weight in (
            ("pairs", by_word, counts.pairs, 1),
            ("joints", by_joint, counts.joints, JOINTS),
        ):
            looked_up = (*table.places, np.float32(_STRENGTH[kind]))
            found += weight * _lifts(first, apart, keys, half, looked_up, size)
        said.append(found)
    found = np.full(len(words), np.inf)
    np.fmin.at(found, owner, said[0] - said[1])
    return np.where(np.isfinite(found), found, np.nan)


def _parts(first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the parts of documents begin among the tokens, as `first` has it, and (parts,) whose each is."""
    sizes = np.diff(first)
    number = np.clip(sizes // LEAST_PART, 1, PARTS)
    owner = np.repeat(np.arange(len(sizes)), number)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
    return np.append(first[owner] + sizes[owner] * place // number[owner], first[-1]), owner


def _lifts(
    first: np.ndarray,
    apart: int,
    pairs: tuple[np.ndarray, ...],
    half: np.ndarray,
    table: tuple[Any, ...],
    size: np.ndarray,
) -> np.ndarray:
    """(documents,) mean lift in nats (`lifts_of`) of the pairs of a document whose parts the pool knows.

    :param apart: places between the two
    :param table: what `lifts_of` looks pairs up in
    :param size: (documents,) words of the document's language in a half
    """
    found, number = np.empty(first[-1], np.float32), np.empty(len(first) - 1, np.int64)
    filled = lifts_of(apart, first, pairs, half, table, size, found, number)
    nats = np.log(found[:filled])
    nats = np.rint(np.clip(nats, -MOST, MOST, out=nats) * np.float32(UNIT), out=nats)
    sums, last = np.append(0, np.cumsum(nats, dtype=np.float64)), np.cumsum(number)
    return share((sums[last] - sums[last - number]) / UNIT, number)


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
def lifts_of(apart, first, pairs, half, table, size, found, number):  # type: ignore[no-untyped-def]
    """Fills `found` with P(second | first) / P(second), the former smoothed towards the latter, of the tokens that have
    another `apart` places further in their document, both of them known; and number (documents,) with how many each
    has. Returns how many there are.

    pairs: (tokens,) each, keys of the first and the second of a pair, and their counts, float32, 0 if not known; half:
    (documents,); table: slots, shift and counts of the table of pairs, and float32
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
