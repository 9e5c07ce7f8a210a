"""One reading of a shard for several stages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from datamask.config import Config
from datamask.corpus import read
from datamask.corpus.plan import Shard
from datamask.corpus.reading import ShardReading, in_one_reading
from datamask.errors import InputError
from tests.corpus import build

ROWS = 2500  # three batches


@pytest.fixture
def shard(tmp_path: Path) -> tuple[Shard, Config]:
    texts = [None if row % 7 == 3 else f"text {row}" for row in range(ROWS)]
    build.write(tmp_path / "a.parquet", [{"text": text, "url": str(row)} for row, text in enumerate(texts)], ROWS)
    found, config, _ = build.shards(tmp_path, tmp_path / "a.parquet")
    return found[0], config


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns of each reading that began."""
    found: list[list[str]] = []
    batches = read._batches

    def counted(file: object, group: int, sources: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        found.append(sources)
        yield from batches(file, group, sources, rows)

    monkeypatch.setattr(read, "_batches", counted)
    return found


def texts_of(reading: ShardReading) -> list[str]:
    return [text for batch in reading.batches(["text"]) for text in batch.documents.strings]


def urls_of(reading: ShardReading) -> list[str]:
    return [url for batch in reading.batches(["url"]) for url in batch.rows["url"].to_pylist()]


def test_stages_of_one_reading_find_what_each_would_alone_and_the_rows_are_read_once(
    shard: tuple[Shard, Config], opened: list[list[str]]
) -> None:
    alone = [texts_of(ShardReading(*shard)), urls_of(ShardReading(*shard))]
    opened.clear()
    assert in_one_reading(ShardReading(*shard), [texts_of, urls_of]) == alone
    assert [sorted(columns) for columns in opened] == [["text", "url"]]
    assert len(alone[0]) == ROWS - len(range(3, ROWS, 7)) and len(alone[1]) == ROWS


def test_what_stages_make_of_a_batch_is_made_once(shard: tuple[Shard, Config]) -> None:
    def held(reading: ShardReading) -> list[list[str]]:
        return [batch.documents.strings for batch in reading.batches(["text"])]

    one, other = in_one_reading(ShardReading(*shard), [held, held])
    assert all(mine is theirs for mine, theirs in zip(one, other, strict=True))


def test_a_stage_whose_file_is_there_reads_nothing(shard: tuple[Shard, Config], opened: list[list[str]]) -> None:
    assert in_one_reading(ShardReading(*shard), [lambda _: "there", urls_of])[0] == "there"
    assert len(opened) == 1 and "url" in opened[0]
    opened.clear()
    assert in_one_reading(ShardReading(*shard), [lambda _: 1, lambda _: 2]) == [1, 2]
    assert not opened


def test_a_stage_that_fails_stops_no_other_and_names_its_error(shard: tuple[Shard, Config]) -> None:
    ended = threading.Event()

    def fails(reading: ShardReading) -> list[str]:
        next(reading.batches(["text"]))
        raise ZeroDivisionError("by nothing")

    def ends(reading: ShardReading) -> list[str]:
        found = urls_of(reading)
        ended.set()
        return found

    with pytest.raises(ZeroDivisionError, match="by nothing"):
        in_one_reading(ShardReading(*shard), [fails, ends])
    assert ended.is_set()


def test_an_error_of_the_reading_is_raised_in_each_stage(shard: tuple[Shard, Config]) -> None:
    raised: list[str] = []

    def reads(reading: ShardReading) -> None:
        try:
            list(reading.batches(["nowhere"]))
        except InputError as error:
            raised.append(str(error))
            raise

    with pytest.raises(InputError, match="no column 'nowhere'"):
        in_one_reading(ShardReading(*shard), [reads, reads])
    assert len(raised) == 2
