"""A disk that is full when a stage begins, or while it writes: one sentence, no half file, and the next run goes on.

On a small file system in memory, which only root may mount; duplicates and prices have tests of their own.
"""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from datamask.config import Config, validate
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.shards import plan_shards
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.embed import embed_shard
from datamask.errors import disk_full
from datamask.filter.filters import filter_corpus
from datamask.quality import prepare_quality, score_shard
from datamask.release.publication import publish
from datamask.release.push import upload_release
from datamask.release.release_folder import Provenance
from datamask.release.staging import export
from datamask.selection.stage import learn_prices, mask_shard
from datamask.stages import ShardFiles
from tests.corpus import build
from tests.flows.conftest import documents

SIZE = 24 << 20


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("only root may mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Ballast:
    """Fills the disk but for so many bytes."""

    def __init__(self, disk, left):
        self.path = disk / "ballast"
        self.disk = disk
        self.left = left

    def __enter__(self):
        free = shutil.disk_usage(self.disk).free - self.left
        with self.path.open("wb") as file:
            for _ in range(max(free, 0) >> 12):
                file.write(b"\1" * 4096)

    def __exit__(self, *failed):
        self.path.unlink()


def whole_files(disk):
    return {path for path in disk.rglob("*") if path.is_file() and path.name != "ballast"}


@pytest.mark.parametrize("left", [*(pytest.param(left, marks=pytest.mark.slow) for left in (0, 4096)), 32768])
def test_every_stage_says_that_the_disk_is_full(disk, tmp_path, left):
    corpus = tmp_path / "corpus"
    build.write(corpus / "a.jsonl", documents(0, 300))
    build.write(corpus / "b.parquet", documents(1000, 300))
    config: Config = validate(
        {
            "corpus": {"input": [str(corpus)], "group_bytes": 0},
            "encoder": {"dimensions": 32, "vocabulary": 500, "fit_documents": 200},
            "quality": {"combine": "standard"},
            "select": {"semantic_duplicates": None, "select_ratio": 0.2},
        }
    )
    out = str(disk / "out")
    work = f"{out}/work"
    Path(work).mkdir(parents=True)
    told = {}

    def stage(name, run):
        before = whole_files(disk)
        with Ballast(disk, left):
            try:
                run()
            except Exception as error:
                told[name] = disk_full(error)
                assert told[name], f"{name}: {type(error).__name__}: {error}"
            else:
                assert left, f"{name} wrote nothing"
            torn = {path for path in whole_files(disk) - before if not path.name.startswith(".")}
            assert not any(path.stat().st_size == 0 for path in torn if path.suffix == ".parquet"), name
        return run()

    plan = stage("plan", lambda: plan_shards(config.corpus, work))
    shards = stage("convert", lambda: [convert_shard(shard, config, work) for shard in plan.shards])
    encoder = stage("encoder", lambda: prepare_encoder(shards, config, work))
    quality = stage("quality", lambda: prepare_quality(shards, encoder, config, work))
    files = [ShardFiles(shard) for shard in shards]
    for name, run in (
        ("index", lambda f: replace(f, index=index_shard(f.shard, encoder, config, work))),
        ("embeddings", lambda f: replace(f, embeddings=embed_shard(f, encoder, config, work))),
        ("scores", lambda f: replace(f, scores=score_shard(f, quality, encoder, config, work))),
    ):
        files = stage(name, lambda run=run: [run(f) for f in files])
    filters = stage("filters", lambda: filter_corpus(files, config, work))
    files = [replace(f, filters=output) for f, output in zip(files, filters, strict=True)]
    prices = stage("prices", lambda: learn_prices(files, config, work))
    files = [replace(f, masks=mask_shard(f, prices, config, work)) for f in files]
    staged = stage("export", lambda: export(files, config, out, Provenance({}, {}, {})))
    release = stage("publish", lambda: publish(staged))
    stage("push", lambda: upload_release(release, str(disk / "pushed")))
    assert len(told) >= {0: 11, 4096: 8, 32768: 3}[left], told
    assert all("No space left on device" in text for text in told.values())
    assert not list(disk.rglob("*.tmp"))
    assert Path(out, "latest", "manifest.json").exists()
