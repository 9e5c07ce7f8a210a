"""The compiled loops of the content score against plain definitions, on any text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.quality.language_models import Languages
from datamask.quality.lexicon import find_listed
from datamask.quality.measures import (
    CAPITALS,
    CHANCE,
    LONGEST,
    NUMBERED,
    RUN,
    SEVERAL,
    SHORTEST,
    kinds_of_passages,
    lifts_of,
    pool_free_measures,
    repeated_runs,
    standing,
)
from datamask.quality.word_counts import PAIR, CountTable
from datamask.text import word_tables as w
from datamask.text.batch_words import CUTS, FIGURES, REACH, BatchWords
from datamask.text.code_points import BASE, mix_hash
from tests.quality.tables import counts_of

TEXTS = st.lists(
    st.text(
        st.one_of(st.characters(), st.sampled_from("aB'’9 \n.!!--|$\\(«»中あกÃ©â€™\u200d\u0301\ud800{")), max_size=60
    ),
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_tokens(texts: list[str]) -> None:
    words, table = BatchWords(texts), w.tables()
    joined = "\n".join(["", *texts, ""])
    kinds = [int(table.kinds[ord(char)]) for char in joined]
    blank = [char.isspace() for char in joined]
    word = [bool(kind & w.WORD) for kind in kinds]
    for at in range(1, len(joined) - 1):
        if kinds[at] & w.JOINER:
            word[at] = word[at] or bool(kinds[at - 1] & w.WORD and kinds[at + 1] & w.WORD)
    tokens: list[list[int]] = []
    for at in range(1, len(joined)):
        if blank[at]:
            continue
        if word[at]:
            joins = word[at - 1] and not kinds[at] & w.SINGLE
            joins = joins and not (kinds[at - 1] & w.SINGLE and not kinds[at] & w.MARK)
        else:
            joins = joined[at] == joined[at - 1]
        if not joins or not tokens or tokens[-1][1] != at:
            tokens.append([at, at + 1])
        else:
            tokens[-1][1] = at + 1
    assert list(zip(words.start.tolist(), words.end.tolist(), strict=True)) == [tuple(token) for token in tokens]
    assert words.is_word.tolist() == [word[start] for start, _ in tokens]
    cut = [joined[start] == "…" or joined[start:end] == "." * max(3, end - start) for start, end in tokens]
    clauses = [joined[start] in ";:；：؛—–" or kinds[start] & w.STOP != 0 for start, _ in tokens]
    closing = [CUTS if off else ends for ends, off in zip(clauses, cut, strict=True)]
    assert words.closes.tolist() == [how * (not word[start]) for how, (start, _) in zip(closing, tokens, strict=True)]
    assert words.kinds.tolist() == [kinds[start] for start, _ in tokens]
    assert words.marks.tolist() == [at for at, char in enumerate(joined) if char in "<&"]
    assert words.first.tolist()[:-1] == [sum(token[0] < start for token in tokens) for start in words.starts]
    spelled = [[folded for at in range(*token) if (folded := int(table.folded[ord(joined[at])]))] for token in tokens]
    for part, cut in (
        (words.hashes, slice(None)),
        (words.heads, slice(w.LETTERS)),
        (words.tails, slice(-w.LETTERS, None)),
    ):
        for letters, found in zip(spelled, part.tolist(), strict=True):
            terms = ((folded + 0x51ED270B) * pow(int(BASE), at, 1 << 64) for at, folded in enumerate(letters[cut]))
            assert mix_hash(np.array([sum(terms) % (1 << 64)], np.uint64))[0] == found


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_counts_of_characters(texts: list[str]) -> None:
    words, table = BatchWords(texts), w.tables()
    for document, text in enumerate(texts):
        points = [ord(char) for char in text]
        kinds, meaning = table.kinds[points], table.meaning[points]
        quotes = abs(sum((char in "»›") - (char in "«‹") for char in map(chr, points)))
        expected = [
            sum(
                not char.isspace() and bool(kind & w.WORD or char != text[at - 1 : at])
                for at, (char, kind) in enumerate(zip(text, kinds))
            ),
            *(int((meaning == what).sum()) for what in (w.BROKEN, w.BAR, w.CODE)),
        ]
        expected[2] += quotes - pipes_of_rows(text)
        assert words.characters[document, :4].tolist() == expected


def pipes_of_rows(text: str) -> int:
    """The pipes before the last that follows another with only white space between, and of those after it as many as
    the row before it has."""
    pipes = [at for at, char in enumerate(text) if char == "|"]
    rows = [0, *(number for number, at in enumerate(pipes) if re.search(r"\|\s+$", text[:at]))]
    return rows[-1] + min(len(pipes) - rows[-1], rows[-1] - rows[-2]) if len(rows) > 1 else 0


def test_words_of_two_letters_and_more_are_shouted_where_most_of_them_are_capitals() -> None:
    text = "I SAY a MAÎTRE, USA's McDonald ИЗ Из A5 ΑΒ ß O\u0301U\u0301 x"
    for around in ([], ["ONE two"]):
        words = BatchWords([*around, text, *around])
        mine = range(words.first[len(around)], words.first[len(around) + 1])
        said = ["".join(map(chr, words.points[words.start[at] : words.end[at]])) for at in mine if words.shouted[at]]
        assert said == ["SAY", "MAÎTRE", "USA's", "ИЗ", "ΑΒ"]


def test_places_where_utf8_was_read_as_cp1252() -> None:
    texts = [
        "été".encode().decode("cp1252"),
        "“a”".encode().decode("cp1252", "replace"),
        "été Ãb",
        "😀".encode().decode("latin-1"),
        "Ã",  # of "à" or a no-break space, which the text's end or another layout has taken away
        "MANHÃ",
    ]
    assert BatchWords(texts).characters[:, 4].tolist() == [2, 1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("<b>x</b> <B> </p>", 4),
        ("a<b and a<p", 0),  # a formula; "p" is an element, but nothing of one follows
        ("<a href=x> <!-- x --> <x> < b>", 2),
        ("<a\n  href=x> <a\u00a0href=x> <a house", 3),  # in every layout; "a" before a word with h is taken along
        ("&amp; &; &a b; &nbsp;&#123456; &#1234567; ;", 3),
        ("<", 0),
        ("</", 0),
        ("&", 0),
        ("<<b><", 1),
    ],
)
def test_tags(text: str, number: int) -> None:
    for around in ([], [""], ["b>", "x;"], ["/b", "<"]):
        words = BatchWords([*around, text, *around])
        low, high = words.first[len(around)], words.first[len(around) + 1]
        assert pool_free_measures(words)["tags"][len(around)] == number / max(1, words.is_word[low:high].sum())


class Tokens(NamedTuple):
    """Of some documents, each a list of tokens."""

    first: np.ndarray
    flags: np.ndarray  # (tokens, 5) bool
    hashes: np.ndarray


@st.composite
def tokens_of_documents(draw: st.DrawFn) -> Tokens:
    sizes = draw(st.lists(st.integers(0, 70), max_size=4))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    flags = generator.random((sum(sizes), 5)) < draw(st.sampled_from([0.05, 0.3, 0.8]))
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Tokens(first, flags, generator.integers(draw(st.integers(1, 6)), size=sum(sizes)).astype(np.uint64))


def made_words(first: np.ndarray, kinds: np.ndarray, is_word: np.ndarray) -> BatchWords:
    """Words of no text, none of a link."""
    words = BatchWords.__new__(BatchWords)
    words.linked = np.zeros(len(kinds), bool)
    words.starts, words.first, words.kinds, words.is_word = first[:-1], first, kinds, is_word
    return words


def near(mask: np.ndarray) -> np.ndarray:
    """How many within REACH places are true."""
    return np.array([mask[max(0, at - REACH) : at + REACH + 1].sum() for at in range(len(mask))], int)


@settings(max_examples=100, deadline=None)
@given(tokens_of_documents())
def test_words_in_sentences(tokens: Tokens) -> None:
    is_word, figures, loud, linked, marks = (np.ascontiguousarray(column) for column in tokens.flags.T)
    linked, parted = linked & figures, tokens.hashes % 2 == 0
    cuts = marks & ~is_word & (tokens.hashes % 5 == 1)
    closes = marks & ~is_word & ~cuts
    found = np.empty((len(tokens.first) - 1, 6), np.int64)
    standing(tokens.first, is_word, loud & is_word, closes + cuts * np.uint8(CUTS), figures, linked, parted, found)
    for mine, row in zip(map(slice, tokens.first, tokens.first[1:]), found.tolist(), strict=False):
        words, apart = (is_word & ~figures)[mine], (is_word & figures & ~linked)[mine].sum()
        links = (linked[mine] & (parted[mine] | ~np.append(False, linked[mine])[:-1])).sum()
        among, whole = is_word[mine].cumsum(), words.copy()
        for at, last in pairwise(np.flatnonzero(cuts[mine]).tolist()):
            if among[last] - among[at] <= LONGEST:  # a second ellipsis: the words since the last mark are cut off
                begun = np.flatnonzero(closes[mine][:last])
                whole[begun[-1] if len(begun) else 0 : last] = False
        *pieces, rest = (int(part.sum()) for part in np.split(whole, np.flatnonzero(closes[mine])))
        said = sum(size for size in pieces if SHORTEST <= size <= LONGEST)
        said += rest * (said > 0 and SHORTEST <= rest <= LONGEST)
        addressed = (is_word & linked)[mine].sum()
        assert row == [words.sum(), apart, addressed, links, said, (words & loud[mine]).sum()]


@settings(max_examples=100, deadline=None)
@given(tokens_of_documents())
def test_figures_are_told_by_the_share_of_numbers_and_marks_around(tokens: Tokens) -> None:
    is_word, digit, stop = (np.ascontiguousarray(tokens.flags[:, place]) for place in (0, 1, 2))
    found = made_words(tokens.first, (digit * w.DIGIT + stop * w.STOP).astype(np.uint8), is_word).figures
    for mine in map(slice, tokens.first, tokens.first[1:]):
        marks = np.where(is_word, digit, ~stop)[mine]
        assert found[mine].tolist() == (near(marks) > FIGURES * near(np.ones(len(marks), bool))).tolist()


@settings(max_examples=100, deadline=None)
@given(tokens_of_documents())
def test_repeated_runs(tokens: Tokens) -> None:
    place, kinds = np.arange(len(tokens.hashes)), (tokens.flags[:, 0] * w.DIGIT).astype(np.uint8)
    text = made_words(tokens.first, kinds, kinds > 0)
    points = place % 5 < 1
    text.hashes, text.start, text.end = tokens.hashes, place, place + 1
    text.points = (2 * tokens.hashes + points).astype(np.uint32)
    found = np.stack(repeated_runs(text), axis=1)
    written = np.where(kinds > 0, 10 + points, 0) + 20 * tokens.hashes.astype(np.int64)  # numbers as they are written
    for mine, row in zip(map(slice, tokens.first, tokens.first[1:]), found.tolist(), strict=False):
        words = written[mine].tolist()
        runs = [tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1)]
        assert row == [len(runs) - len(set(runs)), len(runs)]


@settings(max_examples=100, deadline=None)
@given(tokens_of_documents())
def test_usual_words(tokens: Tokens) -> None:
    capital, is_word, figures, menus, linked = (np.ascontiguousarray(column) for column in tokens.flags.T)
    kinds = (capital * w.UPPER).astype(np.uint8)
    keys = np.append(np.arange(4, dtype=np.uint64) << np.uint64(46), np.uint64(0))  # of a hash the first 18 bits count
    frequent = np.array([[True, False], [False, True], [True, True], [False, False], [False, False]])
    hashes, usual = tokens.hashes << np.uint64(46), np.array([0.5, 0.001])
    group = np.arange(len(tokens.first) - 1) % 2
    languages = Languages(("a", "b"), 2, keys, np.zeros((5, 2), np.float32), frequent, np.zeros(2), usual)
    text = made_words(tokens.first, kinds, is_word)
    text.hashes, text.figures, text.linked = hashes, figures, linked
    found = np.stack([text.count(which) for which in kinds_of_passages(text, group, languages, menus)], axis=1)
    function = np.array([frequent[min(int(word), 4)] for word in tokens.hashes], bool).reshape(-1, 2)
    for document, mine in enumerate(map(slice, tokens.first, tokens.first[1:])):
        words, theirs = is_word[mine], function[mine, group[document]] & is_word[mine]
        number = np.maximum(near(words), 1)
        least, small = max(usual[group[document]], 0.02) * number, near(capital[mine]) <= CAPITALS * number
        reads = (near(theirs) >= 0.33 * least) & small & ~figures[mine]
        listed = words & ~reads & (near(menus[mine]) >= SEVERAL)
        numbered = words & small & figures[mine] & ~linked[mine] & (near(theirs) >= NUMBERED * least)
        assert found[document].tolist() == [(words & reads).sum(), listed.sum(), numbered.sum()]


def test_a_pair_of_letters_is_of_a_list_within_one_document_alone() -> None:
    assert find_listed(BatchWords(["导航"]))[0].tolist() == [1, 1]
    assert find_listed(BatchWords(["导", "航", "导 航"]))[0].tolist() == [0, 0, 1, 1]


def test_lifts() -> None:
    generator = np.random.default_rng(5)
    first, hashes = np.array([0, 40, 40, 100]), generator.integers(9, size=100).astype(np.uint64)
    counts = (generator.random(100) * 5).astype(np.float32) * (generator.random(100) < 0.7).astype(np.float32)
    keys = mix_hash(hashes[:-1] * PAIR + hashes[1:])
    table, half = CountTable.of([keys, keys[:50]]), np.array([1, 0, 0])
    size, found, number = np.array([20, 30, 50], np.float32), np.empty(100, np.float32), np.empty(3, np.int64)
    pairs, looked_up = (hashes, hashes, counts, counts), (*table.places, np.float32(4))
    filled = lifts_of(3, first, pairs, half, looked_up, size, found, number)
    expected, numbers = [], [0, 0, 0]
    for document in range(3):
        for at in range(first[document], first[document + 1] - 3):
            if counts[at] and counts[at + 3]:
                both = counts_of(table, mix_hash(hashes[[at]] * PAIR + hashes[[at + 3]]), half[[document]])
                chance = min(counts[at + 3] / size[document], CHANCE)
                expected.append((both[0] / chance + np.float32(4)) / (counts[at] + np.float32(4)))
                numbers[document] += 1
    assert found[:filled].tolist() == expected and number.tolist() == numbers


def test_counts_within_a_step() -> None:
    generator = np.random.default_rng(3)
    keys = [generator.integers((1 << 64) - 1, size=300, dtype=np.uint64) for _ in range(2)]
    times = [generator.integers(1, 50, 300) for _ in range(2)]
    table = CountTable.of([np.repeat(key, often) for key, often in zip(keys, times, strict=True)])
    for half in range(2):
        found = counts_of(table, keys[half], np.full(300, half))
        assert np.mean(np.abs(found / times[half] - 1) < 0.1) > 0.7  # of two in one slot the rarer is lost
        assert np.mean(counts_of(table, keys[1 - half], np.full(300, half)) > 0) < 0.05
