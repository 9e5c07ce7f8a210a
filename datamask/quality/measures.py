"""What is measured of each document's words: counts and shares. What they are worth is in `terms.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from datamask.quality import batch_words as w
from datamask.quality.batch_words import BatchWords, mix
from datamask.quality.character_ngrams import HALVES, PAIR, NgramCounts, Table, halves
from datamask.quality.language_models import Languages
from datamask.quality.lexicon import lexicon

MEASURES = (
    "words",
    "order",  # how much likelier neighbours are than words further apart, in nats: by pairs of words and by joints
    "known",  # share of words that the other half of the pool knows
    "function_words",  # share of words that most documents of the language hold
    "sentences",  # share of words in sentences or clauses: 3 to 60 words, closed by a mark that ends one, or ; or :
    "letters",  # share of characters that are letters, white space left out, here and below
    "digits",
    "capitals",  # share of words that begin with a capital, where at least half of the words have a case
    "upper_case",  # share of letters in upper case
    "repeated",  # share of runs of eight words that came before in the document
    "tags",  # HTML tags and entities a word
    "broken",  # share of characters that no writing has: U+FFFD, controls, private use, UTF-8 read as Latin-1
    "shouts",  # exclamation marks, currencies, per cents, addresses a word
    "bars",  # separators, arrows, stars, pictures a word
    "menus",  # share of words among which stand several of those that a site's menus are made of
    "adverts",  # the same of advertisements
    "titles",  # share of words among words of which at least half have a capital
    "prose",  # share of words among function words, few capitals and few digits
    "code",  # share of characters that programs are written with
)
PLAIN = (  # what needs no pool, and is a share
    "sentences",
    "letters",
    "digits",
    "capitals",
    "upper_case",
    "repeated",
    "tags",
    "broken",
    "shouts",
    "bars",
    "menus",
    "adverts",
    "titles",
    "code",
)
REACH = 12  # words on either side: what stands among them is judged in 25 words at a time, whatever the lines are
SEVERAL = {"menus": 4, "adverts": 5}  # of 25 words
RUN = 8
SENTENCE = (3, 60)
_CLAUSES = np.array([ord(mark) for mark in ";:；：؛—–"], dtype=np.uint32)  # verse and dialogue have few other marks
_ELEMENTS = """a abbr address article aside audio b blockquote body br button canvas center cite code col dd del div dl
    dt em embed fieldset figcaption figure font footer form frame h0 head header hr html i iframe img
    input ins label legend li link main meta nav noscript object ol option p param pre q script section
    select small source span strike strong style sub summary sup svg table tbody td textarea tfoot th
    thead title tr tt u ul video"""
UNIT = 1024  # logarithms are summed as integers in units of 1/1024 nat, so that sums do not depend on the order
APART = 7  # pairs of words this far apart serve as a shuffled document
JOINTS = 0.7  # weight of the pairs (end of a word, beginning of the next), relative to pairs of words
CHANCE = np.float32(0.2)  # greatest probability of a word by chance
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
    found = plain(words)
    group = pool.languages.groups(words, given, found["code"])
    found |= in_pool(words, pool, group)
    return np.stack([np.asarray(found[name], dtype=np.float32) for name in MEASURES], axis=1), group


def share(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    """count / total, NaN where the total is 0."""
    return np.where(total > 0, count / np.maximum(total, 1), np.nan)


def plain(words: BatchWords) -> dict[str, np.ndarray]:
    """The measures that need no pool, by name: (documents,) each."""
    from datamask.quality.inner_loops import characters

    table, number = w.tables(), words.count(words.is_word)
    found = np.empty((len(words), 9), np.int64)
    characters(words.points, words.kinds, words.blank, table.meaning, table.byte, words.starts, words.ends, found)
    ink, digits, letters, upper, shouts, broken, bars, code, misread = found.T
    letters = letters - digits
    first = words.kinds[words.start]
    capital = words.count(first & w.UPPER != 0)
    cased = words.count(first & (w.UPPER | w.LOWER) != 0)
    return {
        "words": number,
        "sentences": _sentences(words, number),
        "letters": share(letters, ink),
        "digits": share(digits, ink),
        "capitals": share(capital, np.where(2 * cased >= number, number, 0)),
        "upper_case": share(upper, letters),
        "repeated": _repeated(words),
        "tags": words.at(_tags(words)) / np.maximum(number, 1),
        "broken": share(broken + 2 * misread, ink),
        "shouts": (shouts + 3 * words.at(words.find("://"))) / np.maximum(number, 1),
        "bars": bars / np.maximum(number, 1),
        "menus": _listed(words, "menus", number),
        "adverts": _listed(words, "adverts", number),
        "titles": _titles(words, number),
        "code": share(code, ink),
    }


def _around(words: BatchWords, mask: np.ndarray) -> np.ndarray:
    """(tokens,) int64: how many tokens up to REACH away in the same document have mask (tokens,) true."""
    from datamask.quality.inner_loops import around

    found = np.empty(len(mask), np.int64)
    around(mask, words.first, REACH, found)
    return found


def _listed(words: BatchWords, kind: str, number: np.ndarray) -> np.ndarray:
    held = lexicon(kind).held(words)
    return share(words.count(words.is_word & (_around(words, held) >= SEVERAL[kind])), number)


def _titles(words: BatchWords, number: np.ndarray) -> np.ndarray:
    capital = words.kinds[words.start] & w.UPPER != 0
    inside = 2 * _around(words, capital) >= _around(words, words.is_word)
    return share(words.count(words.is_word & inside), number)


def _prose(words: BatchWords, pool: MeasuredPool, group: np.ndarray, function: np.ndarray) -> np.ndarray:
    kind, number = words.kinds[words.start], np.maximum(_around(words, words.is_word), 1)
    least = 0.33 * np.maximum(pool.languages.usual[group], 0.02)[words.document]
    reads = _around(words, function) >= least * number
    reads &= _around(words, kind & w.UPPER != 0) <= 0.4 * number
    reads &= _around(words, kind & w.DIGIT != 0) <= 0.25 * number
    return share(words.count(words.is_word & reads), words.count(words.is_word))


def _tags(words: BatchWords) -> np.ndarray:
    """Places of "<" before an HTML element's name, "/" and one, or "!"; and of "&" before a name or number and ";".

    What only looks so is left out: names of one letter ("a<b" in a formula) that neither ">" nor "href" follows.
    """
    points = words.points
    opens = np.flatnonzero(points[:-2] == ord("<")) + 1
    marked = opens[points[opens] == ord("!")]
    closing = points[opens] == ord("/")
    begins = opens + closing
    token = np.minimum(np.searchsorted(words.start, begins), len(words.start) - 1) if len(words.start) else begins * 0
    named = np.zeros(len(opens), dtype=bool)
    if len(opens) and len(words.start):
        named = (words.start[token] == begins) & np.isin(words.hashes[token], _elements())
        end = np.minimum(words.end[token], len(points) - 1)
        link = (points[end] == ord(" ")) & (points[np.minimum(end + 1, len(points) - 1)] == ord("h"))  # <a href
        named &= (end - begins > 1) | closing | link | (points[end] == ord(">"))
    tags = np.union1d(opens[named], marked)
    names = np.flatnonzero(points == ord("&"))
    ends = np.flatnonzero(points == ord(";"))
    if len(names) and len(ends):
        end = ends[np.minimum(np.searchsorted(ends, names), len(ends) - 1)]
        blanks = np.searchsorted(words.spaces, end) - np.searchsorted(words.spaces, names)
        names = names[(end > names + 1) & (end < names + 9) & (blanks == 0)]
        tags = np.sort(np.concatenate([tags, names]))
    return tags


@cache
def _elements() -> np.ndarray:
    """Hashes of the names of HTML's elements."""
    return np.unique(BatchWords(_ELEMENTS.split()).hashes)


def _repeated(words: BatchWords) -> np.ndarray:
    if len(words.start) < RUN:
        return np.zeros(len(words))
    key, size = words.hashes, 1
    while size < RUN:
        key = mix(key[:-size] * PAIR + key[size:])
        size *= 2
    document = words.document[: len(key)]
    inside = document == words.document[RUN - 1 :]
    document, key = document[inside], key[inside]
    ordered = np.sort((document.astype(np.uint64) << np.uint64(44)) | (key >> np.uint64(20)))
    again = ordered[1:][ordered[1:] == ordered[:-1]] >> np.uint64(44)
    total = np.bincount(document, minlength=len(words))
    return np.bincount(again.astype(np.int64), minlength=len(words)) / np.maximum(total, 1)


def _sentences(words: BatchWords, number: np.ndarray) -> np.ndarray:
    closes = (words.kinds[words.start] & w.STOP != 0) | np.isin(words.points[words.start], _CLAUSES)
    stops = np.flatnonzero(closes & ~words.is_word)
    document = words.document[stops]
    begins = np.maximum(np.concatenate([[0], stops[:-1]])[: len(stops)], words.first[document])
    before = np.concatenate([[0], np.cumsum(words.is_word)])
    size = before[stops] - before[begins]
    size[(size < SENTENCE[0]) | (size > SENTENCE[1])] = 0
    return share(np.bincount(document, weights=size, minlength=len(words)), number)


def in_pool(words: BatchWords, pool: MeasuredPool, group: np.ndarray) -> dict[str, np.ndarray]:
    """The measures against the half of the pool that does not hold the document, by name: (documents,) each."""
    half = (1 - halves(words))[words.document]
    known = pool.counts.words.count(words.hashes, half)
    function = pool.languages.function_words(words, group)
    letters = words.is_word & (words.kinds[words.start] & w.DIGIT == 0)
    return {
        "order": _near_less_far(words, pool, group, half, known),
        "known": share(words.count(letters & (known > 0)), words.count(letters)),
        "function_words": share(words.count(function), words.count(words.is_word)),
        "prose": _prose(words, pool, group, function),
    }


def order(words: BatchWords, pool: MeasuredPool, group: np.ndarray) -> np.ndarray:
    """(documents,) the measure `order`, averaged over both halves of the pool, so that any two texts are comparable."""
    every = [np.full(len(words.start), half, dtype=np.int64) for half in range(HALVES)]
    known = [pool.counts.words.count(words.hashes, half) for half in every]
    found: np.ndarray = np.mean(
        [_near_less_far(words, pool, group, *both) for both in zip(every, known, strict=True)], axis=0
    )
    return found


def _near_less_far(
    words: BatchWords, pool: MeasuredPool, group: np.ndarray, half: np.ndarray, known: np.ndarray
) -> np.ndarray:
    counts = pool.counts
    ends = counts.tails.count(words.tails, half), counts.heads.count(words.heads, half)
    size = np.maximum(pool.languages.words[group], 1000.0).astype(np.float32)[words.document]
    near, far = (_order(words, apart, pool, half, known, ends, size) for apart in (1, APART))
    return near - far


def _order(
    words: BatchWords,
    apart: int,
    pool: MeasuredPool,
    half: np.ndarray,
    known: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    size: np.ndarray,
) -> np.ndarray:
    """(documents,) how much likelier the second of a pair is after the first than anywhere, in nats.

    :param apart: places between the two
    :param half: (tokens,) which half of the pool is used
    :param known: (tokens,) counts of the words in it
    :param ends: (tokens,) counts of their endings, and of their beginnings
    :param size: (tokens,) words of the document's language in a half
    """
    counts = pool.counts
    by_word = _lifts(words, apart, (words.hashes, words.hashes), (known, known), counts.pairs, half, size, "pairs")
    by_joint = _lifts(words, apart, (words.tails, words.heads), ends, counts.joints, half, size, "joints")
    return by_word + JOINTS * by_joint


def _lifts(
    words: BatchWords,
    apart: int,
    keys: tuple[np.ndarray, np.ndarray],
    counts: tuple[np.ndarray, np.ndarray],
    table: Table,
    half: np.ndarray,
    size: np.ndarray,
    kind: str,
) -> np.ndarray:
    """(documents,) mean `lift` in nats of the pairs of a document whose parts the pool knows.

    :param keys: (tokens,) of a pair's first part and of its second; counts: how often they occur
    """
    from datamask.quality.inner_loops import known_pairs, lifts

    most, number = len(words.start), np.empty(len(words), np.int64)
    place, found, halves_ = np.empty(most, np.int64), np.empty(most, np.uint64), np.empty(most, np.int64)
    filled = known_pairs(apart, words.first, *keys, *counts, half, PAIR, place, found, halves_, number)
    both = table.count(found[:filled], halves_[:filled])
    lifts(apart, place[:filled], *counts, both, size, np.float32(_STRENGTH[kind]))
    sums = np.concatenate([[0], np.cumsum(_units(np.log(both)))])
    return share(np.diff(sums[np.concatenate([[0], np.cumsum(number)])]) / UNIT, number)


def lift(first: np.ndarray, second: np.ndarray, both: np.ndarray, size: np.ndarray, kind: str) -> np.ndarray:
    """(m,) int64, in 1/UNIT nats: ln P(second | first) / P(second), the former smoothed towards the latter.

    `UNKNOWN`, which means leave out, where the pool lacks one of the two words.
    """
    strength = np.float32(_STRENGTH[kind])
    chance = np.minimum(second / size, CHANCE)
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = np.log((both / chance + strength) / (first + strength))
    known = (first > 0) & (second > 0)
    return np.where(known, _units(np.where(known, lift, 0)), UNKNOWN)


UNKNOWN = np.iinfo(np.int32).min


def _units(nats: np.ndarray) -> np.ndarray:
    """(m,) int64, in 1/UNIT nats."""
    return np.rint(np.clip(nats, -4, 4) * UNIT).astype(np.int64)
