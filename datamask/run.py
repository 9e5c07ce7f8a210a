"""Runs the pipeline: a stage starts when what it reads is there.

    from datamask.run import curate

    release = curate(Config(corpus={"input": ["dumps/*.parquet"]}), "out/mine")      # no server, no Prefect

`Run` is the driver. An engine (`datamask.engine`) does the work: threads of this process here, and Prefect's tasks in
`flows.curate`, with the same bytes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from datamask import storage, times
from datamask.api import Release
from datamask.changes import named_content
from datamask.checks import check_devices, check_packages, check_settings, encoder_caution
from datamask.config import Config
from datamask.corpus.identify import wanted as languages_wanted
from datamask.corpus.plan import FailedFile, Plan, Shard
from datamask.corpus.quarantine import check_quarantine
from datamask.corpus.read import TOPIC
from datamask.driver import Driver
from datamask.engine import Engine, Threads
from datamask.errors import ConservationError, IncompleteError, several
from datamask.filter import forgotten
from datamask.filter.contamination import wanted as decontamination_wanted
from datamask.filter.duplicates import wanted as near_duplicates_wanted
from datamask.filter.filters import check_left
from datamask.pipeline import STAGES, Stage
from datamask.release.housekeeping import check_room
from datamask.release.publication import one_exporter, running
from datamask.release.release_folder import Provenance, ReleaseFolder, Staged, find_release, latest_version
from datamask.run_numbers import numbers
from datamask.seen_from import present_folder
from datamask.selection.cover.counting import check_target, reads_words
from datamask.selection.metrics import pool_columns
from datamask.selection.solvers import check_solver
from datamask.stages import ShardFiles
from datamask.storage import Output

if TYPE_CHECKING:
    from datamask.selection.extension import StandingChoice

BY_RUN = ("plan", "export", "report", "publish")  # before and after the stages that start by what they read


@dataclass(frozen=True)
class Previous:
    """What a refresh takes over from the last release."""

    encoder: Any = None
    quality: Any = None
    topics: str = ""  # the key of its model
    prices: Output | None = None  # select by these instead of solving
    gap: float = 0.0  # of the selection that set the prices
    keep: StandingChoice | None = None  # a release whose choice stays, but for what must be forgotten
    version: str = ""
    check: Callable[[Sequence[Shard]], None] = lambda shards: None  # of the converted shards, before work is put in


@dataclass(frozen=True)
class Prices:
    """The prices that decide, and whether they are saved ones, carried on to new shards."""

    output: Output
    extended: bool = False

    @property
    def cached(self) -> bool:
        """Whether they were there."""
        return self.output.cached


def curate(config: Config, output: str) -> Release:
    """Curates a corpus in this process, without Prefect; `datamask.curate` does it as a Prefect flow.

    :param output: folder or URL for work/ and releases/.
    :returns: the release; `run` has the run's numbers.
    :raises DatamaskError: ConfigError, InputError, IncompleteError …: with what to do.
    """
    out = storage.output_folder(output)
    with running(out), Threads.alone(config) as engine:
        plan = engine.run(STAGES["plan"], settings=config.corpus, work=storage.join(out, "work"), previous=None)
        found = Run(engine, plan, out).publish()
    return Release.of_run(found)


def wanted(config: Config, forgets: bool = False) -> list[Stage]:
    """The stages that start by what they read, as far as these settings need them.

    :param forgets: something is recorded that has to be forgotten.
    """
    static = config.encoder.model == "static"
    needed = {
        "languages": languages_wanted(config),
        "tokenizer": static,
        "encoder": config.reads_vectors or not static,
        "signatures": config.filter.exact_duplicates or near_duplicates_wanted(config),
        "embed": config.reads_vectors,
        "topics": config.makes_topics,
        "atoms": reads_words(config.selection),
        "leaks": decontamination_wanted(config),
        "duplicates": near_duplicates_wanted(config),
        "copies": config.counts_copies or forgets,
        "prices": config.selection.scope == "corpus",
    }
    # a scorer reads the vectors that are made of the whole shard before; a network takes so long that it reads alone
    apart = {"embed"} if config.quality.reads_encoder or not static else set[str]()
    return [
        replace(stage, reading=0) if name in apart else stage
        for name, stage in STAGES.items()
        if name not in BY_RUN and needed.get(name, True)
    ]


def stage_reads(config: Config, forgets: bool = False) -> dict[str, set[str]]:
    """What each stage waits for, of the stages that these settings need. forgets: as for `wanted`."""
    stages = wanted(config, forgets)
    names = {stage.name for stage in stages}
    found = {stage.name: {name for name in stage.reads if name not in BY_RUN} for stage in stages}
    if not config.quality.reads_encoder:
        found["quality"].discard("encoder")
        found["score"].discard("embed")
    asked = config.filter.own or config.condition_reads_topics
    unasked = set() if asked else {"filter", "copies"}
    unasked |= set() if TOPIC in pool_columns(config.selection) else {"prices", "mask"}
    for name in unasked & names:
        found[name].discard("topics")
    if config.filter.order == "after":
        for name, own in found.items():
            own.discard("filter") if name != "filter" else own.add("mask")
    if "tokenizer" not in names:  # the encoder's own counts
        found["index"].add("encoder")
    for name, own in found.items():
        if "convert" in own and "languages" in names and name != "languages":
            own.add("languages")
        own &= names
    return found


class Run(Driver):
    """A curation: the stages between the plan and the release as a graph, then the release."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        out: str,
        previous: Previous = Previous(),
        files: Sequence[ShardFiles] = (),
    ) -> None:
        """:param plan: what the stage of that name returned.
        :param files: shards that stages ran on before, instead of the plan's.
        """
        config = engine.config
        self.plan, self.out, self.previous, self.work = plan, out, previous, storage.join(out, "work")
        self.before = latest_version(out)
        kept = self.previous.keep  # a choice that was made with what was named then
        self.named = find_release(kept.path).seen_from_here().get("named", {}) if kept else named_content(config)
        forgets = forgotten.digest_of(out) is not None
        stages, reads = wanted(config, forgets), stage_reads(config, forgets)
        first = reads["prices" if "prices" in reads else "mask"]  # the choice leaves cores free for the others
        super().__init__(engine, stages, reads, files or map(ShardFiles, plan.shards), first)

    def measure_and_decide(self) -> list[ShardFiles]:
        """Runs every stage between the plan and the release; returns the shards that came through.

        :raises IncompleteError: files or shards failed, and run.allow_failed_shards is not set.
        """
        config = self.config
        check_packages(config, [part.format for shard in self.plan.shards for part in shard.parts])
        check_devices(config)
        check_room(self.plan, config, self.out)
        check_solver(config.selection)
        check_target(config.selection)
        self.engine.board.expected = times.expected(self.work, self.plan)
        self.drive()
        self.check_complete()
        return list(self.files.values())

    def keep_to(self, names: Collection[str], alone: bool = False) -> None:
        """Runs these stages and what they read, and no others. alone: what else they read is there."""
        kept = set(names) if alone else self.with_reads(names)
        self.reads = {name: own & kept for name, own in self.reads.items()}
        self.stages = {name: stage for name, stage in self.stages.items() if name in kept}
        self._first = set(self.stages)

    def given(self, stage: Stage) -> dict[str, Any]:
        ahead = self.with_reads(self.reads[stage.name])
        given: dict[str, Any] = {
            "work": self.work,
            "encoder": next((self.results[name] for name in ("encoder", "tokenizer") if name in ahead), None),
            "quality": self.results.get("quality"),
            "prices": self.results["prices"].output if "prices" in self.results else None,
        }
        if stage.by == "one":
            given["previous"] = self.previous.quality if stage.name == "quality" else self.previous.encoder
        if stage.name == "topics":
            given["previous"] = self.previous.topics
        if stage.name == "prices":
            given |= {"previous": self.previous, "log": self.engine.log}
        return given

    # ---------------------------------------------------------------- what is looked at before more work is put in

    def look_at(self, stage: Stage) -> None:
        """Now, and not after hours of embedding."""
        files = list(self.files.values())
        if stage.name == "index":
            check_quarantine(files, self.config)
            return
        if stage.name == "convert" and "languages" in self.stages:
            return
        self.check_complete()
        shards = [one.shard for one in files]
        failed = [shard for shard in self.plan.shards if shard.name not in self.files and shard.rows]
        self.previous.check([*shards, *failed])  # what failed is told as failed, not as rows that are gone
        if caution := encoder_caution(self.config):
            self._say(caution, logging.WARNING)
        if not self.config.reads_vectors:
            self._say(f"no vectors are made: {self.config.selection.metric}, the scorers and the filters read none")
        check_settings(shards, self.config)

    def look_before(self, stage: Stage) -> None:
        if stage.by == "rounds":
            self.check_complete()
        before = self.previous.quality
        if stage.name == "score" and before and before.fingerprint != self.results["quality"].fingerprint:
            self._say(
                f"every document is scored again: what release {self.previous.version} was scored by is gone from "
                f"{self.work}, or has changed",
                logging.WARNING,
            )
        if stage.name != ("prices" if "prices" in self.stages else "mask"):
            return
        files = list(self.files.values())
        check_left(files, self.config)

    def _say(self, said: str, level: int = logging.INFO) -> None:
        self.engine.log(said, level)
        print(f"datamask: {said}", file=sys.stderr, flush=True)

    def failed(self) -> list[FailedFile]:
        """All files and shards that failed so far."""
        shards = (FailedFile(one.shard, f"{one.stage}: {one.error}") for one in self.engine.failures)
        return [*self.plan.failures, *shards]

    def check_complete(self) -> None:
        """:raises IncompleteError: files or shards failed, and the settings do not allow it."""
        failed = self.failed()
        if failed and not self.config.run.allow_failed_shards:
            self.engine.show_failures([(file.path, file.error) for file in failed])
            named = "\n".join(f"  {file.path}: {file.error}" for file in failed)
            raise IncompleteError(
                f"{several(len(failed), 'file or shard', 'files or shards')} failed, so there is no release:\n{named}\n"
                "mend or remove them and run the same command again: what is done is kept; "
                "or publish without them: --allow-failed-shards",
                path=failed[0].path,
                next=["--allow-failed-shards"],
            )

    # ---------------------------------------------------------------- the release

    def publish(self) -> dict[str, Any]:
        """Runs every stage after the plan, publishes, and returns the run's numbers."""
        shards = self.measure_and_decide()
        from datamask.report.findings import StageTime  # with what draws, which no stage before waits for

        certificate = self.certificate()
        encoder = self.results.get("encoder", self.results.get("tokenizer"))
        failed = self.failed()
        provenance = Provenance(
            portable(encoder, self.work), self.results["quality"].as_dict(), certificate, tuple(failed),
            self.plan.skipped, next((files.topics.facts for files in shards if files.topics), {}), self.named,
            present_folder(self.out),
        )  # fmt: skip
        waiting = partial(self._say, f"another run is publishing into {self.out}; this one waits for it")
        rows, lines = self.rows, self.engine.board.stages.values()
        with one_exporter(self.out, waiting=waiting):
            staged = self.engine.rounds(
                STAGES["export"], _is_published, rows, all_files=shards, out=self.out, provenance=provenance
            )
            check_conservation(staged, shards)
            report = self.engine.rounds(
                STAGES["report"],
                lambda _: _is_published(staged),
                rows,
                staged=staged,
                all_files=shards,
                certificate=certificate,
                stages=[StageTime(line.stage, line.done, line.cached, round(line.seconds, 2)) for line in lines],
            )
            warnings = [dict(warning) for warning in report.warnings]
            release = self.engine.run(STAGES["publish"], staged=staged, pictures=report.pictures, warnings=warnings)
        times.keep_times(self.work, self.plan, self.engine.board)
        forgotten.mark_done(self.out, release.version)
        found = numbers(release, self.engine, certificate, failed, self.plan.skipped)
        found |= {"warnings": warnings, "meanwhile": meanwhile(release, self.before, self.out)}
        self.engine.show(release, found, report.pictures, failed)
        return found

    def certificate(self) -> dict[str, Any]:
        """The facts of the selection: of the corpus, or by shard."""
        prices: Prices | None = self.results.get("prices")
        if not prices:
            masks = {name: files.masks for name, files in self.files.items()}
            return {"shards": {name: dict(output.facts) for name, output in masks.items() if output}}
        found = {**prices.output.facts, "prices": prices.output.key}
        if prices.extended:
            found |= {"continues": self.previous.version, "solved_gap": self.previous.gap}
        return found


def portable(encoder: Any, work: str) -> dict[str, Any]:
    """The encoder's identity without where the output folder lies; `datamask.carried_on` puts that back."""
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


def check_conservation(staged: Staged, shards: Sequence[ShardFiles]) -> None:
    """Every row that was read has exactly one outcome, in every shard.

    :raises ConservationError: a shard's rows and outcomes differ.
    """
    counted: Mapping[str, Any] = staged.facts()["conservation"]["shards"]
    for files in shards:
        read = files.index.rows if files.index else 0
        found = counted.get(files.shard.name, {})
        outcomes = [found.get("selected", 0), found.get("not_selected", 0)]
        outcomes += [*found.get("filtered", {}).values(), *found.get("quarantined", {}).values()]
        if not read == files.shard.rows == found.get("rows") == sum(outcomes):
            raise ConservationError(f"shard {files.shard.name}: {read} rows were read, {found} are accounted for")


def _is_published(staged: Staged) -> bool:
    return staged.published is not None
