"""The stages of maps and reduces, each with the run's engine as its Mapper. Heavy imports happen where the work is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from prefect.logging import get_run_logger

from datamask.release.release_folder import Provenance, Staged
from datamask.stages import ShardFiles
from datamask.storage import Output
from flows.stage_runs import Stages

if TYPE_CHECKING:
    from datamask.report import Report


def filter_corpus(stages: Stages, shards: Sequence[ShardFiles], work: str) -> list[Output]:
    """Conditions, languages, lengths and exact duplicates over all shards."""
    from datamask.filter.filters import filter_corpus as run

    outputs: list[Output] = stages.rounds(
        "filter", run, _rows(shards), _all_cached, all_files=shards, config=stages.config, work=work
    )
    return outputs


def find_duplicates(stages: Stages, shards: Sequence[ShardFiles], work: str) -> list[Output]:
    """Near-duplicates and contained texts, over all shards."""
    from datamask.filter import find_duplicates as run

    outputs: list[Output] = stages.rounds(
        "duplicates", run, _rows(shards), _all_cached, all_files=shards, config=stages.config, work=work
    )
    for alarm in outputs[0].facts["alarms"] if outputs else ():
        get_run_logger().warning("duplicates take much of %s", alarm)
    return outputs


def learn_prices(stages: Stages, shards: Sequence[ShardFiles], work: str) -> Output:
    """One selection over all shards, as prices that each shard applies on its own."""
    from datamask.selection import learn_prices as run

    output: Output = stages.rounds(
        "prices", run, _rows(shards), lambda output: output.cached, all_files=shards, config=stages.config, work=work
    )
    return output


def extend_prices(stages: Stages, shards: Sequence[ShardFiles], work: str, prices: Output) -> Output | None:
    """What is new selected beside what saved prices selected; None where that cannot be."""
    from datamask.selection import extend_prices as run
    from datamask.selection.sharded.beside import MustSolve

    extend = partial(run, prices=prices)
    try:
        output: Output = stages.rounds(
            "prices", extend, _rows(shards), lambda one: one.cached, all_files=shards, config=stages.config, work=work
        )
    except MustSolve as error:
        get_run_logger().info("selecting from all documents again: %s", error)
        return None
    return output


def export(stages: Stages, shards: Sequence[ShardFiles], out: str, provenance: Provenance) -> Staged:
    """The selected documents, the decisions on all others, and the quarantine, staged."""
    from datamask.release import export as run

    staged: Staged = stages.rounds(
        "export",
        run,
        _rows(shards),
        lambda staged: staged.published is not None,
        all_files=shards,
        config=stages.config,
        out=out,
        provenance=provenance,
    )
    return staged


def write_report(
    stages: Stages, staged: Staged, shards: Sequence[ShardFiles], certificate: Mapping[str, Any]
) -> Report:
    """The report page and its plots, beside the staged data."""
    from datamask.report import StageTime
    from datamask.report import write_report as run

    report: Report = stages.rounds(
        "report",
        run,
        _rows(shards),
        lambda report: staged.published is not None,
        staged=staged,
        all_files=shards,
        config=stages.config,
        certificate=certificate,
        stages=[StageTime(**line) for line in stage_times(stages)],
    )
    return report


def stage_times(stages: Stages) -> list[dict[str, Any]]:
    """Per stage: shards worked on, shards whose file was there, seconds of work."""
    return [
        {"stage": line.stage, "done": line.done, "cached": line.cached, "seconds": round(line.seconds, 2)}
        for line in stages.board.stages.values()
    ]


def _rows(shards: Sequence[ShardFiles]) -> int:
    return sum(files.shard.rows or 0 for files in shards)


def _all_cached(outputs: Sequence[Any]) -> bool:
    return bool(outputs) and all(output.cached for output in outputs)
