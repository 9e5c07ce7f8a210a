"""Bring the last release up to date: only what is new is read, embedded and scored; nothing new, no release.

prefect deployment run refresh/refresh -p output=out/curated
prefect event emit datamask.dump.ready --resource-id datamask.dump.CC-MAIN-2026-01
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from datamask import storage
from datamask.carried_on import carry_on
from datamask.config import Config, Select, Solver, over_release, resolve, validate, validate_section
from datamask.corpus.plan import Part, Plan, Shard, reading_from_json
from datamask.errors import ConfigError, IncompleteError, InputError, TransientError, several, some
from datamask.filter import forgotten
from datamask.locks import locked
from datamask.pipeline import INDIFFERENT, STAGES
from datamask.release.publication import running
from datamask.release.release_folder import ReleaseFolder, find_release
from datamask.release.shift import shifts
from datamask.run import Previous, Run
from datamask.selection.extension import StandingChoice
from flows.curate import allowing, finished, override
from flows.hints import for_this_reader
from flows.stage_runs import Stages

# a section whose settings changed, and what is done again for every document, old ones too
NAMED = 3  # shards that are named of those that are new, changed or gone
CONSEQUENCES = {
    "corpus": "every document is read, embedded and scored again",
    "encoder": "every document is embedded again",
    "quality": "every document is scored again",
    "topics": "topics are fitted again, and what reads them is computed again",
    "filter": "the filters and the selection are computed again",
    "duplicates": "near-duplicates and the selection are computed again",
    "select": "the selection is computed again",
    "release": "the release is written again",
}


def _run_name() -> str:
    return f"refresh {flow_run.get_parameters().get('output', '')}"


@flow(name="refresh", flow_run_name=_run_name)
def refresh(
    input: str = "",
    output: str = "out/curated",
    target: str = "",
    lamb: Annotated[float | None, Field(ge=0, le=1)] = None,
    token_ratio: Annotated[float | None, Field(gt=0)] = None,
    select_ratio: Annotated[float | None, Field(gt=0, le=1)] = None,
    solver: Solver | None = None,
    allow_failed_shards: bool = False,
    allow_loss: bool = False,
    config: Config | None = None,
) -> dict[str, Any]:
    """Bring the last release up to date with its input; nothing new, no release.

    Args:
        input: Files, folders or globs, separated by spaces; empty: those of the last release.
        output: Folder or URL with work/ and releases/.
        target: Files of texts that the choice shall explain, separated by spaces; empty: the last release's.
        lamb: λ, the weight of quality: 1 is top-quality, 0 diversity alone; None: the last release's.
        token_ratio: Share of the tokens to keep; None: the last release's.
        select_ratio: Share of the documents to keep, instead of tokens; None: the last release's.
        solver: How to select; None: the last release's.
        allow_failed_shards: Publish without files and shards that failed; the manifest names them.
        allow_loss: Publish though shards of the last release, or many of its rows, are gone.
        config: Settings to change, laid over the last release's key by key; None: none.
    """
    out = output.rstrip("/")
    with for_this_reader(), one_refresh(out), running(out):
        last = last_release(out)
        manifest = last.manifest() if last else {}
        base = validate(over_release(manifest["settings"], config)) if last else config or Config()
        asked = {"lamb": lamb, "token_ratio": token_ratio, "select_ratio": select_ratio, "solver": solver}
        settings = override(base, input=shlex.split(input), target=shlex.split(target), **asked)
        settings = allowing(settings, allow_failed_shards=allow_failed_shards, allow_loss=allow_loss)
        with Stages(settings, out) as stages:
            work = storage.join(out, "work")
            if not settings.corpus.input:
                raise ConfigError(
                    f"{out} has no release whose input could be read again, and no input is given: set `input` of the "
                    "deployment refresh/refresh-nightly (prefect.yaml), or -p input='dumps/*.parquet'"
                )
            before = plan_of(manifest) if last else None
            plan = stages.run(STAGES["plan"], settings=settings.corpus, work=work, previous=before)
            if not last:
                get_run_logger().info("no release yet: the whole corpus is new")
                return finished(Run(stages, plan, out).publish(), out)
            changes = compare(manifest, plan, settings)
            stages.artifacts.show_changes(changes.describe())
            if not changes and not forgotten.is_pending(out):
                return _nothing_new(last, changes)
            get_run_logger().info("%s", changes.describe())
            check_gone(changes, settings)
            previous = taken_over(manifest, settings, work, changes)
            if not changes:  # a `forget` was interrupted
                previous = replace(previous, keep=standing(last))
            previous = replace(previous, check=partial(check_rows, manifest, settings))
            found = Run(stages, plan, out, previous).publish()
            drift = [shift.to_json() for shift in shifts(find_release(found["release"]), changes.read)]
            stages.artifacts.show_drift([shift["text"] for shift in drift], found["release"])
            told = {"changes": changes.describe(), "changed_settings": list(changes.settings)}
            return finished(found | told | {"previous": last.version, "drift": drift}, out)


@dataclass(frozen=True)
class Changes:
    """What differs from the last release: shards by name, and settings."""

    release: str
    new: tuple[str, ...]
    again: tuple[str, ...]  # failed last time, and are there
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    lost: tuple[str, ...]  # of those, whose content is in no other shard, and no failure excuses
    files: tuple[str, ...]  # that are gone from shards of several files, which are there
    same: int
    settings: tuple[str, ...]  # "select.lamb: 0.5 → 0.7"
    failures: bool  # other files than before cannot be read
    documents: int  # of the last release's corpus

    def __bool__(self) -> bool:
        return bool(self.new or self.again or self.changed or self.gone or self.settings or self.failures)

    @property
    def read(self) -> frozenset[str]:
        """The shards that were not read before, or not so."""
        return frozenset((*self.new, *self.again, *self.changed))

    def describe(self) -> str:
        """In words, with what a change of settings will cost."""
        if not self:
            return f"nothing new since release {self.release}: {several(self.same, 'shard is', 'shards are')} the same"
        counts = {"new": self.new, "tried again": self.again, "changed": self.changed, "gone": self.gone}
        parts = [f"{len(names):,} {what} ({some(names, NAMED)})" for what, names in counts.items() if names]
        if self.files:
            parts.append(f"{several(len(self.files), 'file')} gone from them ({some(self.files, NAMED)})")
        text = f"since release {self.release}: shards: {', '.join([*parts, f'{self.same:,} the same'])}"
        for section, consequence in CONSEQUENCES.items():
            found = [setting for setting in self.settings if setting.startswith(f"{section}.")]
            if found:
                text += f"\n{'; '.join(found)}: {consequence} ({several(self.documents, 'document')})"
        return text


def compare(manifest: Mapping[str, Any], plan: Plan, settings: Config) -> Changes:
    """The plan and the settings against a release's, by content and not by time."""
    before = {shard["shard"]: shard["fingerprint"] for shard in manifest["inputs"]}
    now = {shard.name: shard.fingerprint for shard in plan.shards}
    known = {failed["path"] for failed in manifest["provenance"]["failed"]}
    gone = before.keys() - now.keys()
    broken = {failure.path for failure in plan.failures} if settings.run.allow_failed_shards else set()
    paths: dict[str, set[str]] = {}
    for source in manifest["sources"]:
        paths.setdefault(source["shard"], set()).add(source["path"])
    excused = {name for name in gone if paths.get(name, set()) <= broken} if broken else set()
    moved = {name for name in gone if before[name] in now.values()}
    held = {part.path for shard in plan.shards for part in shard.parts}
    contents = {part.fingerprint for shard in plan.shards for part in shard.parts}
    files = {
        source["path"]
        for source in manifest["sources"]
        if source["shard"] in now and source["path"] not in held | broken and source["fingerprint"] not in contents
    }
    return Changes(
        release=manifest["version"],
        new=tuple(sorted(now.keys() - before.keys() - known)),
        again=tuple(sorted((now.keys() - before.keys()) & known)),
        changed=tuple(sorted(name for name in now.keys() & before.keys() if now[name] != before[name])),
        gone=tuple(sorted(gone)),
        lost=tuple(sorted(gone - excused - moved)),
        files=tuple(sorted(files)),
        same=sum(before.get(name) == fingerprint for name, fingerprint in now.items()),
        settings=tuple(_differences(manifest["settings"], settings.resolved.model_dump(mode="json"))),
        failures=not {failure.path for failure in plan.failures} <= known,
        documents=manifest["conservation"]["total"]["rows"],
    )


def check_gone(changes: Changes, settings: Config) -> None:
    """:raises IncompleteError: shards of the last release are gone, and run.allow_loss is not set."""
    if (changes.lost or changes.files) and not settings.run.allow_loss:
        lost = [several(len(changes.lost), "shard")] if changes.lost else []
        lost += [several(len(changes.files), "file")] if changes.files else []
        raise IncompleteError(
            f"gone from the input: {' and '.join(lost)} of release {changes.release}, so nothing is "
            f"published: {some((*changes.lost, *changes.files), NAMED)}. Put them back (a refresh reads the input of "
            "the last release, unless --input is given), or publish without them: --allow-loss"
        )


def check_rows(manifest: Mapping[str, Any], settings: Config, shards: Sequence[Shard]) -> None:
    """Whether files that changed have lost rows.

    :raises IncompleteError: more than run.loss of the last release's, and run.allow_loss is not set.
    """
    before = {name: counts["rows"] for name, counts in manifest["conservation"]["shards"].items()}
    fewer = {
        shard.name: before[shard.name] - (shard.rows or 0)
        for shard in shards
        if before.get(shard.name, 0) > (shard.rows or 0)
    }
    lost, total = sum(fewer.values()), max(1, manifest["conservation"]["total"]["rows"])
    if lost / total > settings.run.loss and not settings.run.allow_loss:
        worst = sorted(fewer, key=lambda name: -fewer[name])
        raise IncompleteError(
            f"files that changed since release {manifest['version']} have {several(lost, 'row')} fewer than before "
            f"({lost / total:.1%} of its {total:,}, and run.loss allows {settings.run.loss:.1%}), so nothing is "
            f"published: {', '.join(f'{name} {before[name]:,} → {before[name] - fewer[name]:,}' for name in worst[:3])}"
            f"{', …' if len(worst) > 3 else ''}. Were they cut short? Mend them, or publish so: --allow-loss"
        )


def plan_of(manifest: Mapping[str, Any]) -> Plan:
    """The shard plan of a release: files keep their place in its shards, so that new ones never change old shards."""
    parts: dict[str, list[Part]] = {}
    for source in manifest["sources"]:
        groups = source["row_groups"]
        part = Part(
            source["path"],
            source["format"],
            source["fingerprint"],
            source["bytes"],
            tuple(groups) if groups else None,
            reading=reading_from_json(source.get("reading")),
        )
        parts.setdefault(source["shard"], []).append(part)
    inputs = {shard["shard"]: shard["fingerprint"] for shard in manifest["inputs"]}
    return Plan(tuple(Shard(name, tuple(parts[name]), inputs[name]) for name in sorted(inputs)))


def last_release(out: str) -> ReleaseFolder | None:
    """The newest release of an output folder, or None where there is none."""
    try:
        return find_release(out)
    except InputError:
        return None


@contextmanager
def one_refresh(out: str) -> Iterator[None]:
    """One refresh of an output folder at a time. The kernel takes the lock back from a process that dies.

    On an object store there is no such lock: there the deployment's concurrency limit holds the second one back.

    :raises TransientError: another one is at it.
    """
    if storage.is_remote(out):
        yield
        return
    path = Path(storage.filesystem(out)[1]) / "work" / "refresh.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=False))
        except BlockingIOError as error:
            raise TransientError(f"another refresh of {out} is running; wait for it, then run this again") from error
        yield


def taken_over(manifest: Mapping[str, Any], settings: Config, work: str, changes: Changes) -> Previous:
    """What the last release fitted, and its prices if nothing that they depend on has changed."""
    changed = {setting.split(".")[0] for setting in changes.settings}
    taken = carry_on(manifest, settings, work, changed)
    certificate = manifest["provenance"]["certificate"]
    key, prices = certificate.get("prices"), None
    unchanged = taken.quality and changed.isdisjoint({"select", "filter", "duplicates"})
    if key and unchanged and settings.run.refresh == "prices":
        prices = storage.find_output(storage.join(work, "prices", f"prices-{key}.parquet"), key)
    return replace(taken, prices=prices, gap=certificate.get("solved_gap", certificate.get("gap")) or 0.0)


def standing(release: ReleaseFolder) -> StandingChoice:
    """What of a release stays chosen."""
    manifest = release.manifest()
    total = manifest["conservation"]["total"]
    chosen = total["selected"], total["tokens_selected"]
    return StandingChoice(release.path, release.key, dict(manifest["provenance"]["certificate"]), *chosen)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """ "section.name: old → new" of every setting that changes what comes out."""
    found = []
    given = {name: value for name, value in before["select"].items() if name in Select.model_fields}
    before = {**before, "select": resolve(validate_section(Select, given)).model_dump(mode="json")}
    for section in CONSEQUENCES:
        for name, value in now[section].items():
            old = before.get(section, {}).get(name, value)  # a setting that is new in this version says nothing
            if old != value and f"{section}.{name}" not in INDIFFERENT:
                found.append(f"{section}.{name}: {old} → {value}")
    return found


def _nothing_new(last: ReleaseFolder, changes: Changes) -> Any:
    get_run_logger().info("%s", changes.describe())
    found = {"message": changes.describe(), "latest": last.path, "new": False}
    return Completed(message=changes.describe(), data=found)
