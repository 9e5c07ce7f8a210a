"""The stages that see the whole corpus. Each returns what the function of datamask/ returns, small facts all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefect import task
from prefect.states import Completed

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Plan, Shard
from datamask.release.release_folder import Picture, Staged
from tasks.options import STAGE, prepared_by_numpy, same_arithmetic


@dataclass(frozen=True)
class Timed:
    """What a stage returned, and the seconds that it worked: those in a queue do not count."""

    result: Any
    seconds: float


@task(name="plan", task_run_name="plan: list the shards", **STAGE)
def plan(config: Config, work: str, previous: Plan | None) -> Any:
    """Which rows of which files form a shard."""
    from datamask.corpus import plan_shards

    return _timed("plan", lambda: plan_shards(config.corpus, work, previous))


@task(name="tokenizer", task_run_name="tokenizer: fit", **STAGE)
def prepare_tokenizer(shards: Sequence[Shard], config: Config, work: str, previous: Any) -> Any:
    """The static encoder's tokenizer, before its vectors."""
    from datamask.encoders import prepare_tokenizer as prepare

    same_arithmetic(torch=not prepared_by_numpy(config))
    return _unless_there("tokenizer", work, "tokenizer", lambda: prepare(shards, config, work, previous))


@task(name="encoder", task_run_name="encoder: prepare {model}", **STAGE)
def prepare_encoder(shards: Sequence[Shard], model: str, config: Config, work: str, previous: Any) -> Any:
    """Fits the static encoder or pins a model."""
    from datamask.encoders import prepare_encoder as prepare

    same_arithmetic(torch=not prepared_by_numpy(config))
    return _unless_there("encoder", work, "encoder", lambda: prepare(shards, config, work, previous))


@task(name="quality", task_run_name="quality: prepare", **STAGE)
def prepare_quality(shards: Sequence[Shard], encoder: Any, config: Config, work: str, previous: Any) -> Any:
    """What scores are measured against."""
    from datamask.quality import prepare_quality as prepare

    same_arithmetic(torch=not prepared_by_numpy(config))
    return _unless_there("quality", work, "quality", lambda: prepare(shards, encoder, config, work, previous))


@task(name="publish", task_run_name="publish: make the release visible", **STAGE)
def publish(staged: Staged, pictures: Sequence[Picture], warnings: Sequence[Mapping[str, Any]]) -> Any:
    """The release under its version, whole, with `latest` pointing at it."""
    from datamask.release import publish as run

    return _timed("publish", lambda: run(staged, pictures, warnings), lambda _: staged.published is not None)


def published(work: str, folder: str) -> frozenset[str]:
    """The names in a stage's folder; a stage that adds none had nothing to do."""
    fs, path = storage.filesystem(storage.join(work, folder))
    fs.invalidate_cache(path)
    try:
        return frozenset(fs.ls(path, detail=False))  # a glob would interpret what signs the path has
    except FileNotFoundError:
        return frozenset()


def _unless_there(stage: str, work: str, folder: str, run: Callable[[], Any]) -> Any:
    before = published(work, folder)
    return _timed(stage, run, lambda _: bool(before) and published(work, folder) == before)


def _timed(stage: str, run: Callable[[], Any], cached: Callable[[Any], bool] = lambda result: False) -> Any:
    """The task's last state, with the stage's name: a log of "Finished in state Completed()" says nothing."""
    began = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - began
    if cached(result):
        return Completed(name="Cached", message=f"{stage}: the output is there already", data=Timed(result, 0.0))
    return Completed(message=f"{stage}: {seconds:.1f} s", data=Timed(result, seconds))
