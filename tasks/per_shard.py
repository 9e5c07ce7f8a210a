"""The stages that run per shard, a batch of shards in each task run. Heavy imports happen where the work is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prefect import task

from datamask import storage
from datamask.config import Config
from datamask.stages import Progress, ShardFiles
from datamask.storage import Output
from tasks.batch import run_batch, run_stage
from tasks.gpus import on_gpu
from tasks.options import STAGE, same_arithmetic


@task(name="convert", task_run_name="convert: {label}", **STAGE)
def convert(batch: Sequence[ShardFiles], label: str, config: Config, work: str) -> Any:
    """JSON lines to parquet, once; parquet is looked at and left where it is."""
    from datamask.corpus import convert_shard
    from datamask.corpus.convert import converted_to

    def one(files: ShardFiles, progress: Progress) -> tuple[ShardFiles, bool]:
        plain = all(part.format == "parquet" for part in files.shard.parts)
        there = plain or storage.exists(converted_to(files.shard, config, work)[0])
        shard = convert_shard(files.shard, config, work)
        progress(shard.rows or 0)
        return replace(files, shard=shard), there

    return run_batch("convert", batch, one, in_place=lambda shard: not shard.converted_from)


@task(name="languages", task_run_name="languages: {label}", **STAGE)
def languages(batch: Sequence[ShardFiles], label: str, config: Config, work: str) -> Any:
    """The language of every document whose corpus does not state it."""
    from datamask.corpus.identify import identified_to, identify_shard, wanted

    def one(files: ShardFiles, progress: Progress) -> tuple[ShardFiles, bool]:
        there = not wanted(config) or storage.exists(identified_to(files.shard, config, work)[0])
        shard = identify_shard(files.shard, config, work, progress)
        return replace(files, shard=shard), there

    return run_batch("languages", batch, one)


@task(name="index", task_run_name="index: {label}", **STAGE)
def index(batch: Sequence[ShardFiles], label: str, encoder: Any, config: Config, work: str) -> Any:
    """Ids, tokens, hashes and quarantine of every row."""
    from datamask.corpus import index_shard

    return run_stage(
        "index", batch, "index", lambda files, progress: index_shard(files.shard, encoder, config, work, progress)
    )


@task(name="embed", task_run_name="embed: {label}", **STAGE)
def embed(batch: Sequence[ShardFiles], label: str, encoder: Any, config: Config, work: str) -> Any:
    """A unit vector for every document."""
    from datamask.encoders import embed_shard

    def write(files: ShardFiles, progress: Progress) -> Output:
        same_arithmetic()
        with on_gpu("embed", config) as own:
            return embed_shard(files, encoder, own, work, progress)

    return run_stage("embed", batch, "embeddings", write)


@task(name="score", task_run_name="score: {label}", **STAGE)
def score(batch: Sequence[ShardFiles], label: str, quality: Any, encoder: Any, config: Config, work: str) -> Any:
    """Quality scores and their signals."""
    from datamask.quality import score_shard

    def write(files: ShardFiles, progress: Progress) -> Output:
        same_arithmetic()
        with on_gpu("score", config) as own:
            return score_shard(files, quality, encoder, own, work, progress)

    return run_stage("score", batch, "scores", write)


@task(name="signatures", task_run_name="signatures: {label}", **STAGE)
def sign(batch: Sequence[ShardFiles], label: str, config: Config, work: str) -> Any:
    """Samples of every document's shingles, by which its duplicates are found."""
    from datamask.filter import sign_shard

    return run_stage(
        "signatures", batch, "signatures", lambda files, progress: sign_shard(files.shard, config, work, progress)
    )


@task(name="atoms", task_run_name="atoms: {label}", **STAGE)
def atoms(batch: Sequence[ShardFiles], label: str, config: Config, work: str) -> Any:
    """Hashed n-grams of every document, for coverage of words."""
    from datamask.selection.cover.counting import count_shard

    return run_stage("atoms", batch, "atoms", lambda files, progress: count_shard(files, config, work, progress))


@task(name="leaks", task_run_name="leaks: {label}", **STAGE)
def leaks(batch: Sequence[ShardFiles], label: str, config: Config, work: str) -> Any:
    """Where documents hold words in a row of test items."""
    from datamask.filter.leaks import find_leaks

    return run_stage("leaks", batch, "leaks", lambda files, progress: find_leaks(files, config, work, progress))


@task(name="mask", task_run_name="mask: {label}", **STAGE)
def mask(batch: Sequence[ShardFiles], label: str, prices: Output | None, config: Config, work: str) -> Any:
    """Which documents are selected: by the corpus's prices, or the shard on its own."""
    from datamask.selection import mask_shard

    def write(files: ShardFiles, progress: Progress) -> Output:
        same_arithmetic()
        with on_gpu("mask", config) as own:
            return mask_shard(files, prices, own, work, progress)

    return run_stage("mask", batch, "masks", write)
