"""The whole pipeline: plan → convert → encoder → index … signatures → filter → duplicates → prices → mask → release.

prefect deployment run curate/curate -p input='dumps/*.parquet' -p output=out/curated -p lamb=0.6
"""

import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

import flows.whole as maps
import tasks.corpus as whole
import tasks.per_shard as each
from datamask import storage
from datamask.checks import check_devices, check_packages, check_settings, encoder_caution
from datamask.config import Config, Solver, lay_settings, validate
from datamask.corpus.identify import wanted as languages_wanted
from datamask.corpus.index import check_quarantine
from datamask.corpus.plan import FailedFile, Plan, Shard
from datamask.errors import ConservationError, IncompleteError, several
from datamask.filter import wanted as near_duplicates_wanted
from datamask.filter.contamination import wanted as decontamination_wanted
from datamask.filter.filters import check_left
from datamask.release.housekeeping import check_room
from datamask.release.publication import one_exporter, running
from datamask.release.release_folder import Picture, Provenance, ReleaseFolder, Staged, latest_version
from datamask.report.warnings import sentence
from datamask.selection.cover.counting import check_target, reads_words
from datamask.selection.solvers import check_solver
from datamask.stages import ShardFiles
from datamask.storage import Output
from flows import artifacts, times
from flows.console import summary_text
from flows.hints import for_this_reader
from flows.run_numbers import as_markdown, numbers, shard_rows, warning_sentences
from flows.stage_runs import Stages, Step
from flows.warm import loaded
from tasks.options import prepared_by_numpy

DRIFT = 0.01  # of the budget, and of the gap beyond the solved one, that a selection by saved prices may miss


def _run_name() -> str:
    parameters = flow_run.get_parameters()
    return f"{flow_run.get_flow_name()} → {parameters.get('output', '')}"


@flow(name="curate", flow_run_name=_run_name)
def curate(
    input: str = "",
    output: str = "out/curated",
    target: str = "",
    lamb: Annotated[float | None, Field(ge=0, le=1)] = None,
    token_ratio: Annotated[float | None, Field(gt=0)] = None,
    select_ratio: Annotated[float | None, Field(gt=0, le=1)] = None,
    solver: Solver | None = None,
    allow_failed_shards: bool = False,
    config: Config = Config(),
) -> dict[str, Any]:
    """Curate a corpus end to end: read, embed, score, select, filter, publish, report.

    Args:
        input: Files, folders or globs, separated by spaces; empty: corpus.input.
        output: Folder or URL for work/ and releases/.
        target: Files of texts that the choice shall explain, separated by spaces; empty: select.target.
        lamb: λ, the weight of quality: 1 is top-quality, 0 diversity alone; None: select.lamb.
        token_ratio: Share of the tokens to keep; None: select.token_ratio.
        select_ratio: Share of the documents to keep, instead of tokens; None: select.select_ratio.
        solver: How to select; None: select.solver.
        allow_failed_shards: Publish without files and shards that failed; the manifest names them.
        config: Every setting; `datamask config` explains them.
    """
    asked: dict[str, Any] = {"lamb": lamb, "token_ratio": token_ratio, "select_ratio": select_ratio, "solver": solver}
    with for_this_reader():
        settings = override(config, input=shlex.split(input), target=shlex.split(target), **asked)
        settings = allowing(settings, allow_failed_shards=allow_failed_shards)
        out = output.rstrip("/")
        with running(out), Stages(settings, out) as stages:
            plan = stages.whole(whole.plan, config=settings, work=storage.join(out, "work"), previous=None)
            return finished(curation(stages, plan, out), out)


def finished(found: dict[str, Any], out: str) -> Any:
    """The flow run's last state: Completed, with where the release is, so that a list of runs says it.

    Its log ends with the summary, and what trains on the output hears of a new release.
    """
    log = get_run_logger()
    for warning in warning_sentences(found):
        log.warning("%s", warning)
    log.info("%s", summary_text(found))
    if found["new"]:
        artifacts.announce_release(found, out)
    message = f"{found['release']}{'' if found['new'] else ' (unchanged)'}"
    if changed := found.get("changed_settings"):
        message += f"; changed settings: {'; '.join(changed)}"
    return Completed(message=message, data=found)


def allowing(config: Config, **allowed: bool) -> Config:
    """The configuration with what a flow's parameters allow; False changes nothing."""
    granted = {name: True for name, value in allowed.items() if value}
    return config.model_copy(update={"run": config.run.model_copy(update=granted)}) if granted else config


def override(config: Config, input: Sequence[str], **select: Any) -> Config:
    """The configuration with a flow's scalar parameters put in; None and [] change nothing.

    :raises ConfigError: a value is out of range.
    """
    changes = {"select": {name: value for name, value in select.items() if value is not None and value != []}}
    if input:
        changes["corpus"] = {"input": list(input)}
    return validate(lay_settings(config.model_dump(), changes))


@dataclass(frozen=True)
class Previous:
    """What a refresh takes over from the last release."""

    encoder: Any = None
    quality: Any = None
    prices: Output | None = None  # select by these instead of solving
    gap: float = 0.0  # of the selection that set the prices
    version: str = ""
    check: Callable[[Sequence[Shard]], None] = lambda shards: None  # of the converted shards, before work is put in


def curation(stages: Stages, plan: Plan, out: str, previous: Previous = Previous()) -> dict[str, Any]:
    """Runs every stage after the plan inside the current flow run, publishes, and shows the numbers it returns.

    :raises IncompleteError: files or shards failed, and run.allow_failed_shards is not set.
    """
    config, work = stages.config, storage.join(out, "work")
    before = latest_version(out)
    check_packages(config, [part.format for shard in plan.shards for part in shard.parts])
    check_devices(config)
    check_room(plan, config, out)
    check_solver(config.selection)
    check_target(config.selection)
    stages.board.expected = times.expected(work, plan)
    failed = list(plan.failures)
    steps = [Step(each.convert, {"config": config, "work": work})]
    if languages_wanted(config):
        steps.append(Step(each.languages, {"config": config, "work": work}))
    shards = stages.each(steps, [ShardFiles(shard) for shard in plan.shards])
    _check_complete(failed, stages)
    previous.check([files.shard for files in shards])
    if caution := encoder_caution(config):
        _say(caution, logging.WARNING)
    if not config.reads_vectors:
        _say(f"no vectors are made: {config.selection.metric}, the scorers and the filters read none")
    check_settings([files.shard for files in shards], config)  # now, not after hours of embedding
    encoder, quality, shards = _index_and_score(stages, shards, work, previous)
    _check_complete(failed, stages)
    later = [] if config.quality.reads_encoder else _measures(config, encoder, work)
    shards, certificate = _select(stages, shards, later, failed, work, previous)
    failed = _check_complete(failed, stages)
    provenance = Provenance(portable(encoder, work), quality.as_dict(), certificate, tuple(failed), plan.skipped)
    with one_exporter(out, waiting=partial(_say_waiting, out)):
        staged = maps.export(stages, shards, out, provenance)
        _check_conservation(staged, shards)
        report = maps.write_report(stages, staged, shards, certificate)
        warnings = [dict(warning) for warning in report.warnings]
        release = stages.whole(whole.publish, staged=staged, pictures=report.pictures, warnings=warnings)
    times.keep(work, plan, stages.board)
    found = numbers(release, stages, certificate, failed, plan.skipped)
    found |= {"warnings": warnings, "meanwhile": meanwhile(release, before, out)}
    if stages.metrics:
        stages.metrics.tell(found, release)
    _show(stages, release, found, report.pictures, failed)
    return found


def _say_waiting(out: str) -> None:
    _say(f"another run is publishing into {out}; this one waits for it")


def _say(said: str, level: int = logging.INFO) -> None:
    get_run_logger().log(level, said)
    print(f"datamask: {said}", file=sys.stderr, flush=True)


def portable(encoder: Any, work: str) -> dict[str, Any]:
    """The encoder's identity without where the output folder lies; `flows.refresh` puts that back."""
    identity: dict[str, Any] = encoder.as_dict()
    return identity | {"path": str(identity["path"]).removeprefix(f"{work}/")}


def meanwhile(release: ReleaseFolder, before: str | None, out: str) -> str | None:
    """What another run did to `latest` while this one ran, in words; None if nothing."""
    now = latest_version(out)
    if now != release.version:
        return f"`latest` points at {now}, which another run published meanwhile; this run's release is complete, too"
    previous = (release.manifest()["previous"] or {}).get("version")
    if release.new and previous != before:
        return f"another run published {previous} while this one ran; `latest` points at this run's release now"
    return None


def _index_and_score(
    stages: Stages, shards: list[ShardFiles], work: str, previous: Previous
) -> tuple[Any, Any, list[ShardFiles]]:
    config = stages.config
    common: dict[str, Any] = {"config": config, "work": work}
    converted = [files.shard for files in shards]
    if not prepared_by_numpy(config):
        loaded()
    fitting: dict[str, Any] = {"shards": converted, "previous": previous.encoder, **common}
    begin = partial(stages.start, whole.prepare_encoder, model=config.encoder.model, **fitting)
    static = config.encoder.model == "static"
    of_counter = stages.start(whole.prepare_tokenizer, **fitting) if static else begin()
    of_quality = None
    if not config.quality.reads_encoder:  # a core beside the encoder's
        of_quality = stages.start(
            whole.prepare_quality, shards=converted, encoder=None, previous=previous.quality, **common
        )
    if config.filter.exact_duplicates or near_duplicates_wanted(config):
        shards = stages.each([Step(each.sign, common)], shards)
    encoder = counter = stages.finish(of_counter)  # the index counts by a static one's tokens while vectors are made
    of_encoder = begin() if static and config.reads_vectors else None
    if of_encoder and config.quality.reads_encoder:
        encoder, of_encoder = stages.finish(of_encoder), None
    quality = stages.finish(
        of_quality
        or stages.start(whole.prepare_quality, shards=converted, encoder=encoder, previous=previous.quality, **common)
    )
    loaded()
    shards = stages.each([Step(each.index, {"encoder": counter, **common})], shards)
    check_quarantine(shards, config)  # before they are embedded
    steps = _measures(config, encoder, work) if config.quality.reads_encoder else []
    steps.append(Step(each.score, {"quality": quality, "encoder": encoder, **common}))
    if decontamination_wanted(config):
        steps.append(Step(each.leaks, common, beside=True))
    shards = stages.each(steps, shards)
    return stages.finish(of_encoder) if of_encoder else encoder, quality, shards


def _measures(config: Config, encoder: Any, work: str) -> list[Step]:
    """What the selection reads of a document, beside its score."""
    common: dict[str, Any] = {"config": config, "work": work}
    steps = [Step(each.embed, {"encoder": encoder, **common})] if config.reads_vectors else []
    if reads_words(config.selection):
        steps.append(Step(each.atoms, common, beside=bool(steps)))
    return steps


def _select(
    stages: Stages,
    shards: list[ShardFiles],
    later: Sequence[Step],
    failed: Sequence[FailedFile],
    work: str,
    previous: Previous,
) -> tuple[list[ShardFiles], dict[str, Any]]:
    """later: what filters and duplicates do not wait for, and the selection does."""
    config = stages.config
    common: dict[str, Any] = {"config": config, "work": work}
    beside = stages.beside(partial(stages.each, later, shards)) if later else None

    def filtered(shards: list[ShardFiles]) -> list[ShardFiles]:
        outputs = maps.filter_corpus(stages, shards, work)
        return [replace(files, filters=output) for files, output in zip(shards, outputs, strict=True)]

    if config.filter.order == "before":
        shards = filtered(shards)
    if near_duplicates_wanted(config):
        outputs = maps.find_duplicates(stages, shards, work)
        shards = [replace(files, duplicates=output) for files, output in zip(shards, outputs, strict=True)]
    check_left(shards, config)
    if beside:
        through = stages.join(beside)
        _check_complete(failed, stages)
        if len(through) < len(shards):  # others have been told apart from shards that are not there any more
            return _select(stages, through, (), failed, work, previous)
        shards = [files.joined([own]) for files, own in zip(shards, through, strict=True)]
    extended = maps.extend_prices(stages, shards, work, previous.prices) if previous.prices else None
    if extended and (missed := _missed(extended.facts, previous.gap)):
        get_run_logger().info("beside the selection of release %s %s; selecting again", previous.version, missed)
        extended = None
    prices = extended
    if config.selection.scope == "corpus" and not prices:
        prices = maps.learn_prices(stages, shards, work)
    shards = stages.each([Step(each.mask, {"prices": prices, **common})], shards)
    if config.filter.order == "after":
        shards = filtered(shards)
    if not prices:
        return shards, {"shards": {files.shard.name: dict(files.masks.facts) for files in shards if files.masks}}
    certificate = {**prices.facts, "prices": prices.key}
    if extended:
        certificate |= {"continues": previous.version, "solved_gap": previous.gap}
    return shards, certificate


def _missed(facts: Mapping[str, Any], gap: float) -> str:
    """In words, what new documents selected beside old ones miss too much of; empty if nothing. gap: the solved one."""
    found = [*facts["broken"]]
    if abs(facts["budget"] - 1) > DRIFT:
        found.append(f"{facts['budget']:.1%} of the budget is spent")
    if facts["gap"] > gap + DRIFT:
        found.append(f"the gap to the bound is {facts['gap']:.1%}, and was {gap:.1%} when all was solved")
    return "; ".join(found)


def _check_complete(failed: Sequence[FailedFile], stages: Stages) -> list[FailedFile]:
    """All that failed so far.

    :raises IncompleteError: something did, and the settings do not allow it.
    """
    every = [*failed, *(FailedFile(failure.shard, f"{failure.stage}: {failure.error}") for failure in stages.failures)]
    if every and not stages.config.run.allow_failed_shards:
        stages.artifacts.show_failures([(file.path, file.error) for file in every])
        named = "\n".join(f"  {file.path}: {file.error}" for file in every)
        raise IncompleteError(
            f"{several(len(every), 'file or shard', 'files or shards')} failed, so there is no release:\n{named}\n"
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


def _show(
    stages: Stages,
    release: ReleaseFolder,
    found: Mapping[str, Any],
    pictures: Sequence[Picture],
    failed: Sequence[FailedFile],
) -> None:
    """`curation` comes last, for it links to the others."""
    shown = stages.artifacts
    shown.show_pictures(release.path, pictures)
    if failed:
        shown.show_failures([(file.path, file.error) for file in failed])
    shown.show_warnings([sentence(warning, release.path) for warning in found["warnings"]])
    shown.show_shards(shard_rows(release, stages))
    shown.show_numbers(as_markdown(found))
