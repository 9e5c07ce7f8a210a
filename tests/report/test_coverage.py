"""What is covered badly: words and clusters that a choice lacks or has too much of, on texts where that is known."""

from __future__ import annotations

import numpy as np
import pytest

from datamask.report import uncovered as coverage
from datamask.report.statistics import log_determinant, spectrum

COMMON = np.array("river stone light winter garden music engine paper silver morning bread window".split())
COUNT = 400


@pytest.fixture
def texts() -> dict[int, str]:
    """The first hundred hold "velvet curtain", the last hundred are in Chinese."""
    generator = np.random.default_rng(0)
    found = {}
    for row in range(COUNT):
        words = list(generator.choice(COMMON, 30))
        if row < 100:
            words[10:10] = ["velvet", "curtain"]
        found[row] = "命令的文" * 8 if row >= 300 else " ".join(words)
    return found


def rows_of(first: int, last: int) -> np.ndarray:
    return np.arange(first, last)


def test_words_that_are_lacking_and_in_excess_are_named(texts: dict[int, str]) -> None:
    drawn = {"random": rows_of(0, COUNT), "selected": rows_of(200, COUNT)}
    found = coverage.uncovered_words(texts, np.ones(COUNT), drawn, rows_of(0, COUNT), "selected")
    assert {"velvet", "curtain", "velvet curtain"} <= {row["name"] for row in found["lacking"]}
    assert "命" in {row["name"] for row in found["excess"]}
    velvet = next(row for row in found["lacking"] if row["name"] == "velvet")
    share = velvet["pool"]
    assert share == pytest.approx(100 / COUNT / 63, rel=0.01)  # 32 words and 31 pairs of a text
    assert velvet["choice"] == 0
    assert velvet["nats"] > share  # t·log(t/c), c by the smoothing alone
    values = [row["nats"] for row in found["lacking"]]
    assert values == sorted(values, reverse=True)
    assert found["divergence"]["random"] == pytest.approx(0, abs=1e-3)
    assert found["divergence"]["selected"] > 0.05


def test_what_could_be_chance_is_not_listed(texts: dict[int, str]) -> None:
    generator = np.random.default_rng(1)
    some, others = np.split(generator.permutation(COUNT), 2)
    found = coverage.uncovered_words(texts, np.ones(COUNT), {"selected": np.sort(some)}, np.sort(others), "selected")
    assert found["lacking"] == [] and found["excess"] == []


def test_a_target_is_what_is_lacked(texts: dict[int, str]) -> None:
    target = ["velvet curtain " * 10] * 40
    found = coverage.uncovered_words(
        texts, np.ones(COUNT), {"selected": rows_of(100, 300)}, rows_of(0, COUNT), "selected", target
    )
    assert found["target"] and found["lacking"][0]["name"] in ("velvet", "curtain", "velvet curtain", "curtain velvet")
    assert found["lacking"][0]["target"] > found["lacking"][0]["pool"] > found["lacking"][0]["choice"]


def test_weights_are_those_of_the_budget(texts: dict[int, str]) -> None:
    weights = np.ones(COUNT)
    weights[:100] = 9
    found = coverage.uncovered_words(texts, weights, {"selected": rows_of(100, COUNT)}, rows_of(0, COUNT), "selected")
    velvet = next(row for row in found["lacking"] if row["name"] == "velvet")
    assert velvet["pool"] == pytest.approx(9 * 100 / (900 + 300) / 63, rel=0.01)


def test_worth_is_of_the_pool_alone(texts: dict[int, str]) -> None:
    worth = np.ones(COUNT)
    worth[:100] = 0.25
    drawn = {"selected": rows_of(0, COUNT)}
    found = coverage.uncovered_words(texts, np.ones(COUNT), drawn, rows_of(0, COUNT), "selected", worth=worth)
    velvet = next(row for row in found["excess"] if row["name"] == "velvet")
    assert found["weighed"]
    assert velvet["pool"] == pytest.approx(25 / (25 + 300) / 63, rel=0.01)
    assert velvet["choice"] == pytest.approx(100 / COUNT / 63, rel=0.01)


def test_empty_texts_and_choices_are_no_error() -> None:
    nothing = dict.fromkeys(range(4), "")
    found = coverage.uncovered_words(nothing, np.ones(4), {"selected": rows_of(0, 2)}, rows_of(0, 4), "selected")
    assert found["lacking"] == [] and found["divergence"]["selected"] == 0
    assert coverage.uncovered_words(nothing, np.ones(4), {"selected": rows_of(0, 0)}, rows_of(0, 4), "selected") == {}


def test_log_determinant_is_that_of_the_second_moment() -> None:
    x = np.random.default_rng(3).standard_normal((50, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.linalg.slogdet(x.T @ x / 50 + 0.01 / 6 * np.eye(6))[1] / 6
    assert log_determinant(spectrum(x)) == pytest.approx(expected, abs=1e-5)
