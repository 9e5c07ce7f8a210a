"""The compiled loops of the content score against plain definitions, on any text."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.quality import batch_words as w
from datamask.quality import characters as ch
from datamask.quality.batch_words import BatchWords
from datamask.quality.character_ngrams import Table
from datamask.quality.inner_loops import around, characters
from datamask.quality.page_layout import _BASE

TEXTS = st.lists(
    st.text(
        st.one_of(st.characters(), st.sampled_from("aB'’9 \n.!!--|中あกÃ©â€™\u200d\u0301\ud800{")),
        max_size=60,
    ),
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_tokens(texts: list[str]) -> None:
    words, table = BatchWords(texts), w.tables()
    joined = "\n".join(["", *texts, ""])
    kinds = [int(table.kinds[ord(char)]) for char in joined]
    blank = [bool(ch.tables().flags[ord(char)] & ch.SPACE) for char in joined]
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
    for (start, end), found in zip(tokens, words.hashes.tolist(), strict=True):
        terms = (
            (int(table.folded[ord(joined[at])]) + 0x51ED270B) * pow(_BASE, at - start, 1 << 64)
            for at in range(start, end)
        )
        assert w.mix(np.array([sum(terms) % (1 << 64)], np.uint64))[0] == found


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_counts_of_characters(texts: list[str]) -> None:
    words, table = BatchWords(texts), w.tables()
    found = np.empty((len(texts), 9), np.int64)
    characters(words.points, words.kinds, words.blank, table.meaning, table.byte, words.starts, words.ends, found)
    for document, text in enumerate(texts):
        points = [ord(char) for char in text]
        kinds, meaning = table.kinds[points], table.meaning[points]
        expected = [
            sum(not char.isspace() for char in text),
            *(int((kinds & bit != 0).sum()) for bit in (w.DIGIT, w.WORD, w.UPPER)),
            int(((meaning >= w.EXCLAIM) & (meaning <= w.AT)).sum()),
            *(int((meaning == what).sum()) for what in (w.BROKEN, w.BAR, w.CODE)),
        ]
        assert found[document, :8].tolist() == expected


def test_places_where_utf8_was_read_as_cp1252() -> None:
    texts = [
        "été".encode().decode("cp1252"),
        "“a”".encode().decode("cp1252", "replace"),
        "été Ã",
        "😀".encode().decode("latin-1"),
    ]
    words, table = BatchWords(texts), w.tables()
    found = np.empty((len(texts), 9), np.int64)
    characters(words.points, words.kinds, words.blank, table.meaning, table.byte, words.starts, words.ends, found)
    assert found[:, 8].tolist() == [2, 1, 0, 1]


@given(st.lists(st.lists(st.booleans(), max_size=30), max_size=5), st.integers(1, 12))
def test_around(documents: list[list[bool]], reach: int) -> None:
    first = np.concatenate([[0], np.cumsum([len(mask) for mask in documents])]).astype(np.int64)
    joined = np.array([one for mask in documents for one in mask], bool)
    found = np.empty(len(joined), np.int64)
    around(joined, first, reach, found)
    expected = [sum(mask[max(0, at - reach) : at + reach + 1]) for mask in documents for at in range(len(mask))]
    assert found.tolist() == expected


def test_counts_within_a_step() -> None:
    generator = np.random.default_rng(3)
    keys = [generator.integers((1 << 64) - 1, size=300, dtype=np.uint64) for _ in range(2)]
    times = [generator.integers(1, 50, 300) for _ in range(2)]
    table = Table.of([np.repeat(key, often) for key, often in zip(keys, times, strict=True)])
    for half in range(2):
        found = table.count(keys[half], np.full(300, half))
        assert np.mean(np.abs(found / times[half] - 1) < 0.1) > 0.7  # of two in one slot the rarer is lost
        assert np.mean(table.count(keys[1 - half], np.full(300, half)) > 0) < 0.05
