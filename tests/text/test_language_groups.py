"""Groups of texts by language, from the letters alone."""

from __future__ import annotations

import numpy as np
import pytest

from datamask.text.language_groups import language_groups

SENTENCES = {
    "English": "the house stands on the hill and everyone who lives there knows which way the wind will blow today",
    "German": "das haus steht auf dem hügel und jeder der dort wohnt weiß woher der wind heute wehen wird und warum",
    "Swahili": "nyumba iko juu ya kilima na kila mtu anayeishi huko anajua upepo utavuma kutoka wapi leo asubuhi",
    "Russian": "дом стоит на холме и каждый кто там живёт знает откуда сегодня будет дуть ветер и почему это так",
    "Bulgarian": "къщата стои на хълма и всеки който живее там знае откъде ще духа вятърът днес и защо това е така",
    "Korean": "집은 언덕 위에 서 있고 그곳에 사는 모든 사람은 오늘 바람이 어디에서 불어올지 알고 있습니다",
    "Hindi": "घर पहाड़ी पर खड़ा है और वहाँ रहने वाला हर व्यक्ति जानता है कि आज हवा किस ओर से चलेगी",
}


def texts(each: int) -> tuple[list[str], np.ndarray]:
    generator = np.random.default_rng(0)
    found = [" ".join(generator.choice(sentence.split(), 40)) for sentence in SENTENCES.values() for _ in range(each)]
    return found, np.repeat(np.arange(len(SENTENCES)), each)


def test_languages_and_scripts_are_told_apart() -> None:
    found, language = texts(60)
    groups, kinds = language_groups(found, 0)
    for group in range(groups.max() + 1):
        assert len(np.unique(language[groups == group])) == 1
    for number in range(len(SENTENCES)):
        assert np.bincount(groups[language == number]).max() >= 50
    for kind in range(kinds.max() + 1):
        assert len(np.unique(groups[kinds == kind])) == 1  # kinds are finer


@pytest.mark.parametrize("seed", [0, 3])
def test_rare_languages_beside_a_large_one_stay_apart(seed: int) -> None:
    generator = np.random.default_rng(seed)

    def vocabulary(number: int, shares: np.ndarray) -> list[str]:
        letters = list("abcdefghijklmnopqrstuvwxyz")
        return ["".join(generator.choice(letters, int(generator.integers(3, 8)), p=shares)) for _ in range(number)]

    def drawn(words: np.ndarray | list[str], number: int) -> list[str]:
        return [" ".join(generator.choice(words, 60)) for _ in range(number)]

    large, found = vocabulary(4000, generator.dirichlet(np.full(26, 0.5))), []
    for _ in range(200):  # texts of as many kinds
        found += drawn(generator.choice(large, 150), 20)
    related = generator.dirichlet(np.full(26, 0.5))
    shared = vocabulary(45, related)
    for _ in range(30):
        found += drawn(vocabulary(60, related) + shared, 60)
    groups = language_groups(found, 0)[0][4000:].reshape(30, 60)
    assert len({int(np.bincount(group).argmax()) for group in groups}) == 30


def test_same_texts_same_groups() -> None:
    found, _ = texts(20)
    for one, other in zip(language_groups(found, 0), language_groups(found, 0), strict=True):
        assert np.array_equal(one, other)


def test_odd_texts_have_a_group() -> None:
    odd = ["", " ", "12 34", "😀" * 30, "\x00", "a", "漢", "x" * 100_000, "\ud800 half"]
    for count in (1, 2, len(odd)):
        groups, kinds = language_groups(odd[:count], 0)
        assert groups.shape == kinds.shape == (count,)
        assert sorted(set(groups)) == list(range(groups.max() + 1))
