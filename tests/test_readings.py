"""The text of a corpus is read twice in a default run, whatever is measured, and once where it stays in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from text_read import measure, size_of

from tests.flows.conftest import SMALL, write_shard

READINGS = "datamask.work._one"  # of stages over shards
FITS = {"datamask.encoders.choose._fit_tokens", "datamask.quality.prepare._rows_with_text"}  # a sample each
# of documents that were paired, of some of each topic, of those that are published, of examples: all of a small corpus
OF_SOME = {
    "datamask.filter.duplicate_rounds._texts_of",
    "datamask.encoders.topics.fit_topics",
    "datamask.release.data_files._documents",
    "datamask.report.embedding_sample.read_rows",
}


def test_a_default_run_reads_the_text_twice_beside_the_samples_of_its_fits(tmp_path: Path) -> None:
    for number in range(3):
        write_shard(tmp_path / "corpus", number, count=60)
    inputs = sorted(map(str, (tmp_path / "corpus").glob("*")))
    size = size_of(inputs)
    found = measure(inputs, str(tmp_path / "out"), SMALL, holds=False)["read"]
    assert found.pop(READINGS) == 2 * size
    assert found.keys() <= FITS | OF_SOME and all(amount <= size for amount in found.values())
    again = measure(inputs, str(tmp_path / "out"), SMALL, holds=False)["read"]
    assert not again.keys() & {READINGS, *FITS}


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory) -> tuple[list[str], str, dict]:
    """A corpus of one shard, the output folder of a run of it, and what that run read."""
    folder = tmp_path_factory.mktemp("readings")
    inputs = [str(write_shard(folder / "corpus", 0, count=60))]
    return inputs, str(folder / "out"), measure(inputs, str(folder / "out"), SMALL)["read"]


def test_a_corpus_that_stays_in_memory_is_decoded_once(one_shard) -> None:
    inputs, _, read = one_shard
    assert sum(read.values()) == size_of(inputs)


def test_another_scorer_reads_the_text_once(one_shard) -> None:
    inputs, out, _ = one_shard
    found = measure(inputs, out, [*SMALL, "quality.scorers=[{kind: heuristic}]"], False)["read"]
    assert found[READINGS] == size_of(inputs)
