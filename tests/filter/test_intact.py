"""Which of two copies is taken for the altered one."""

import itertools
import json
import random
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from datamask.filter.held_texts import HeldTexts
from datamask.filter.intact import Text, TextPair, likelier, pairs_of, prose_beside, which_falls
from datamask.filter.pair_loops import held_by_both, missing_runs, repeated
from datamask.filter.shingles import likeness
from datamask.filter.siblings import garbled, reworded
from datamask.filter.verify_pairs import UNSPACED
from datamask.text.letters import WINDOW

GENERATOR = random.Random(0)
TOPIC = ["harbour", "fisherman", "Lighthouse", "tide", "nets", "boats", "captain", "storm", "village", "market"]
COMMON = ["the", "of", "and", "a", "to", "in", "was", "it", "for", "on", "with", "as"]
STRANGE = ["".join(random.Random(n).choices("bcdfgjkmpquvxyz", k=4 + n % 5)) for n in range(5000)]


def sentence(words: list[str]) -> str:
    chosen = [GENERATOR.choice(words if GENERATOR.random() < 0.5 else COMMON) for _ in range(12)]
    return " ".join(chosen).capitalize() + "."


ORIGINAL = "\n".join(" ".join(sentence(TOPIC) for _ in range(4)) for _ in range(6))


def text(value: str) -> Text:
    held = HeldTexts(lambda documents: [(documents, pa.array([value]))], np.arange(1), np.zeros(1, np.int64))
    held.hold(np.arange(1))
    return held[0]


def pair(one: Text, other: Text) -> TextPair:
    return pairs_of([one, other], np.array([0]), np.array([1]), 0.0, 0.0, 0.0)[0]


def changed(share: float, insert: bool) -> str:
    words = ORIGINAL.split(" ")
    at = set(GENERATOR.sample(range(len(words)), round(share * len(words))))
    made = []
    for place, word in enumerate(words):
        made += [GENERATOR.choice(STRANGE)] * (place in at) + [word] * (place not in at or insert)
    return " ".join(made)


def mail(quoted: str) -> str:
    return ORIGINAL + "\n\nOn Monday she wrote:\n" + "\n".join(f"> {line}" for line in quoted.split("\n"))


OTHER = "\n".join(" ".join(sentence(STRANGE) for _ in range(4)) for _ in range(6))
# told by the text alone
ALTERED = {
    "capitals": ORIGINAL.upper(),
    "no capitals": ORIGINAL.lower(),
    "doubled spaces": ORIGINAL.replace(" ", "  "),
    "no spaces": "".join(ORIGINAL.split()),
    "one line": " ".join(ORIGINAL.split()),
    "no punctuation": ORIGINAL.replace(".", ""),
    "carriage returns": ORIGINAL.replace("\n", "\r\n"),
    "HTML": "".join(f"<p>{line}</p>" for line in ORIGINAL.split("\n")),
    "entities": ORIGINAL.replace("e", "&#101;"),
    "signs of equality": ORIGINAL.replace("a ", "a = "),
    "JSON": json.dumps(ORIGINAL.replace("e", "é")),
    "percent": urllib.parse.quote(ORIGINAL),
    "Cyrillic letters": ORIGINAL.replace("a", "а").replace("e", "е"),
    "a broken character": ORIGINAL[:500] + "\ufffd\ufffd" + ORIGINAL[502:],
    "question marks": ORIGINAL[:500].replace("ar", "?r") + ORIGINAL[500:],
    "a half": ORIGINAL[: len(ORIGINAL) // 2],
    "more quotation": mail(OTHER),
}
# told by the counts, of which some are asked here, or by the score
TOLD = {
    "words inserted": changed(0.03, insert=True),
    "words replaced": changed(0.1, insert=False),
    "lost letters": ORIGINAL.replace("ar", " "),
    "said twice": ORIGINAL + "\n" + ORIGINAL,
}


@pytest.mark.parametrize("what", ALTERED)
def test_the_altered_copy_is_told_whichever_comes_first(what):
    a, b = text(ORIGINAL), text(ALTERED[what])
    for margin in (-0.5, 0.5):  # whatever the score says
        assert which_falls(pair(a, b), 0.0, margin) == 1
        assert which_falls(pair(b, a), 0.0, -margin) == -1


def test_a_reply_that_says_something_of_its_own_does_not_fall_for_its_quotation() -> None:
    quoted = "\n".join(f"> {line}" for line in ORIGINAL.split("\n"))
    asked, brief = text(ORIGINAL), text(f"Thanks!\n\n{quoted}")
    answered = text(OTHER[:600] + f"\n\n{quoted}")
    assert which_falls(pair(asked, brief)) == 1
    assert which_falls(pair(asked, answered)) == -1


@pytest.mark.parametrize("what", TOLD)
def test_words_that_do_not_belong_are_told_by_the_counts_then_by_the_score(what):
    a, b = text(ORIGINAL), text(TOLD[what])
    assert which_falls(pair(a, b), 5.0, -0.5) == 1 and which_falls(pair(b, a), -5.0, 0.5) == -1
    assert which_falls(pair(a, b), 0.0, 0.5) == 1 and which_falls(pair(b, a), 0.0, -0.5) == -1


def test_of_copies_as_intact_the_longer_one_stays_and_equal_ones_are_equal():
    fuller = text(ORIGINAL + " It ended well for everybody who had stayed on shore that night.")
    a = text(ORIGINAL)
    assert which_falls(pair(a, fuller)) == -1
    assert which_falls(pair(a, text(ORIGINAL))) == 0
    assert which_falls(pair(a, text(ORIGINAL)), 0.0, float("nan")) == 0


def test_texts_are_the_same_if_their_figures_are():
    one, other = text(ORIGINAL + " 12 boats."), text(ORIGINAL + " 7,130 boats.")
    assert pair(one, other).like.jaccard == 1 and not pair(one, other).same
    assert pair(one, one).same
    counts = [text(f"{ORIGINAL} {count} boats.") for count in range(10, 20)]
    assert not any(pair(fewer, more).same for fewer, more in itertools.pairwise(counts))


def test_own_letters_are_those_that_were_put_in():
    a = text("one two three four five six seven eight nine ten eleven twelve")
    b = text("one two three four five six zebra seven eight nine ten eleven twelve")
    mine, theirs = pair(b, a).own
    assert (mine.letters, mine.places) == (5, 1) and theirs[:2] == (1, 0)
    assert pair(a, a).own[0].places == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_a_text_has_of_its_own_is_what_a_plain_count_says(seed: int) -> None:
    """Letters no window of which is in the other text, and those between two such windows alone."""
    generator = random.Random(seed)
    one, other = (text("".join(generator.choices("ab1", k=generator.randrange(40)))) for _ in range(2))
    if seed % 2:
        kept = "".join(map(chr, one.units))
        at = generator.randrange(len(kept) + 1)
        one = text(kept[:at] + "x1y" + kept[at:] + "9" * (seed % 3))
    both = pair(one, other)
    found = both.own[0]
    present = np.isin(one.shingles, other.shingles)[one.numbers].tolist()
    covered = {letter for place, there in enumerate(present) if there for letter in range(place, place + 12)}
    letters = [letter for letter in range(len(one.units)) if letter not in covered]
    assert found.letters == len(letters)
    assert found.places == sum(not there and (place == 0 or present[place - 1]) for place, there in enumerate(present))
    runs = missing_runs(one.numbers, np.isin(one.shingles, other.shingles), len(one.units), WINDOW)
    assert sum(stop - start for start, stop in runs) == found.letters
    assert found.longest == max((stop - start for start, stop in runs), default=0)
    assert both.own == pair(other, one).own[::-1]
    assert both.like == pair(other, one).like


def test_copies_differ_by_words_and_relatives_by_sentences():
    assert reworded(pair(text(ORIGINAL), text(changed(0.1, insert=False))))
    lines = ORIGINAL.split("\n")
    other = "\n".join([*lines[:3], sentence(STRANGE), *lines[4:]])
    assert not reworded(pair(text(ORIGINAL), text(other)))


MENU = "\n".join(f"{name}\nPrices and offers" for name in ("Home", "About", "Shop", "Basket", "Log in") * 12)


def test_menus_are_no_prose_beside_a_text_and_its_other_half_is():
    page, half = text(MENU + "\n" + ORIGINAL), text(ORIGINAL[: len(ORIGINAL) // 2])
    assert prose_beside(text(ORIGINAL), page) == 0 and prose_beside(half, text(ORIGINAL)) > 0.9
    assert prose_beside(text(MENU), page) == 1  # of what is no prose itself nothing is said


@pytest.mark.parametrize(
    ("nats", "margin", "falls"),
    [(600.0, 1.0, "page"), (1500.0, -0.2, "page"), (0.0, 0.0, "text"), (0.0, 1.0, "page"), (-900.0, 0.5, "text")],
)
def test_a_page_falls_to_its_text_if_what_it_adds_is_foreign(nats, margin, falls):
    page, own = text(MENU + "\n" + ORIGINAL), text(ORIGINAL)
    assert which_falls(pair(own, page), nats, margin) == (1 if falls == "page" else -1)
    assert which_falls(pair(page, own), -nats, -margin) == (-1 if falls == "page" else 1)


@pytest.mark.parametrize("part", [slice(None, len(ORIGINAL) // 2), slice(len(ORIGINAL) // 2, None)])
def test_the_whole_stays_however_much_better_its_beginning_or_end_scores(part: slice) -> None:
    a, half = text(ORIGINAL), text(ORIGINAL[part])
    assert which_falls(pair(a, half), -900.0, -3.0) == 1 and which_falls(pair(half, a), 900.0, 3.0) == -1
    teasers = ORIGINAL[part] + "\n" + "\n".join(" ".join(STRANGE[at : at + 4]) for at in range(0, 120, 4))
    assert which_falls(pair(half, text(teasers)), 900.0, 3.0) == 1  # what follows is not of its kind
    inside = text(ORIGINAL[20:600])  # cut within words, from what is no prose and quoted besides
    rest = text(f"> {ORIGINAL[:620]}\n\n{MENU}")
    assert which_falls(pair(inside, rest), 900.0, 3.0) == -1 and which_falls(pair(rest, inside), -900.0, -3.0) == 1


def test_another_name_throughout_is_another_document():
    lines = [f"{words} The harbour master of NAME was asked again." for words in ORIGINAL.split("\n")]
    one, other = (text("\n".join(lines).replace("NAME", name)) for name in ("Rotterdam", "Antwerpen"))
    assert [own.echo for own in pair(one, other).own] == pytest.approx([5 / 6] * 2)
    assert not reworded(pair(one, other))


@dataclass(frozen=True)
class Told:
    """Counts that say what a test wants; by default nothing is known."""

    natural: Callable[[Sequence[tuple[str, str]]], list[tuple[float, float]]] = lambda pairs: [
        (float("nan"), float("nan")) for _ in pairs
    ]
    altered: Callable[[Sequence[tuple[str, str]]], list[float]] = lambda pairs: [0.0] * len(pairs)


def test_a_word_put_in_the_place_of_another_is_told_by_how_words_follow_one_another() -> None:
    """Where the altered copy's words recur as often, the corpus's counts decide; without them nobody can."""
    swapped = ORIGINAL.split(" ")
    for place in range(5, len(swapped) - 1, 20):
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    a, b = map(text, (ORIGINAL, " ".join(swapped)))
    assert 0.3 < pair(a, b).like.jaccard < 1

    def altered(pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [9.0 if one == ORIGINAL else -9.0 for one, _ in pairs]

    there, back = pair(a, b), pair(b, a)
    said = likelier([there, pair(a, a), back], [0.0] * 3, Told(altered=altered))
    assert said == [9.0, 0.0, -9.0]  # two texts with the same words are asked about by nobody
    assert which_falls(there, said[0]) == 1 and which_falls(back, said[2]) == -1
    assert likelier([there, back], [0.0, 0.0], Told()) == likelier([there, back], [0.0, 0.0], None) == [0.0, 0.0]


def test_a_copy_is_found_if_its_words_do_not_follow_one_another() -> None:
    words = ORIGINAL.split(" ")
    for place in range(4, len(words), 12):
        words[place] = STRANGE[place] + STRANGE[place + 1]
    a, b = map(text, (ORIGINAL, " ".join(words)))
    worst = {ORIGINAL: 3.0, b.text: 3.0 - (1 - pair(a, b).like.jaccard)}
    said = [(worst[a.text], worst[b.text]), (3.0, 2.99), (float("nan"), float("nan"))]
    assert reworded(pair(a, b))
    assert garbled([pair(a, b)] * 3, Told(natural=lambda pairs: said)) == [True, False, False]
    assert garbled([pair(a, b)], Told()) == garbled([pair(a, b)], None) == [False]
    assert garbled([], Told()) == []


def test_texts_with_a_sentence_of_their_own_each_are_no_copies() -> None:
    own_one = "Nobody had asked the engineers what they thought about replacing every single pump at once."
    own_other = "Yesterday's proposal was withdrawn because two members objected to its fourth paragraph."
    one, other = (text(changed_once(sentence_)) for sentence_ in (own_one, own_other))
    assert min(own.longest for own in pair(one, other).own) > 70
    assert not reworded(pair(one, other))
    assert reworded(pair(text(ORIGINAL), text(changed(0.05, insert=False))))


def changed_once(sentence_: str) -> str:
    first, *rest = ORIGINAL.split("\n")
    return "\n".join([first, sentence_, *rest])


@pytest.mark.parametrize(
    "alphabet",
    [
        "的一是不了人在有我他这中大来上国个到说们为子和你地出道也时年",
        "あいうえおかきくけこさしすせそたちつてとなにぬねの",
    ],
)
def test_copies_in_scripts_without_spaces_are_found_with_a_letter_in_ten_replaced(alphabet: str) -> None:
    generator = random.Random(1)
    letters = generator.choices(alphabet, k=600)
    copy = list(letters)
    for place in generator.sample(range(600), 60):
        copy[place] = "龍"
    a, b = text("".join(letters)), text("".join(copy))
    assert a.unspaced and not text(ORIGINAL).unspaced
    assert pair(a, b).like.jaccard > 0.35 * UNSPACED and reworded(pair(a, b))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_said_again_is_counted_as_sets_of_places_count_it(seed: int) -> None:
    generator = np.random.default_rng(seed)
    units = generator.integers(97, 100, 60).astype(np.uint32)
    cuts = np.sort(generator.choice(61, 16, replace=False)).reshape(-1, 2)
    for least, around in ((1, 0), (2, 0), (1, 2), (9, 1)):
        spans = [units[max(0, a - around) : b + around].tobytes() for a, b in cuts.tolist() if b - a >= least]
        expected = 1 - len(set(spans)) / len(spans) if spans else 0
        assert repeated(units, cuts, least, around) == pytest.approx(expected)


def test_long_places_that_are_said_again_are_counted() -> None:
    part = np.random.default_rng(0).integers(97, 123, 3000).astype(np.uint32)
    units = np.concatenate([part, part, part[:2999], part[:1]])
    cuts = np.array([[0, 3000], [3000, 6000], [6000, 8999], [8999, 9000]])
    assert repeated(units, cuts, 1, 0) == 1 / 4 and repeated(units, cuts[1:], 1, 0) == 0


@pytest.mark.parametrize("sizes", [(0, 300), (3, 300), (300, 3), (1, 17), (16, 256), (90, 100)])
def test_what_two_texts_hold_is_what_sets_say(sizes: tuple[int, int]) -> None:
    generator = np.random.default_rng(sum(sizes))
    one, other = (np.sort(generator.choice(400, size, replace=False)).astype(np.uint32) for size in sizes)
    mine, theirs = np.ones(400, bool), np.ones(400, bool)
    assert held_by_both(one, other, mine, theirs) == len(np.intersect1d(one, other))
    assert np.array_equal(mine[: len(one)], np.isin(one, other))
    assert np.array_equal(theirs[: len(other)], np.isin(other, one))


def test_pairs_found_together_are_told_what_each_is_told_alone() -> None:
    generator = random.Random(9)
    words = ORIGINAL.split(" ")
    texts = [text(ORIGINAL), text(" ".join(words[: len(words) // 2])), text(""), text("short"), text("ein kurzer Satz")]
    for changed in (2, 20):
        made = list(words)
        for _ in range(changed):
            made[generator.randrange(len(made))] = generator.choice(["1234", *words])
        texts.append(text(" ".join(made)))
    one, other = np.array([(a, b) for a in range(len(texts)) for b in range(len(texts))]).T
    asked = 0
    for a, b, found in zip(one, other, pairs_of(texts, one, other, 0.5, 0.3, 0.9), strict=True):
        alone = pair(texts[a], texts[b])
        assert found.like == alone.like == likeness(texts[a].shingles, texts[b].shingles)
        if found.like.jaccard >= 0.5:
            assert found.doubled == alone.doubled
        if not np.isnan(found.own[0].places):
            assert found.own == alone.own
            asked += 1
    assert asked > len(texts)
