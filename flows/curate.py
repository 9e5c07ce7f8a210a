"""The whole pipeline: plan → convert → encoder → index, embed, score → filter → duplicates → prices → mask → release.

prefect deployment run 'curate/default' -p input='dumps/*.parquet' -p output=out/curated -p lamb=0.6
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

import tasks.corpus as whole
import tasks.shards as each
from datamask import storage
from datamask.config import Config, Solver, validate
from datamask.corpus.plan import FailedFile, Plan
from datamask.errors import ConservationError, IncompleteError
from datamask.release.filters import check_filters
from datamask.release.layout import Picture, Provenance, Release, Staged
from datamask.stages import ShardFiles
from datamask.storage import Output
from flows import artifacts
from flows.numbers import as_markdown, numbers, shard_rows
from flows.stages import Stages, Step

DRIFT = 0.01  # of the budget, and of the gap beyond the solved one, that a selection by saved prices may miss


def _run_name() -> str:
    parameters = flow_run.get_parameters()
    return f"{flow_run.get_flow_name()} → {parameters.get('output', '')}"


@flow(name="curate", flow_run_name=_run_name)
def curate(
    input: str = "",
    output: str = "out/curated",
    lamb: Annotated[float | None, Field(ge=0, le=1)] = None,
    select_ratio: Annotated[float | None, Field(gt=0, le=1)] = None,
    solver: Solver | None = None,
    config: Config = Config(),
) -> dict[str, Any]:
    """Curate a corpus end to end: read, embed, score, select, filter, publish, report.

    Args:
        input: Files, folders or globs, separated by spaces; empty: corpus.input.
        output: Folder or URL for work/ and releases/.
        lamb: λ, the weight of quality: 1 is top-quality, 0 diversity alone; None: select.lamb.
        select_ratio: Share of documents to keep; None: select.select_ratio.
        solver: How to select; None: select.solver.
        config: Every setting; `datamask config` explains them.
    """
    settings = override(config, input=shlex.split(input), lamb=lamb, select_ratio=select_ratio, solver=solver)
    out = output.rstrip("/")
    with Stages(settings) as stages:
        plan = stages.whole(whole.plan, config=settings, work=storage.join(out, "work"), previous=None)
        return curation(stages, plan, out)


def override(config: Config, input: Sequence[str], **select: Any) -> Config:
    """The configuration with a flow's scalar parameters put in; None and [] change nothing.

    :raises ConfigError: a value is out of range.
    """
    settings = config.model_dump()
    if input:
        settings["corpus"]["input"] = list(input)
    settings["select"].update({name: value for name, value in select.items() if value is not None})
    return validate(settings)


@dataclass(frozen=True)
class Previous:
    """What a refresh takes over from the last release."""

    encoder: Any = None
    quality: Any = None
    prices: Output | None = None  # select by these instead of solving
    gap: float = 0.0  # of the selection that set the prices
    version: str = ""


def curation(stages: Stages, plan: Plan, out: str, previous: Previous = Previous()) -> dict[str, Any]:
    """Runs every stage after the plan inside the current flow run, publishes, and shows the numbers it returns.

    :raises IncompleteError: files or shards failed, and run.allow_failed_shards is not set.
    """
    config, work = stages.config, storage.join(out, "work")
    failed = list(plan.failures)
    shards = stages.each(
        [Step(each.convert, {"config": config, "work": work})], [ShardFiles(shard) for shard in plan.shards]
    )
    _check_complete(failed, stages)
    check_filters([files.shard for files in shards], config)  # now, not after hours of embedding
    encoder, quality, shards = _embed_and_score(stages, shards, work, previous)
    _check_complete(failed, stages)
    shards, certificate = _select(stages, shards, work, previous)
    failed = _check_complete(failed, stages)
    provenance = Provenance(portable(encoder, work), quality.as_dict(), certificate, tuple(failed))
    rows = sum(files.shard.rows or 0 for files in shards)
    staged = stages.whole(whole.export, rows, all_files=shards, config=config, out=out, provenance=provenance)
    _check_conservation(staged, shards)
    report = stages.whole(
        whole.write_report,
        staged=staged,
        all_files=shards,
        config=config,
        certificate=certificate,
        stages=stage_times(stages),
    )
    release = stages.whole(whole.publish, staged=staged, pictures=report.pictures)
    found = numbers(release, stages, certificate, failed, plan.skipped)
    _show(release, found, shard_rows(release, stages), report.pictures, failed)
    return found


def portable(encoder: Any, work: str) -> dict[str, Any]:
    """The encoder's identity without where the output folder lies; `flows.refresh` puts that back."""
    identity: dict[str, Any] = encoder.as_dict()
    return identity | {"path": str(identity["path"]).removeprefix(f"{work}/")}


def _embed_and_score(
    stages: Stages, shards: list[ShardFiles], work: str, previous: Previous
) -> tuple[Any, Any, list[ShardFiles]]:
    config = stages.config
    common: dict[str, Any] = {"config": config, "work": work}
    converted = [files.shard for files in shards]
    encoder = stages.whole(
        whole.prepare_encoder, shards=converted, model=config.encoder.model, previous=previous.encoder, **common
    )
    quality = previous.quality or stages.whole(whole.prepare_quality, shards=converted, encoder=encoder, **common)
    steps = [
        Step(each.index, {"encoder": encoder, **common}),
        Step(each.embed, {"encoder": encoder, **common}),
        Step(each.score, {"quality": quality, "encoder": encoder, **common}),
    ]
    return encoder, quality, stages.each(steps, shards)


def _select(
    stages: Stages, shards: list[ShardFiles], work: str, previous: Previous
) -> tuple[list[ShardFiles], dict[str, Any]]:
    config = stages.config
    common: dict[str, Any] = {"config": config, "work": work}

    def filtered(shards: list[ShardFiles]) -> list[ShardFiles]:
        outputs = stages.whole(whole.filter_corpus, all_files=shards, **common)
        return [replace(files, filters=output) for files, output in zip(shards, outputs, strict=True)]

    if config.filter.order == "before":
        shards = filtered(shards)
    if config.select.semantic_duplicates is not None:
        outputs = stages.whole(whole.find_duplicates, all_files=shards, **common)
        shards = [replace(files, duplicates=output) for files, output in zip(shards, outputs, strict=True)]
    prices, drift = previous.prices, None
    if prices:
        masked = stages.each([Step(each.mask, {"prices": prices, **common})], shards)
        drift = stages.whole(whole.measure_drift, all_files=masked, config=config)
        if abs(drift.budget - 1) > DRIFT or drift.gap > previous.gap + DRIFT or drift.broken:
            get_run_logger().info("the prices of release %s miss: %s; selecting again", previous.version, drift)
            prices = drift = None
    if config.select.scope == "corpus" and not prices:
        prices = stages.whole(whole.learn_prices, all_files=shards, solver=config.select.solver, **common)
    shards = stages.each([Step(each.mask, {"prices": prices, **common})], shards) if not drift else masked
    if config.filter.order == "after":
        shards = filtered(shards)
    if not prices:
        return shards, {"shards": {files.shard.name: dict(files.masks.facts) for files in shards if files.masks}}
    certificate = {**prices.facts, "prices": prices.key}
    if drift:  # terms and history stay those of the selection that set the prices
        certificate |= drift.as_dict() | {"continues": previous.version, "solved_gap": previous.gap}
    return shards, certificate


def _check_complete(failed: Sequence[FailedFile], stages: Stages) -> list[FailedFile]:
    """All that failed so far.

    :raises IncompleteError: something did, and the settings do not allow it.
    """
    every = [*failed, *(FailedFile(failure.shard, f"{failure.stage}: {failure.error}") for failure in stages.failures)]
    if every and not stages.config.run.allow_failed_shards:
        artifacts.show_failures([(file.path, file.error) for file in every])
        named = "\n".join(f"  {file.path}: {file.error}" for file in every)
        raise IncompleteError(
            f"{len(every)} files or shards failed, so there is no release:\n{named}\n"
            "mend or remove them and run the same command again: what is done is kept; "
            "or publish without them: --allow-failed-shards"
        )
    return every


def _check_conservation(staged: Staged, shards: Sequence[ShardFiles]) -> None:
    """Every row that was read has exactly one outcome, in every shard."""
    counted: Mapping[str, Any] = staged.summary()["shards"]
    for files in shards:
        read = files.index.rows if files.index else 0
        found = counted.get(files.shard.name, {})
        outcomes = [found.get("selected", 0), found.get("not_selected", 0)]
        outcomes += [*found.get("filtered", {}).values(), *found.get("quarantined", {}).values()]
        if not read == files.shard.rows == found.get("rows") == sum(outcomes):
            raise ConservationError(f"shard {files.shard.name}: {read} rows were read, {found} are accounted for")


def stage_times(stages: Stages) -> list[dict[str, Any]]:
    """Per stage: shards worked on, shards whose file was there, seconds of work."""
    return [
        {"stage": line.stage, "done": line.done, "cached": line.cached, "seconds": round(line.seconds, 2)}
        for line in stages.board.stages.values()
    ]


def _show(
    release: Release,
    found: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    pictures: Sequence[Picture],
    failed: Sequence[FailedFile],
) -> None:
    artifacts.show_numbers(as_markdown(found))
    artifacts.show_shards(rows)
    artifacts.show_pictures(release.path, pictures)
    if failed:
        artifacts.show_failures([(file.path, file.error) for file in failed])
