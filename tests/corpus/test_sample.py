from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.config import Corpus
from datamask.corpus.sample import SCHEMA, SampleCorpus, _of_source, sample_corpus
from datamask.corpus.shards import plan_shards


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> SampleCorpus:
    return sample_corpus(str(tmp_path_factory.mktemp("first") / "a"), 400)


def test_the_machine_itself_gives_the_same_corpus_every_time(first: SampleCorpus, tmp_path: Path) -> None:
    again = sample_corpus(str(tmp_path / "b"), 400)
    assert first.documents == 400 and first.packages > 5 and len(first.files) == 4
    assert not {"antigravity", "this", "idlelib.idle"} & set(sys.modules)  # read, never imported
    for one, other in zip(first.files, again.files, strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()
    table = pa.concat_tables([pq.read_table(file) for file in first.files])
    assert table.schema.remove_metadata().equals(SCHEMA)
    assert table["text"].null_count == 0 and min(len(text) for text in table["text"].to_pylist()) >= 80
    assert len(set(table["id"].to_pylist())) == 400
    assert set(table["domain"].to_pylist()) == {"documentation", "code"}
    planned = plan_shards(Corpus(input=[str(Path(first.files[0]).parent)]), str(tmp_path / "work"))
    assert sum(shard.rows or 0 for shard in planned.shards) == 400 and not planned.failures


def test_a_larger_sample_holds_the_smaller(first: SampleCorpus, tmp_path: Path) -> None:
    smaller = sample_corpus(str(tmp_path), 50)
    ids = [{id_ for file in each.files for id_ in pq.read_table(file)["id"].to_pylist()} for each in (smaller, first)]
    assert len(ids[0]) == 50 and ids[0] < ids[1]


SOURCE = '''"""{long} of the module."""
# {long}
# of a comment in two lines

class A:
    """{long} of the class."""
    def f(self):
        """short"""
        # alone and short
    async def g(self):
        """{long} of a method."""
        def inner():
            """{long} of a function in it."""
        x = f"""
            # {long} in a string is no comment
        """
        # {long} after it
'''.replace("{long}", "A text that is long enough to be a document, as it has more than eighty characters,")


def test_docstrings_and_long_comments_are_documents() -> None:
    found = list(_of_source(SOURCE.encode(), "pkg/mod.py", "pkg"))
    assert [(int(row["id"].rpartition(":")[2]), row["domain"]) for row in found] == [
        (1, "documentation"),
        (6, "documentation"),
        (11, "documentation"),
        (13, "documentation"),
        (2, "code"),
        (17, "code"),
    ]
    assert found[4]["text"].endswith("eighty characters,\nof a comment in two lines")


@pytest.mark.parametrize("data", [b"def broken(:", b"\xff\xfe\0", b"# coding: nonsense\n", b"x = 1\0", b"(" * 500])
def test_broken_sources_raise_what_the_walk_passes_over(data: bytes) -> None:
    with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
        list(_of_source(data, "m.py", "m"))
