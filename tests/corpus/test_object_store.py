from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from datamask import storage
from datamask.config import Config, Corpus
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.read import read_documents, sample_texts
from datamask.corpus.shards import plan_shards
from datamask.errors import InputError, MissingFileError, TransientError
from datamask.stages import ShardFiles
from tests.corpus import build
from tests.object_store import Store, clear_clients

WORDS = SimpleNamespace(kind="column", fingerprint="words")


def corpus(folder: Path) -> Path:
    records = build.rows(300)
    records[7]["text"], records[150]["text"] = None, "  "
    build.write(folder / "a" / "part-0.parquet", records[:100], row_group=30)
    build.write(folder / "a" / "part-1.parquet", records[100:150])
    build.write(folder / "b" / "more.jsonl.gz", records[150:200])
    build.write(folder / "b" / "rest.jsonl.zst", records[200:])
    return folder


def run(place: str, work: str) -> tuple[list[str], list[pa.Table], list[str]]:
    """Shard names, documents of each shard, a sample: the stages of this package from end to end."""
    config = Config(corpus=Corpus(input=[place], group_bytes=3000, shard_rows=60))
    plan = plan_shards(config.corpus, work)
    shards = [convert_shard(shard, config, work) for shard in plan.shards]
    files = [ShardFiles(shard, index_shard(shard, WORDS, config, work)) for shard in shards]
    tables = [pa.Table.from_batches(list(read_documents(f, config, ["id", "text", "token_count"]))) for f in files]
    return [shard.name for shard in shards], tables, sample_texts(shards, config, 20, seed=3)


@pytest.mark.slow
def test_a_corpus_on_s3_reads_as_it_does_on_disk_whatever_fails_meanwhile(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = corpus(tmp_path / "in")
    fs, _ = storage.filesystem("s3://corpus")
    fs.put(f"{local}/", "corpus/in/", recursive=True)
    expected = run(str(local), str(tmp_path / "work"))
    assert sum(table.num_rows for table in expected[1]) == 298 and len(expected[0]) > 3
    assert run("s3://corpus/in", "s3://corpus/work") == expected
    before = len(store.requests)
    assert run("s3://corpus/in/**/*.*", "s3://corpus/work") == expected  # from the cache
    written = [path for method, path in store.requests[before:] if method == "PUT"]
    assert not written

    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    clear_clients()
    store.fault = lambda number, method, path: ("reset", "500")[number % 2] if number % 9 == 0 else None
    assert run("s3://corpus/in", "s3://corpus/work-2") == expected


def test_what_is_wrong_with_a_place_on_s3_is_said(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'s3://corpus/none/\\*.parquet' matches no file"):
        run("s3://corpus/none/*.parquet", str(tmp_path / "work"))
    with pytest.raises(InputError, match="'s3://corpus/none' matches no file"):
        run("s3://corpus/none", str(tmp_path / "work"))
    with pytest.raises(MissingFileError, match="cannot write s3://nobucket/a.json: no such bucket; make it"):
        storage.write_json("s3://nobucket/a.json", {})
    fs, _ = storage.filesystem("s3://corpus")
    cut = build.write(tmp_path / "cut.parquet", build.rows(50))
    cut.write_bytes(cut.read_bytes()[:-9])
    fs.put_file(str(cut), "corpus/cut.parquet")
    with pytest.raises(InputError, match=r"s3://corpus/cut.parquet: damaged or truncated"):
        run("s3://corpus/cut.parquet", str(tmp_path / "work"))
    store.fault = lambda number, method, path: "reset"
    with pytest.raises(TransientError, match="s3://corpus/cut.parquet now"):
        run("s3://corpus/cut.parquet", str(tmp_path / "work"))
