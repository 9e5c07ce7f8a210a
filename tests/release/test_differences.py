"""Two texts side by side: nothing is lost, nothing is marked that both have, and it stays bounded."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.release.differences import SHOWN, clean_line, compare, excerpt, shared_words

WORDS = st.lists(st.sampled_from(["sea", "ship", "the", "ሰላም", "नमस्ते", "1,000", "(", "今"]), max_size=40)


@given(WORDS, WORDS)
@settings(deadline=None)
def test_parts_of_short_texts_are_the_texts(a, b):
    first, second = " ".join(a), " ".join(b)
    found = compare(first, second)
    if not any(kind == "gap" for kind, _ in [*found.first, *found.second]):
        assert "".join(text for _, text in found.first).split() == first.split()
        assert "".join(text for _, text in found.second).split() == second.split()
        same = [["".join(t for k, t in side if k == "same").split()] for side in (found.first, found.second)]
        assert "".join(same[0][0]) == "".join(same[1][0])
    assert found.shared == shared_words(first, second) and 0 <= found.shared <= 1


def test_what_differs_is_marked():
    found = compare("The quick brown fox ran home", "The quick red fox ran home")
    assert ["only", "brown "] in found.first and ["only", "red "] in found.second
    assert not any(kind == "only" for kind, _ in compare("a b c", "a  b\nc").first)


def test_long_equal_runs_become_gaps_and_long_texts_stay_bounded():
    found = compare("w " * 5000 + "end", "w " * 5000 + "stop")
    shown = sum(len(text.split()) for kind, text in found.first if kind != "gap")
    assert shown <= SHOWN and any(kind == "gap" for kind, _ in found.first)
    words = [str(number) for number in range(3000)]
    random.Random(0).shuffle(words)
    found = compare(" ".join(words), " ".join(reversed(words)))
    assert sum(len(text.split()) for kind, text in found.second if kind != "gap") <= SHOWN
    assert found.shared == 1


def test_scripts_without_spaces_are_compared_by_letters():
    found = compare("我们今天去北京吃饭", "我们昨天去北京吃饭")
    assert ["only", "今"] in found.first and ["only", "昨"] in found.second


def test_nothing_unsafe_is_shown():
    hostile = "a\u202eb\x00c\x07 d\ue000"
    assert clean_line(hostile) == "abc d" and excerpt(hostile, 4) == "abc…"
    parts = compare(hostile, "x").first
    assert not any(c in text for _, text in parts for c in "\u202e\x00\x07\ue000")
