"""Shingles against plain Python sets; what normalisation ignores; what a signature samples."""

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datamask.filter.held_texts import numbered
from datamask.filter.pair_loops import likeness_doubled
from datamask.filter.postings import sampled
from datamask.filter.shingles import Likeness, likeness, shingles
from datamask.filter.signatures import COARSEST, SAMPLE, sample_bound, sign_texts
from datamask.text.letters import WINDOW
from tests.filter.array_forms import codes_of, windows

TEXT = "The quick brown fox, as they say, jumps over the lazy dog: not once but 27 times a day."


def plain(text: str) -> set[str]:
    """Windows of 12 letters of a Latin text, the slow way; numbers with only marks between them are one sign."""
    letters = "".join(c for c in re.sub(r"\d(?:[^a-zA-Z]*\d)?", "0", text.lower()) if c.isalnum())
    return {letters[i : i + WINDOW] for i in range(len(letters) - WINDOW + 1)} or ({letters} if letters else set())


@hypothesis_settings(deadline=None)
@given(st.lists(st.text("abcdEFG 12,.\n", max_size=60), min_size=1, max_size=8))
def test_windows_are_those_of_plain_python_in_every_text_of_a_block(texts):
    found = windows(*codes_of(pa.array(texts)))
    for place, text in enumerate(texts):
        first, count = found.first[place], found.count[place]
        assert len(set(found.hashes[first : first + count].tolist())) == len(plain(text))
        assert len(shingles(text)) == len(plain(text))
        assert np.array_equal(shingles(text), np.unique(windows(*codes_of(pa.array([text]))).hashes))


@hypothesis_settings(deadline=None)
@given(st.text("abc", min_size=0, max_size=120), st.text("abc", min_size=0, max_size=120))
def test_doubled_shingles_are_as_alike_as_windows_of_24_letters(one, other):
    sets = []
    for text in (one, other):
        width = 2 * WINDOW if len(text) >= 2 * WINDOW else min(WINDOW, max(1, len(text)))
        sets.append({text[place : place + width] for place in range(len(text) - width + 1)} if text else set())
    found = windows(*codes_of(pa.array([one, other])))
    made = [found.hashes[a : a + n] for a, n in zip(found.first, found.count, strict=True)]
    union = len(sets[0] | sets[1])
    jaccard = len(sets[0] & sets[1]) / union if all(sets) and union else 0.0
    (one, mine), (other, theirs) = map(numbered, made)
    assert likeness_doubled(one, mine, other, theirs, WINDOW) == pytest.approx(jaccard)


@hypothesis_settings(deadline=None)
@given(st.text("abcde ", min_size=20, max_size=80), st.text("abcde ", min_size=20, max_size=80))
def test_likeness_is_that_of_sets(one, other):
    a, b = plain(one), plain(other)
    found = likeness(shingles(one), shingles(other))
    if a and b:
        assert found == pytest.approx((len(a & b) / len(a | b), len(a & b) / min(len(a), len(b))))
    else:
        assert found == Likeness(0, 0)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "Füße über die Straße, Ærø",
        "Ο Σωκράτης ήρθε στην Αθήνα",
        "እንዴት ነህ ሰላም ለዓለም",
        "我们今天去公园散步。",
        "안녕하세요 세계",
    ],
)
def test_case_spaces_punctuation_and_accents_do_not_matter(text):
    own = shingles(text)
    bare = "".join(c for c in text if c.isalnum())
    upper = text.replace("ß", "ẞ").upper()
    for copy in (upper, "".join(text.split()), text.replace(" ", " \r\n "), bare, unicodedata.normalize("NFD", text)):
        if "안녕" in text and copy != text and not unicodedata.is_normalized("NFC", copy):
            continue  # Hangul in single letters is another text
        assert np.array_equal(shingles(copy), own), copy


def test_texts_without_letters_or_shorter_than_a_window():
    assert not len(shingles("")) and not len(shingles("… !!"))
    assert len(shingles("ok")) == 1 and np.array_equal(shingles("OK."), shingles("ok"))
    assert not np.array_equal(shingles("ok"), shingles("oh"))


def test_a_rare_ideograph_and_a_lone_surrogate_are_read():
    assert len(shingles("\U00020000\U00020001\U00020002\U00020003\U00020004"))
    assert np.array_equal(shingles("abc\ud800def"), shingles("abcdef"))


def test_a_signature_samples_by_the_bound_of_its_length():
    generator = np.random.default_rng(0)
    words = np.array(["".join(generator.choice(list("abcdefghij"), 6)) for _ in range(500)])
    texts = [" ".join(generator.choice(words, n)) for n in (1, 10, 60, 400, 4000)] + [None, "  "]
    batch = sign_texts(pa.array(range(len(texts))), pa.array(texts, pa.string()))
    count = batch["windows"].to_numpy()
    assert count[-1] == count[-2] == 0
    scale = batch["scale"].to_numpy().astype(np.int64)
    assert (scale <= COARSEST).all() and scale[0] == 0 and scale[4] == COARSEST
    whole = windows(*codes_of(pa.array(texts, pa.string())))
    for place, sample in enumerate(batch["sample"].to_pylist()):
        first = whole.first[place]
        wide = np.unique(whole.wide(np.arange(first, first + whole.count[place])))
        assert sample == wide[wide <= sample_bound(scale[[place]])[0]].tolist()
    assert SAMPLE / 2 <= len(batch["sample"][3]) <= 3 * SAMPLE
    lengths = np.array([len(s) for s in batch["sample"].to_pylist()])
    counted = sampled(lengths, batch["sample"].flatten().to_numpy()).astype(int)
    assert (np.diff(counted, axis=1) <= 0).all() and (counted[:, 0] == lengths).all()


def test_signatures_do_not_depend_on_what_is_read_with_them():
    alone = sign_texts(pa.array([0]), pa.array([TEXT]))
    among = sign_texts(pa.array([0, 1, 2]), pa.array(["x" * 50, TEXT, None]))
    assert alone.to_pylist()[0]["sample"] == among.to_pylist()[1]["sample"]


@pytest.mark.parametrize("several", [1, 3, 40])
@pytest.mark.parametrize("windows", [0, 1, 2, 7, 1000])
def test_windows_are_numbered_by_their_shingles(windows, several):
    """Of texts that repeat themselves too, and of hashes that are not spread evenly."""
    generator = np.random.default_rng(windows)
    for most in (1 << 32, 1 << 9):
        hashes = generator.integers(0, most, windows // several + 1, np.uint32).repeat(several)[:windows]
        generator.shuffle(hashes)
        shingles, numbers = numbered(hashes)
        assert np.array_equal(shingles, np.unique(hashes)) and np.array_equal(shingles[numbers], hashes)
        assert shingles.dtype == numbers.dtype == np.uint32
