"""A release of any input, made by the corpus's own stages and stand-ins for scores and selection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config, Corpus
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.plan import Plan
from datamask.corpus.shards import plan_shards
from datamask.models.encoder_ref import EncoderRef
from datamask.release.publication import publish
from datamask.release.release_folder import ReleaseFolder
from datamask.release.staging import export
from datamask.release.verify import verify
from datamask.stages import ShardFiles
from tests.release.made import PROVENANCE, SCORES, make_masks

WORDS = EncoderRef("column", "vec", "", None, "f" * 32, 8, 512, "truncate", "", "float32")


def make_release(folder: Path, *inputs: str, **settings: Any) -> tuple[ReleaseFolder, Plan]:
    """All documents of the inputs, released into folder/out and verified against the inputs."""
    release, plan = publish_all(folder, *inputs, **settings)
    found = verify(release, list(inputs))
    assert not found.problems and found.compared == found.rows, found.problems
    return release, plan


def publish_all(folder: Path, *inputs: str, **settings: Any) -> tuple[ReleaseFolder, Plan]:
    """The same, not verified."""
    config = Config(corpus=Corpus(input=list(inputs), **settings))
    out = str(folder / "out")
    work = f"{out}/work"
    plan = plan_shards(config.corpus, work)
    files = []
    for shard in plan.shards:
        converted = convert_shard(shard, config, work)
        index = index_shard(converted, WORDS, config, work)
        good = storage.read_table(index.path, ["chunk_id", "reason", "token_count"]).to_pandas().query("reason.isna()")
        ones = np.ones(len(good), np.float32)
        scores = pa.table([good["chunk_id"].to_numpy(), ones, ones, ones], schema=SCORES)
        url = f"{work}/scores/{shard.name}-{index.key}.parquet"
        made = ShardFiles(converted, index, scores=storage.write_output(url, index.key, SCORES, [scores]))
        files.append(make_masks(made, folder, share=1.1))
    return publish(export(files, config, out, replace(PROVENANCE, failed=plan.failures, skipped=plan.skipped))), plan


def load(release: ReleaseFolder, cache: Path) -> list[dict[str, Any]]:
    """The release's rows as `datasets.load_dataset` gives them, by text."""
    import datasets

    data = datasets.load_dataset(release.path, "default", split="train", cache_dir=str(cache))
    return sorted(data.to_list(), key=lambda row: row["text"])
