"""Which of two copies is taken for the altered one."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from datamask.filter.intact import (
    Own,
    Pair,
    Text,
    garbled,
    likelier,
    most,
    packaging,
    pairs_of,
    replaced,
    reworded,
    worse,
)
from datamask.filter.pair_loops import repeated
from datamask.filter.shingles import once
from datamask.filter.surface import Prose, Surface
from datamask.filter.verify_pairs import UNSPACED
from tests.filter.array_forms import codes_of, prose, surface, windows

GENERATOR = random.Random(0)
TOPIC = ["harbour", "fisherman", "Lighthouse", "tide", "nets", "boats", "captain", "storm", "village", "market"]
COMMON = ["the", "of", "and", "a", "to", "in", "was", "it", "for", "on", "with", "as"]
STRANGE = ["".join(random.Random(n).choices("bcdfgjkmpquvxyz", k=4 + n % 5)) for n in range(5000)]


def sentence(words: list[str]) -> str:
    chosen = [GENERATOR.choice(words if GENERATOR.random() < 0.5 else COMMON) for _ in range(12)]
    return " ".join(chosen).capitalize() + "."


ORIGINAL = "\n".join(" ".join(sentence(TOPIC) for _ in range(4)) for _ in range(6))


def text(value: str) -> Text:
    codes, ends = codes_of(pa.array([value]))
    made = windows(codes, ends)
    hashes = made.hashes[: made.count[0]]
    seen, said = surface(codes, ends), prose(codes, ends)
    shingles = once(hashes)
    numbers = np.searchsorted(shingles, hashes).astype(np.uint32)
    return Text(numbers, shingles, made.units, Surface(*(int(v[0]) for v in seen)), Prose(*(int(v[0]) for v in said)))


def pair(one: Text, other: Text) -> Pair:
    return Pair((one, other))


def changed(share: float, insert: bool) -> str:
    words = ORIGINAL.split(" ")
    at = set(GENERATOR.sample(range(len(words)), round(share * len(words))))
    made = []
    for place, word in enumerate(words):
        made += [GENERATOR.choice(STRANGE)] * (place in at) + [word] * (place not in at or insert)
    return " ".join(made)


ALTERED = {
    "capitals": ORIGINAL.upper(),
    "no capitals": ORIGINAL.lower(),
    "doubled spaces": ORIGINAL.replace(" ", "  "),
    "no spaces": "".join(ORIGINAL.split()),
    "one line": " ".join(ORIGINAL.split()),
    "no punctuation": ORIGINAL.replace(".", ""),
    "carriage returns": ORIGINAL.replace("\n", "\r\n"),
    "words inserted": changed(0.03, insert=True),
    "words replaced": changed(0.1, insert=False),
    "navigation": "Home | About | Contact | Login\n" + ORIGINAL,
    "said twice": ORIGINAL + "\n" + ORIGINAL,
}


@pytest.mark.parametrize("what", ALTERED)
def test_the_altered_copy_is_told_whichever_comes_first(what):
    a, b = text(ORIGINAL), text(ALTERED[what])
    assert worse(pair(a, b)) == 1
    assert worse(pair(b, a)) == -1


def test_a_sentence_more_is_no_blemish_and_equal_copies_are_equal():
    fuller = text(ORIGINAL + " It ended well for everybody who had stayed on shore that night.")
    a = text(ORIGINAL)
    assert worse(pair(a, fuller)) == -1
    assert worse(pair(a, text(ORIGINAL))) == 0


def test_own_letters_are_those_that_were_put_in():
    a = text("one two three four five six seven eight nine ten eleven twelve")
    b = text("one two three four five six zebra seven eight nine ten eleven twelve")
    found = Own(b, a.shingles)
    assert (found.letters, found.places, found.digits) == (5, 1, 0)
    assert (Own(a, b.shingles).letters, Own(a, b.shingles).places) == (0, 1)
    assert np.isnan(Own(a, a.shingles).recurs) and Own(a, a.shingles).places == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_a_text_has_of_its_own_is_what_a_plain_count_says(seed: int) -> None:
    """Letters no window of which is in the other text, and those between two such windows alone."""
    generator = random.Random(seed)
    one, other = (text("".join(generator.choices("ab1", k=generator.randrange(40)))) for _ in range(2))
    if seed % 2:
        kept = "".join(map(chr, one.units))
        at = generator.randrange(len(kept) + 1)
        one = text(kept[:at] + "x1y" + kept[at:] + "9" * (seed % 3))
    found = Own(one, other.shingles)
    present = [bool(np.isin(value, other.shingles)) for value in one.hashes]
    covered = {letter for place, there in enumerate(present) if there for letter in range(place, place + 12)}
    letters = [letter for letter in range(len(one.units)) if letter not in covered]
    assert found.letters == len(letters) and found.digits == sum(48 <= one.units[letter] <= 57 for letter in letters)
    assert found.places == sum(not there and (place == 0 or present[place - 1]) for place, there in enumerate(present))
    assert sum(stop - start for start, stop in found.runs) == found.letters
    pieces = [tuple(one.units[place : place + 6]) for place in range(len(one.units) - 5)]
    own_letters = [len({*range(place, place + 6)} & set(letters)) for place in range(len(pieces))]
    rest = {piece for piece, count in zip(pieces, own_letters, strict=True) if not count}
    mine = [piece for piece, count in zip(pieces, own_letters, strict=True) if count >= 4]
    share = sum(piece in rest for piece in mine) / len(mine) if mine and rest else float("nan")
    assert found.recurs == pytest.approx(share, nan_ok=True)
    both = pair(one, other)
    assert both.own[0].letters == both.turned().own[1].letters == found.letters
    assert both.like == both.turned().like == pair(other, one).like


def test_copies_differ_by_words_and_forms_by_figures_and_relatives_by_sentences():
    assert reworded(pair(text(ORIGINAL), text(changed(0.1, insert=False))))
    words = ORIGINAL.split(" ")
    forms = [" ".join(w if i % 9 else f"{s}{i * 37 % 9000}" for i, w in enumerate(words)) for s in (1, 2)]
    assert not reworded(pair(*map(text, forms)))
    lines = ORIGINAL.split("\n")
    other = "\n".join([*lines[:3], sentence(STRANGE), *lines[4:]])
    assert not reworded(pair(text(ORIGINAL), text(other)))


def test_surfaces_are_those_of_each_text_whatever_lies_beside_it():
    texts = ["A b.", "", "x  y", ORIGINAL]
    together = surface(*codes_of(pa.array(texts)))
    for place, value in enumerate(texts):
        alone = surface(*codes_of(pa.array([value])))
        assert [int(v[place]) for v in together] == [int(v[0]) for v in alone]


MENU = "\n".join(f"{name}\nPrices and offers" for name in ("Home", "About", "Shop", "Basket", "Log in") * 12)


def test_menus_are_packaging_and_the_other_half_of_a_text_is_not():
    page, half = text(MENU + "\n" + ORIGINAL), text(ORIGINAL[: len(ORIGINAL) // 2])
    assert packaging(text(ORIGINAL), page) and most(text(ORIGINAL), page)
    assert not packaging(half, text(ORIGINAL))
    assert not packaging(text(ORIGINAL), text(ORIGINAL))


def test_a_quotation_is_not_most_of_what_it_stands_in():
    longer = ORIGINAL + "\n" + "\n".join(" ".join(sentence(TOPIC) for _ in range(4)) for _ in range(12))
    assert not most(text(ORIGINAL), text(longer))


def test_another_name_throughout_is_another_document():
    lines = [f"{words} The harbour master of NAME was asked again." for words in ORIGINAL.split("\n")]
    one, other = (text("\n".join(lines).replace("NAME", name)) for name in ("Rotterdam", "Antwerpen"))
    assert Own(one, other.shingles).echo == Own(other, one.shingles).echo == pytest.approx(5 / 6)
    assert not reworded(pair(one, other))


@pytest.mark.parametrize(
    "value", ["", "\n\n", "Home\n", "x" * 80, "A sentence that is long enough to be told from others.\n\nHome"]
)
def test_prose_is_that_of_each_text_whatever_lies_beside_it(value):
    texts = ["Home\nNews", value, ORIGINAL, "", value]
    together = prose(*codes_of(pa.array(texts)))
    for place, one in enumerate(texts):
        lines = one.splitlines(keepends=True)
        said = [line for line in lines if len(line) >= 80 or (len(line) >= 40 and "." in line.rstrip("\n")[-2:])]
        assert int(together.characters[place]) == len(one)
        assert int(together.prose[place]) == sum(map(len, said))


@dataclass(frozen=True)
class Told:
    """Counts that say what a test wants; by default nothing is known."""

    natural: Callable[[Sequence[tuple[str, str]]], list[tuple[float, float]]] = lambda pairs: [
        (float("nan"), float("nan")) for _ in pairs
    ]
    altered: Callable[[Sequence[tuple[str, str]]], list[float]] = lambda pairs: [0.0] * len(pairs)


def test_an_original_that_repeats_itself_is_no_altered_copy() -> None:
    """A page of commands begins each with the same words; words put in their place break that."""
    commands = [f"swapbox --output-format text --region {word}" for word in [*TOPIC, *COMMON]]
    broken = [f"{line[:8]}{STRANGE[n]}{line[15:]}" if n % 2 else line for n, line in enumerate(commands)]
    a, b = text("\n".join(commands)), text("\n".join(broken))
    assert len(a.hashes) / len(a.shingles) > 1.15 * len(b.hashes) / len(b.shingles)
    assert pair(a, b).like.jaccard < 0.8
    assert worse(pair(a, b)) == 1 and worse(pair(b, a)) == -1


def test_a_word_put_in_the_place_of_another_is_told_by_how_words_follow_one_another() -> None:
    """Where the altered copy's words recur as often, the corpus's counts decide; without them nobody can."""
    swapped = ORIGINAL.split(" ")
    for place in range(5, len(swapped) - 1, 20):
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    a, b = (replace(text(value), text=value) for value in (ORIGINAL, " ".join(swapped)))
    assert 0.3 < pair(a, b).like.jaccard < 1

    def altered(pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [9.0 if one == ORIGINAL else -9.0 for one, _ in pairs]

    there, back = pair(a, b), pair(b, a)
    said = likelier([there, pair(a, a), back], Told(altered=altered))
    assert said == [9.0, 0.0, -9.0]  # two texts with the same words are asked about by nobody
    assert worse(there, said[0]) == 1 and worse(back, said[2]) == -1
    assert likelier([there, back], Told()) == likelier([there, back], None) == [0.0, 0.0]


def test_a_copy_full_of_figures_is_found_if_its_words_do_not_follow_one_another() -> None:
    words = ORIGINAL.split(" ")
    for place in range(4, len(words), 12):
        words[place] = str(10_000_000 + place * 7919)
    a, b = (replace(text(value), text=value) for value in (ORIGINAL, " ".join(words)))
    assert not reworded(pair(a, b))
    worst = {ORIGINAL: 3.0, b.text: 3.0 - (1 - pair(a, b).like.jaccard)}
    said = [(worst[a.text], worst[b.text]), (3.0, 2.99), (float("nan"), float("nan"))]
    assert replaced(pair(a, b))
    assert garbled([pair(a, b)] * 3, Told(natural=lambda pairs: said)) == [True, False, False]
    assert garbled([pair(a, b)], Told()) == garbled([pair(a, b)], None) == [False]
    assert garbled([], Told()) == []


def test_texts_with_a_sentence_of_their_own_each_are_no_copies() -> None:
    own_one = "Nobody had asked the engineers what they thought about replacing every single pump at once."
    own_other = "Yesterday's proposal was withdrawn because two members objected to its fourth paragraph."
    one, other = (text(changed_once(sentence_)) for sentence_ in (own_one, own_other))
    assert min(Own(one, other.shingles).longest, Own(other, one.shingles).longest) > 70
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
        assert ("doubled" in vars(found)) == (found.like.jaccard >= 0.5)
        assert found.like == alone.like and found.doubled == alone.doubled
        for mine, theirs in zip(found.own, alone.own, strict=True):
            asked += "measured" in vars(mine)
            assert mine.measured == theirs.measured
            assert mine.places == len(theirs.runs) and mine.letters == np.diff(theirs.runs).sum()
    assert asked > 2 * len(texts)
