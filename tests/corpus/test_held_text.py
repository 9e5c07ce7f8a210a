"""Text that a run has decoded is there again from memory, as the files give it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pyarrow as pa
import pytest

from datamask.config import Config
from datamask.corpus import read
from datamask.corpus.held_text import HeldText, holding
from datamask.corpus.plan import Shard
from datamask.corpus.read import read_batches
from tests.corpus import build

ROWS = 50


@pytest.fixture
def shard(tmp_path: Path) -> tuple[Shard, Config]:
    texts = [None if row % 7 == 3 else f"text {row}" for row in range(ROWS)]
    build.write(tmp_path / "a.parquet", [{"text": text, "url": str(row)} for row, text in enumerate(texts)], 20)
    found, config, _ = build.shards(tmp_path, tmp_path / "a.parquet")
    return found[0], config


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups of which text was decoded."""
    found: list[int] = []
    batches = read._batches

    def counted(file: object, group: int, sources: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        found.extend([group] if "text" in sources else [])
        yield from batches(file, group, sources, rows)

    monkeypatch.setattr(read, "_batches", counted)
    return found


@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("columns", [["text"], ["url", "text"], None])
@pytest.mark.parametrize(("room", "times"), [(1 << 20, 1), (400, 2), (0, 3)])
def test_held_text_is_decoded_once_where_there_is_room_and_batches_are_the_same(
    shard: tuple[Shard, Config], decoded: list[int], rows: int, columns: list[str] | None, room: int, times: int
) -> None:
    plain = list(read_batches(*shard, columns, rows))
    decoded.clear()
    with holding(HeldText(room)):
        assert [list(read_batches(*shard, columns, rows)) for _ in range(3)] == [plain] * 3
    assert times - 1 < len(decoded) / 3 <= times


def test_stages_that_read_at_once_wait_for_the_one_that_decodes(
    shard: tuple[Shard, Config], decoded: list[int]
) -> None:
    plain = list(read_batches(*shard, ["text"]))
    decoded.clear()
    with holding(HeldText(1 << 20)), ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(copy_context().run, lambda: list(read_batches(*shard, ["text"]))) for _ in range(8)]
        assert [each.result() for each in reading] == [plain] * 8
    assert sorted(decoded) == [0, 1, 2]


def test_a_text_that_a_dictionary_packs_is_held_by_its_true_size(tmp_path: Path, decoded: list[int]) -> None:
    build.write(tmp_path / "a.parquet", [{"text": "same " * 2000}] * 100, 100)
    (shard,), config, _ = build.shards(tmp_path, tmp_path / "a.parquet")
    with holding(HeldText(200_000)):
        found = [pa.Table.from_batches(list(read_batches(shard, config, ["text"]))) for _ in range(2)]
    assert found[0] == found[1] and found[0]["text"].nbytes > 1_000_000
    assert len(decoded) == 3  # the first time to find that it is too large
