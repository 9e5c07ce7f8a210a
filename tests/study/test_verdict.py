"""Choices of equal bytes, controls that can fail, verdicts that need two kinds of judge."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from datamask.config import resolve
from datamask.errors import InputError
from datamask.study import Item, Target
from datamask.study.coder import BUCKETS, Coder, Ngrams, WordPairs, words_of
from datamask.study.run import read_choices
from datamask.study.targets import (
    BETWEEN,
    CLEAN,
    CONTROLS,
    JUNK,
    RANDOM,
    SHUFFLED,
    bytes_of,
    choices,
    most_bytes,
    shuffle_words,
)
from datamask.study.verdict import NO_VERDICT, JudgeReadings, JudgeSize, conclude, controls
from tests.study.test_inference import coded, readings

SUBJECTS = "the king,a sailor,my sister,this old dog,every teacher,our neighbour".split(",")
VERBS = "sees,finds,carries home,does not like,talks about,paints".split(",")
OBJECTS = "the red house,a small boat,seven apples,the long road,an open door,cold water".split(",")


def sentence(generator: np.random.Generator) -> str:
    return " ".join(generator.choice(part) for part in (SUBJECTS, VERBS, OBJECTS)) + ". "


def documents(seed: int, count: int, sentences: int = 12) -> list[bytes]:
    generator = np.random.default_rng(seed)
    return ["".join(sentence(generator) for _ in range(sentences)).encode() for _ in range(count)]


def noise(seed: int, count: int) -> list[bytes]:
    generator = np.random.default_rng(seed)
    return [generator.integers(97, 123, 300, dtype=np.uint8).tobytes() for _ in range(count)]


@pytest.fixture(scope="module")
def targets() -> list[Target]:
    return [Target(name, tuple(Item(text) for text in documents(seed, 40, 2))) for name, seed in (("a", 7), ("b", 8))]


@pytest.fixture(scope="module")
def pools():
    """Half sense, half the same backwards: an arm that takes sense is better than random, the other is worse."""
    found = []
    for seed in range(1, 5):
        texts = documents(seed, 120) + [text[::-1] for text in documents(seed + 50, 120)]
        sense = np.arange(240) < 120
        found.append((texts, {"default": sense, "top-quality": ~sense, "semdedup": sense}))
    return found


@pytest.fixture(scope="module")
def heard(pools, targets):
    """By the n-grams, which read much faster than the coder."""
    return read_choices(Ngrams(), pools, targets, 12_000, 8, 3, 0, lambda line: None)


def test_every_choice_has_the_same_bytes_and_none_is_like_another(pools):
    texts, masks = pools[0]
    made = list(choices(texts, masks, 9_000, 8, 0, controls=2))
    assert {len(choice) for _, _, choice in made} == {9_000}
    assert [name for name, _, _ in made] == [RANDOM] * 8 + list(masks) + [SHUFFLED, CLEAN, JUNK] * 2
    assert len({choice for name, _, choice in made if name == RANDOM}) == 8
    again = list(choices(texts, masks, 9_000, 8, 0, controls=2))
    assert made == again
    assert {name: choice for name, _, choice in made}["default"] != {n: c for n, _, c in made}["top-quality"]


def test_shuffled_draws_hold_the_random_draws_words(pools):
    texts, _ = pools[0]
    made = {(name, draw): choice for name, draw, choice in choices(texts, {}, 9_000, 8, 0, controls=1)}
    before, after = made[RANDOM, 0], made[SHUFFLED, 0]
    assert sorted(before.split()) == sorted(after.split()) and before != after
    same = [a == b for a, b in zip(before.split(BETWEEN), after.split(BETWEEN))]
    assert 0.6 < np.mean(same) < 0.8  # 30 % of the documents are shuffled


def test_shuffling_keeps_length_words_and_white_space():
    texts = [b"one two  three\nfour five", b"six\tseven eight nine ten"] * 20
    after = shuffle_words(texts, np.random.default_rng(0))
    assert [len(text) for text in after] == [len(text) for text in texts]
    assert sum(a != b for a, b in zip(after, texts)) in (11, 12)
    assert all(sorted(a.split()) == sorted(b.split()) for a, b in zip(after, texts))


def test_a_choice_that_is_too_small_and_a_taken_name_are_refused(pools):
    texts, masks = pools[0]
    with pytest.raises(InputError, match="arm default: the choice holds .* fewer than the 90,000"):
        list(choices(texts * 2, {"default": np.r_[masks["default"], masks["default"] & False]}, 90_000, 8, 0))
    with pytest.raises(InputError, match="an arm is called 'random'"):
        list(choices(texts, {RANDOM: masks["default"]}, 100, 8, 0))


def test_controls_pass_on_a_judge_that_reads_and_fail_on_one_that_does_not(heard):
    assert [control.passed for control in controls(heard.readings)] == [True, True, True]
    blind = {
        arm: [[{t: coded(t, np.full(40, 90.0)) for t in "ab"} for _ in draws] for draws in by_pool]
        for arm, by_pool in heard.readings.items()
    }
    found = {control.name: control for control in controls(blind)}
    assert not found["words shuffled"].passed and not found["planted junk"].passed
    partial = {arm: by_pool for arm, by_pool in heard.readings.items() if arm not in CONTROLS}
    assert {control.name: control.passed for control in controls(partial)} == {
        "A/A": True, "words shuffled": False, "planted junk": False
    }  # fmt: skip


def test_random_draws_that_differ_fail_the_control(heard):
    drifting = [
        [{t: coded(t, c.bits + 400 * draw) for t, c in read.items()} for draw, read in enumerate(draws)]
        for draws in heard.readings[RANDOM]
    ]
    shaken = {**heard.readings, RANDOM: drifting}
    assert not controls(shaken)[0].passed and "not told apart" in controls(shaken)[0].said


def test_planted_junk_loses_against_the_same_pool_without_it(heard):
    assert {CLEAN, JUNK} <= set(heard.readings)
    for clean, junk in zip(heard.readings[CLEAN], heard.readings[JUNK]):
        assert all(c["a"].bits_per_byte < j["a"].bits_per_byte for c, j in zip(clean, junk))


NAMED = [("default", "random"), ("default", "top-quality"), ("default", "semdedup")]


def test_one_kind_of_judge_gives_no_verdict_two_that_agree_do(heard):
    alone = conclude({"coder": heard}, NAMED)
    assert {verdict.says for verdict in alone.verdicts} == {NO_VERDICT}
    assert "a verdict needs judges of two kinds" in alone.verdicts[0].why
    both = conclude({"coder": heard, "net": JudgeReadings("network", heard.readings)}, NAMED)
    assert [verdict.says for verdict in both.verdicts] == ["better", "better", "not told apart"]
    assert both.agreement == {"coder, net": pytest.approx(1.0)}


def test_a_verdict_states_how_much_its_judges_read_and_how_large_they_are(heard):
    net = JudgeReadings("network", heard.readings, reach=JudgeSize(12_000, 160_000, 2.0))
    verdict = conclude({"coder": heard, "net": net}, NAMED).verdicts[0]
    assert verdict.reach == {"coder": JudgeSize(12_000), "net": JudgeSize(12_000, 160_000, 2.0)}
    assert str(verdict.reach["net"]) == "12,000 bytes a choice, 0.16 M parameters, 2 epochs"
    assert str(verdict.reach["coder"]) == "12,000 bytes a choice, no parameters, 1 epoch"


def test_judges_that_contradict_each_other_give_no_verdict(heard):
    turned = {
        "default": heard.readings["top-quality"],
        "top-quality": heard.readings["default"],
        **{arm: by for arm, by in heard.readings.items() if arm not in ("default", "top-quality")},
    }
    found = conclude({"coder": heard, "net": JudgeReadings("network", turned)}, NAMED[:1])
    assert found.verdicts[0].says == NO_VERDICT and "contradict each other" in found.verdicts[0].why


def test_a_judge_that_failed_a_control_is_not_heard(heard):
    partial = {arm: by_pool for arm, by_pool in heard.readings.items() if arm != JUNK}
    found = conclude({"coder": heard, "net": JudgeReadings("network", partial)}, NAMED[:1])
    assert found.verdicts[0].says == NO_VERDICT
    assert "net failed its control planted junk: was not read" in found.verdicts[0].why


@pytest.mark.parametrize("worse,passed", [(5.0, True), (0.0, False)])
def test_a_control_of_few_draws_is_told_apart_by_the_spread_of_the_random_ones(worse, passed):
    arms = {RANDOM: 0.0, SHUFFLED: worse, JUNK: worse, CLEAN: 0.0}  # one draw of each control, eight random ones
    found = controls(readings(np.random.default_rng(3), arms))
    assert [control.passed for control in found] == [True, passed, passed]


@pytest.mark.slow
def test_the_pools_own_documents_are_shown_and_in_no_mean(pools, targets):
    own = Target("own", tuple(Item(text) for text in pools[0][0][:10]), own=True)
    read = read_choices(Coder(), pools, [*targets, own], 12_000, 8, 3, 0, lambda line: None)
    found = conclude({"coder": read}, NAMED, own=["own"]).judges[0]
    plain = conclude(
        {"coder": read_choices(Coder(), pools, targets, 12_000, 8, 3, 0, lambda line: None)}, NAMED
    ).judges[0]
    assert found.means == plain.means and found.own["default"] != found.means["default"]


def test_words_cost_what_witten_and_bell_say():
    """By the formula over dictionaries, on a text small enough to count by hand."""
    choice, asked = b"a b a c a b", [b"a", b"b"]
    assert words_of(b"The cat, the CAT").tolist() == words_of(b"the CAT , The cat").tolist()
    bucket = {word: int(words_of(word)[0]) for word in (b"a", b"b", b"c", b"z")}
    alone = {word: (count + 1) / (6 + BUCKETS) for word, count in ((b"a", 3), (b"b", 2), (b"c", 1), (b"z", 0))}
    pairs = WordPairs(choice)
    for before, word, seen, all_after, kinds in (
        (b"a", b"b", 2, 3, 2), (b"a", b"c", 1, 3, 2), (b"a", b"z", 0, 3, 2), (b"b", b"a", 1, 1, 1),
    ):  # fmt: skip
        expected = (seen + kinds * alone[word]) / (all_after + kinds)
        found = pairs.given(np.array([bucket[before]]), np.array([bucket[word]]))
        assert found.tolist() == pytest.approx([expected])
    never = pairs.given(np.array([bucket[b"z"]]), np.array([bucket[b"a"]]))
    assert never.tolist() == pytest.approx([alone[b"a"]])  # nothing was seen after z: the word's own
    everything = pairs.given(np.full(BUCKETS, bucket[b"a"]), np.arange(BUCKETS))
    assert everything.sum() == pytest.approx(1)
    read = Ngrams().read(choice, [Target("t", (Item(b" ".join(asked)),) * 8)])["t"]
    bits = -np.log2(alone[b"a"]) - np.log2((2 + 2 * alone[b"b"]) / 5)
    assert read.bits.tolist() == pytest.approx([bits] * 8)


def test_the_ngrams_see_words_shuffled(pools, targets):
    found = read_choices(Ngrams(), pools, targets, 12_000, 8, 4, 0, lambda line: None).readings
    assert {control.name: control.passed for control in controls(found)}["words shuffled"]


def test_a_choice_of_one_word_has_no_pairs():
    read = Ngrams().read(b"word", [Target("t", (Item(b"another word"), Item(b"")) * 4)])["t"]
    assert np.isfinite(read.bits).all() and read.bits[1] == 0


@pytest.mark.parametrize("budget", [{"budget_documents": 3}, {"budget_tokens": 40}, {"select_ratio": 0.3}])
def test_no_choice_within_the_budget_holds_more_than_the_most(budget):
    """By brute force over all choices of nine documents; and under documents one of them holds exactly that."""
    generator = np.random.default_rng(2)
    texts = [b"x" * int(size) for size in generator.integers(5, 200, 9)]
    tokens = generator.integers(5, 30, 9)
    settings = resolve(None, budget)
    masks = np.array(list(product([False, True], repeat=9)))
    if "budget_tokens" in budget:
        fits = masks @ tokens <= 40
    else:
        fits = masks.sum(axis=1) <= budget.get("budget_documents", 3)
    held = max(bytes_of(texts, mask) for mask in masks[fits])
    most = most_bytes(texts, tokens, settings)
    assert held <= most and (held == most or "budget_documents" not in budget)
