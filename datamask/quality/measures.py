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
from datamask.quality.language_models import Languages
from datamask.quality.lexicon import LISTS, beside_others, find_listed
from datamask.quality.spellings import Spellings
from datamask.quality.word_counts import HALVES, PAIR, NgramCounts, counted, halves
from datamask.text.batch_words import CUTS, BatchWords
from datamask.text.code_points import mix_hash, span_hashes
from datamask.text.word_tables import BAR, BLANK, DIGIT, QUOTE, UPPER, tables

CONTENT_VERSION = 26  # raised when a measure, a term or the score changes
MEASURES = (
    "words",
    "order",  # how much likelier neighbours with white space between are than words further apart, in nats: see there
    "sentences",  # share in sentences or clauses, of words in no figures: 3 to 60, closed by a mark that ends one or ;:
    "figures",  # share of words in passages of numbers and marks; a link is one word, whatever its address
    "upper_case",  # share of words in capitals, of those in no figures
    "repeated",  # share of runs of eight words that came before in the document
    "tags",  # HTML tags and entities a word
    "broken",  # share of characters that no writing has: U+FFFD, controls, private use, UTF-8 read as Latin-1
    "bars",  # separators, arrows, stars, pictures a word
    "menus",  # share of words among which stand several of those of a site's menus, where they are no prose
    "adverts",  # share of words that hardly stand together but in spam: drugs, bets, fakes, sex
    "notices",  # share of words of a site's notices and forms, in no prose or beside others: cookies, rights reserved
    # share of words that a text says once and the pool neither knows nor spells so: terms come again, misprints differ
    "unknown",
    "prose",  # share of words among function words and few capitals, of those in no figures
    "numbered",  # share of words in passages of figures that hold nearly as many function words as text does
    "numbered_order",  # `order` of these, numbers and marks left out: near 0 in lists, else they are text
    "glued",  # of source code, the share of words and marks with no white space before them
    "code",  # probability that it is source code, by the shapes of neighbouring words and marks
)
# what needs no pool, and is a share
PLAIN = ("sentences", "figures", "upper_case", "repeated", "tags", "broken", "bars", "code")
FREE_WORDS = 20  # words of a text are let off by sentences, prose, figures and unknown words: a title, a head, a date
_ELEMENTS = """a abbr address article aside audio b blockquote body br button canvas center cite code col dd del div dl
    dt em embed fieldset figcaption figure font footer form frame h0 head header hr html i iframe img
    input ins label legend li link main meta nav noscript object ol option p param pre q script section
    select small source span strike strong style sub summary sup svg table tbody td textarea tfoot th
    thead title tr tt u ul video"""
ENTITY = 8  # characters after "&", ";" among them
SHORTEST, LONGEST = 3, 60  # words of a sentence
BULLETS = np.array([ord(mark) for mark in "•●■◆▪►▶✓✔"])  # begin the items of lists
LISTED = 0.06  # bullets a word: eight items in a text of 130 words
SEVERAL = 4  # of 25 words: so many words of menus make one
CAPITALS = 0.5  # share of words with a capital, from which 25 words are a menu's or a list's
CROWDED = 6  # words of an item of a menu, its separator counted; three separators make one
# Of a language's usual share of function words, from which a passage of figures may be text. Lists of a word and two
# numbers have a third of it, speech with a time in each line of 70 letters four fifths.
NUMBERED = 0.5
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
    spellings: Spellings


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
    found["unknown"][is_code] = np.nan
    for name in ("numbered", "menus", "notices"):  # `list`, `search`, `password` are names there
        found[name][is_code] = 0.0
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
    stands = np.empty((len(words), 6), np.int64)
    of_tokens = words.is_word, words.shouted, words.closes, words.figures, words.linked, words.parted
    standing(words.first, *of_tokens, stands)
    plain, apart, addressed, links, said, loud = stands.T
    number, (repeats, runs) = plain + apart + addressed, repeated_runs(words)
    return {
        "words": number,
        "sentences": most_of(said, plain),
        "figures": share(links + np.maximum(apart - FREE_WORDS, 0), links + apart + plain),
        "upper_case": share(loud, plain),
        "repeated": repeats / np.maximum(runs, 1),
        "tags": count_tags(words) / np.maximum(number, 1),
        "broken": share(broken + 2 * misread, ink),
        "bars": bars * crowded(words, number) / np.maximum(number, 1),
        "code": code_shapes.code_probability(words),
    }


def crowded(words: BatchWords, number: np.ndarray) -> np.ndarray:
    """(documents,) the share of separators and pictures that are three or more in a row, at most CROWDED words from one
    to the next: fewer are bullets before sentences, or part a name from a date. A text may hold lists: LISTED BULLETS
    a word are let off.

    :param number: (documents,) of words
    """
    places = np.flatnonzero((words.meanings == BAR) | (words.meanings == QUOTE))
    document = words.document[places]
    close = (np.diff(places) <= CROWDED) & (document[1:] == document[:-1])
    ends = np.pad(close, 1)
    middle = np.pad(ends[:-1] & ends[1:], 1)  # close to the one before and to the one after
    near = (middle[:-2] | middle[1:-1] | middle[2:])[: len(places)]
    items = near & np.isin(words.points[words.start[places]], BULLETS)
    count, rows, listed = (np.bincount(document, which, minlength=len(words)) for which in (None, near, items))
    return (rows - np.minimum(listed, LISTED * number)) / np.maximum(count, 1)


def count_tags(words: BatchWords) -> np.ndarray:
    """(documents,) the number of "<" before an HTML element's name, "/" and one, or "!"; and of "&" before a name or
    number and ";".

    What only looks so is left out: names of one letter ("a<b" in a formula) that neither ">" nor "href" follows.
    """
    points, last = words.points, len(words.points) - 1
    less, ampersand = (words.marks[points[words.marks] == ord(mark)] for mark in "<&")
    closing = points[less + 1] == ord("/")
    begins = less + 1 + closing
    token = np.minimum(np.searchsorted(words.start, begins), len(words.start) - 1)
    after, then = words.end[token], np.append(words.start[1:], last)[token]  # the end, and the next that is not blank
    then = np.minimum(then, words.ends[words.document[token]])
    link = (then > after) & (points[then] == ord("h"))  # <a href
    elements, hashes = _elements(), words.hashes[token]
    named = (words.start[token] == begins) & (elements[np.searchsorted(elements[:-1], hashes)] == hashes)
    named &= (after - begins > 1) | closing | link | (points[np.minimum(after, last)] == ord(">"))
    follows = points[np.minimum(ampersand[:, None] + 1 + np.arange(ENTITY), last)]
    ends = (follows == ord(";")) | (tables().packed[follows] & np.uint64(BLANK) != 0)
    end = ends.argmax(axis=1)
    entity = (end > 0) & (follows[np.arange(len(end)), end] == ord(";"))
    places = np.concatenate([less[named | (points[less + 1] == ord("!"))], ampersand[entity]])
    return np.bincount(np.searchsorted(words.ends, places), minlength=len(words))


@cache
def _elements() -> np.ndarray:
    """Hashes of the names of HTML's elements."""
    return np.unique(BatchWords(_ELEMENTS.split()).hashes)


def repeated_runs(words: BatchWords) -> tuple[np.ndarray, np.ndarray]:
    """(documents,) each: the number of runs of RUN words that came before in the document, and of all.

    Numbers are told apart here, though one of `BatchWords.hashes` stands for all of a length: lines of a table, or of
    a law, that differ in theirs repeat nothing. Links are left out.
    """
    keys, numbers = words.hashes.copy(), np.flatnonzero(words.kinds & DIGIT)
    written = np.empty(len(numbers), np.uint64)
    span_hashes(words.points, words.start[numbers], words.end[numbers], written)
    keys[numbers] = written
    first, found = words.first_among(~words.linked), np.zeros(len(words), np.int64)
    count_repeats(first, keys[~words.linked], found)
    return found, np.maximum(np.diff(first) - RUN + 1, 0)


def in_pool(words: BatchWords, pool: MeasuredPool, group: np.ndarray, number: np.ndarray) -> dict[str, np.ndarray]:
    """The measures against the half of the pool that does not hold the document, by name: (documents,) each.

    :param number: (documents,) of words
    """
    half = 1 - halves(words)
    known = pool.counts.words.of_documents(words.hashes, words.first, half)
    spelled = words.is_word & ~words.figures & (words.kinds & (DIGIT | UPPER) == 0)  # names are unknown everywhere
    spelled &= words.script == words.main_script[words.document]  # a name or quotation of another is no misprint
    plain, unknown = words.count(spelled), np.flatnonzero(spelled & (known == 0))
    unknown = single_words(words, unknown[pool.spellings.strange(words, unknown, half, group)])
    known *= (words.kinds & DIGIT == 0) & (words.meanings != BAR)  # what stands in a table follows no words
    follows = ~words.figures | (group == pool.languages.languages)[words.document]  # code is nothing but figures
    listed, entry = find_listed(words)
    of_menus, notices, adverts = (listed & LISTS[name] != 0 for name in ("menus", "notices", "adverts"))
    reads, menus, numbered = kinds_of_passages(words, group, pool.languages, of_menus)
    # one word, however often, is what a text is about; but a notice in no prose is none of it
    adverts = beside_others(words, adverts, entry)
    notices &= ~reads | beside_others(words, of_menus | notices, entry)
    spoken = numbered & (words.kinds & DIGIT == 0)
    return {
        "order": _near_less_far(words, pool, group, half, known, words.parted, follows),
        "unknown": np.where(plain > 0, unknown / (plain + FREE_WORDS), np.nan),
        "prose": most_of(words.count(reads), words.count(words.is_word & ~words.figures)),
        "menus": share(words.count(menus), number),
        "numbered": share(words.count(numbered), number),
        "numbered_order": _near_less_far(words, pool, group, half, known, np.ones_like(spoken), spoken),
        "notices": share(words.count(notices), number),
        "adverts": share(words.count(adverts), number),
    }


def single_words(words: BatchWords, places: np.ndarray) -> np.ndarray:
    """(documents,) how many of these tokens, (n,) places, are words that stand among them once in their document."""
    document = words.document[places]
    keys = mix_hash(words.hashes[places] + mix_hash(document.astype(np.uint64)))
    _, first, times = np.unique(keys, return_index=True, return_counts=True)
    return np.bincount(document[first[times == 1]], minlength=len(words))


def kinds_of_passages(
    words: BatchWords, group: np.ndarray, languages: Languages, of_menus: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tokens,) bool each: the words of prose, which are those among which there are enough of the words that most
    documents of the group hold, and few capitals, outside passages of figures; of the others, those among which
    stand SEVERAL of menus; and the words in passages of figures that may be text, by the same signs.

    :param group: (documents,)
    :param of_menus: (tokens,) bool, which are words of menus
    """
    mine = group[words.document]
    function = words.is_word & languages.frequent[languages.rows(words.hashes), mine]
    number = np.maximum(words.near(words.is_word), 1)
    usual = np.maximum(languages.usual, 0.02)[mine] * number
    small = words.is_word & (words.near(words.kinds & UPPER != 0) <= CAPITALS * number)
    reads = small & ~words.figures & (words.near(function) >= 0.33 * usual)
    numbered = small & words.figures & ~words.linked
    numbered &= words.near(function & (words.kinds & DIGIT == 0)) >= NUMBERED * usual  # a year is frequent too
    return reads, words.is_word & ~reads & (words.near(of_menus) >= SEVERAL), numbered


def word_order(words: BatchWords, pool: MeasuredPool, group: np.ndarray) -> np.ndarray:
    """(documents,) the measure `order`, averaged over both halves of the pool: any two texts are comparable."""
    every = [np.full(len(words), half, dtype=np.int64) for half in range(HALVES)]
    known = [pool.counts.words.of_documents(words.hashes, words.first, half) for half in every]
    whole = np.ones(len(words.hashes), bool)
    return np.mean(
        [_near_less_far(words, pool, group, *both, whole, whole) for both in zip(every, known, strict=True)], axis=0
    )


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
    first = words.first_among(follows)
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
def standing(first, is_word, shouted, closes, figures, linked, parted, found):  # type: ignore[no-untyped-def]
    """Fills found (documents, 6) with numbers: of words in no figures, of other words in passages of figures, of words
    of links, of links; and of the words in no figures, of those in sentences or clauses, the last of which may be cut
    off, and of those that are `shouted`.

    An ellipsis in prose ends no sentence. In a list of teasers it cuts each of them off: what stands before it is in
    no sentence where there is another at most LONGEST words before.
    """
    for document in range(len(first) - 1):
        plain, apart, addressed, links, said, since, loud, uncut = 0, 0, 0, 0, 0, 0, 0, LONGEST + 1
        for at in range(first[document], first[document + 1]):
            links += linked[at] and (parted[at] or at == first[document] or not linked[at - 1])
            if is_word[at]:
                addressed += linked[at]
                apart += figures[at] and not linked[at]
                plain += not figures[at]
                since += not figures[at]
                uncut += 1
                loud += shouted[at] and not figures[at]
            elif closes[at] == CUTS:
                if uncut <= LONGEST:
                    since = 0
                uncut = 0
            elif closes[at]:
                if SHORTEST <= since <= LONGEST:
                    said += since
                since = 0
        if said and SHORTEST <= since <= LONGEST:
            said += since
        found[document] = (plain, apart, addressed, links, said, loud)


@compiled
def lifts_of(apart, first, pairs, half, table, size, found, number):  # type: ignore[no-untyped-def]
    """Fills `found` with P(second | first) / P(second), the former smoothed towards the latter, of the tokens that have
    another `apart` places further in their document, both of them known; and number (documents,) with how many each
    has. Returns how many there are.

    pairs: (tokens,) each, keys of the first and the second of a pair, and their counts, float32, 0 if not known; half:
    (documents,); table: `CountTable.places` of the pairs, and float32 pseudo-counts; size: (documents,) float32 words
    of each document's language in a half.
    """
    left, right, before, after = pairs
    slots, shift, counts, strength = table
    keys, filled = np.empty(BLOCK, np.uint64), 0
    firsts, seconds, both = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for document in range(len(first) - 1):
        begun, mine, words, stop = filled, slots[half[document]], size[document], first[document + 1] - apart
        for block in range(first[document], stop, BLOCK):
            known = 0  # their keys lie side by side, so that many are looked up at once
            for here in range(block, min(block + BLOCK, stop)):
                there = here + apart
                keys[known] = mix_hash(left[here] * PAIR + right[there])
                firsts[known], seconds[known] = before[here], after[there]
                known += (before[here] > 0) & (after[there] > 0)
            for place in range(known):
                both[place] = counted(mine, shift, counts, keys[place])
            for place in range(known):  # apart from the look-ups, so that the compiler divides several at once
                chance = min(seconds[place] / words, CHANCE)
                found[filled + place] = (both[place] / chance + strength) / (firsts[place] + strength)
            filled += known
        number[document] = filled - begun
    return filled


@compiled
def count_repeats(first, keys, found):  # type: ignore[no-untyped-def]
    """Adds to found (documents,) the number of runs of RUN tokens that came before in their document. keys: (tokens,)
    hashes, overwritten."""
    for document in range(len(found)):
        runs = keys[first[document] : first[document + 1]]
        for step in (1, 2, 4):  # keys of two tokens, of four, of eight
            for at in range(len(runs) - step):
                runs[at] = mix_hash(runs[at] * PAIR + runs[at + step])
            runs = runs[: max(len(runs) - step, 0)]
        table, taken = empty_set(len(runs))
        for key in runs:
            slot = slot_of(table, taken, key)
            found[document] += taken[slot]
            table[slot], taken[slot] = key, True
