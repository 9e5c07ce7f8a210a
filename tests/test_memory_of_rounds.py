"""What the process that runs the rounds holds for each document: no more than docs/scale.md says, however many shards.

Traced between the maps: what a map holds is bounded by its item. Twice the shards of one size, so that what does not
grow with documents is in both.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from datamask.config import Config, Quota, Select
from datamask.filter import connected, decisions, duplicates
from datamask.filter.duplicates import find_duplicates
from datamask.maps import Mapper, here
from datamask.selection import groups, moment_rounds, price_rounds
from datamask.selection.cover import cover_shards as covering
from tests.filter.test_stage import corpus, document
from tests.selection.cover.test_rounds import Rows, settings_of

SHARDS, ROWS = (3, 9), 12_000
OBJECTS = 3.0  # bytes a document: names and paths of a shard, and by how much the peaks of two runs differ anyway


class Watching:
    """A Mapper; the most that its caller held beside what it found."""

    def __init__(self) -> None:
        self.most, self.before = 0, tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()

    def note(self) -> int:
        self.most = max(self.most, tracemalloc.get_traced_memory()[1] - self.before)
        return self.most

    def __call__(self, work: Any, state: Any, items: Any, rows: Any = None, rest: bool = False) -> list[Any]:
        self.note()
        found = here(work, state, items)
        tracemalloc.reset_peak()
        return found


def bytes_a_document(run: Callable[[Mapper, int], Any]) -> float:
    """Of what the caller of a stage holds, by how much it grows with shards."""
    run(here, SHARDS[0])  # compiles and loads what is compiled and loaded once
    tracemalloc.start()
    try:
        held = []
        for shards in SHARDS:
            watching = Watching()
            run(watching, shards)
            held.append(watching.note())
        return (held[1] - held[0]) / ((SHARDS[1] - SHARDS[0]) * ROWS)
    finally:
        tracemalloc.stop()


def shards_of(count: int) -> list[Rows]:
    """Documents of 8 words of a hundred, and 12 dimensions."""
    found = []
    for number in range(count):
        generator = np.random.default_rng(number)
        words = generator.integers(0, 100, 8 * ROWS)
        counts = csr_array((np.ones(8 * ROWS, np.float32), (np.repeat(np.arange(ROWS), 8), words)), shape=(ROWS, 100))
        features = generator.standard_normal((ROWS, 12)).astype(np.float32)
        groups = {"domain": generator.integers(0, 3, ROWS).astype(str)}
        tokens = generator.integers(5, 40, ROWS).astype(float)
        found.append(Rows(features, counts, generator.random(ROWS), tokens, groups))
    return found


BUDGETS = [
    {"budget_documents": 600},
    {"budget_tokens": 9000},
    {"budget_documents": 600, "quotas": [Quota(column="domain", maximum={"1": 0.2})], "length_tolerance": 0.1},
]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these documents were more than the constant number of which some numbers are held."""
    monkeypatch.setattr(groups, "HELD", 0)
    monkeypatch.setattr(groups, "SORTED", 100)


@pytest.mark.slow
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("budget", BUDGETS)
def test_prices_of_coverage_hold_nothing_of_a_document(tmp_path: Path, monkeypatch, budget):
    monkeypatch.setattr(price_rounds, "LIMITED", 2000)
    config = Config(select=settings_of(select_ratio=None, **budget))
    shards = shards_of(SHARDS[1])

    def run(maps: Mapper, count: int) -> None:
        work = tmp_path / f"{count}-{isinstance(maps, Watching)}"
        found = covering.CoverRounds(shards[:count], config, str(work), maps, room=8 * 2500).run()
        assert found.facts["undecided"] < 4000

    assert bytes_a_document(run) < OBJECTS


@pytest.mark.slow
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("budget", BUDGETS)
def test_prices_of_pairs_hold_nothing_of_a_document(tmp_path: Path, monkeypatch, budget):
    monkeypatch.setattr(moment_rounds, "SAMPLE", 200)
    monkeypatch.setattr(price_rounds, "LIMITED", 2000)
    monkeypatch.setattr(groups, "UNSOLVED", np.inf)  # however far from the optimum so few undecided end
    config = Config(select=Select(algorithm="Pair_simi", select_ratio=None, **budget))
    shards = shards_of(SHARDS[1])

    def run(maps: Mapper, count: int) -> None:
        work = tmp_path / f"{count}-{isinstance(maps, Watching)}"
        moment_rounds.MomentRounds(shards[:count], config, str(work), maps, room=2500 * 2 * 12).run()

    assert bytes_a_document(run) < OBJECTS


@pytest.mark.slow
def test_duplicates_hold_nothing_of_a_document(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(connected, "RANGE", 1 << 10)
    monkeypatch.setattr(decisions, "PIECE", 1 << 8)
    monkeypatch.setattr(duplicates, "groups", lambda ordered: [(place,) for place in range(len(ordered))])
    texts = [[document(ROWS * number + row, 20) for row in range(ROWS)] for number in range(SHARDS[1])]
    for number, shard in enumerate(texts):  # one document in thirty has a copy in the first shard
        shard[::30] = [text.upper() for text in texts[0][number::30][: len(shard[::30])]]
    files, config, work = corpus(tmp_path, texts)
    fallen = []

    def run(maps: Mapper, count: int) -> None:
        found = find_duplicates(files[:count], config, f"{work}-{count}-{isinstance(maps, Watching)}", maps)
        fallen.append(sum(output.rows for output in found))

    assert bytes_a_document(run) < OBJECTS
    assert fallen[-1] > 500
