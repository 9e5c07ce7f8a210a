"""Bring the last release up to date: only what is new is read, embedded and scored; nothing new, no release.

prefect deployment run refresh/nightly
prefect event emit datamask.dump.ready --resource-id datamask.dump.CC-MAIN-2026-01
"""

import fcntl
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

import tasks.corpus as whole
from datamask import storage
from datamask.config import Config, Solver
from datamask.corpus.plan import Part, Plan, Shard
from datamask.encoders import EncoderRef
from datamask.errors import InputError, TransientError
from datamask.quality import QualityRef
from datamask.release.layout import Release, find_release
from datamask.storage import Output
from flows import artifacts
from flows.curate import Previous, curation, override
from flows.stages import Stages

# a section whose settings changed, and what is done again for every document, old ones too
CONSEQUENCES = {
    "corpus": "every document is read, embedded and scored again",
    "encoder": "every document is embedded again",
    "quality": "every document is scored again",
    "filter": "the filters and the selection are computed again",
    "duplicates": "near-duplicates and the selection are computed again",
    "select": "the selection is computed again",
    "release": "the release is written again",
}
# settings that change how the work is done, not what comes out
INDIFFERENT = {
    "corpus.input",
    "encoder.device",
    "encoder.batch_tokens",
    "select.device",
    "filter.memory_limit",
    "duplicates.alarm",
}


def _run_name() -> str:
    return f"refresh {flow_run.get_parameters().get('output', '')}"


@flow(name="refresh", flow_run_name=_run_name)
def refresh(
    input: str = "",
    output: str = "out/curated",
    lamb: Annotated[float | None, Field(ge=0, le=1)] = None,
    select_ratio: Annotated[float | None, Field(gt=0, le=1)] = None,
    solver: Solver | None = None,
    config: Config | None = None,
) -> dict[str, Any]:
    """Bring the last release up to date with its input; nothing new, no release.

    Args:
        input: Files, folders or globs, separated by spaces; empty: those of the last release.
        output: Folder or URL with work/ and releases/.
        lamb: λ, the weight of quality: 1 is top-quality, 0 diversity alone; None: the last release's.
        select_ratio: Share of documents to keep; None: the last release's.
        solver: How to select; None: the last release's.
        config: Every setting; None: those of the last release.
    """
    out = output.rstrip("/")
    with one_refresh(out):
        last = last_release(out)
        manifest = last.manifest() if last else {}
        base = config or (Config.model_validate(manifest["settings"]) if last else Config())
        if not base.corpus.input and last:
            base = override(base, input=manifest["settings"]["corpus"]["input"])
        settings = override(base, input=shlex.split(input), lamb=lamb, select_ratio=select_ratio, solver=solver)
        with Stages(settings) as stages:
            work = storage.join(out, "work")
            previous = plan_of(manifest) if last else None
            plan = stages.whole(whole.plan, config=settings, work=work, previous=previous)
            if not last:
                get_run_logger().info("no release yet: the whole corpus is new")
                return curation(stages, plan, out)
            changes = compare(manifest, plan, settings)
            artifacts.show_changes(changes.describe())
            if not changes:
                return _nothing_new(last, changes)
            get_run_logger().info("%s", changes.describe())
            return curation(stages, plan, out, _taken_over(manifest, settings, work, changes)) | {
                "changes": changes.describe(),
                "previous": last.version,
            }


@dataclass(frozen=True)
class Changes:
    """What differs from the last release: shards by name, and settings."""

    release: str
    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    same: int
    settings: tuple[str, ...]  # "select.lamb: 0.5 → 0.7"
    failures: bool  # other files than before cannot be read
    documents: int  # of the last release's corpus

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone or self.settings or self.failures)

    def describe(self) -> str:
        """In words, with what a change of settings will cost."""
        if not self:
            return f"nothing new since release {self.release}: {self.same:,} shards are the same"
        counts = {"new": self.new, "changed": self.changed, "gone": self.gone}
        parts = [f"{len(names):,} {what} ({_some(names)})" for what, names in counts.items() if names]
        text = f"since release {self.release}: shards: {', '.join([*parts, f'{self.same:,} the same'])}"
        for section, consequence in CONSEQUENCES.items():
            found = [setting for setting in self.settings if setting.startswith(f"{section}.")]
            if found:
                text += f"\n{'; '.join(found)}: {consequence} ({self.documents:,} documents)"
        return text


def compare(manifest: Mapping[str, Any], plan: Plan, settings: Config) -> Changes:
    """The plan and the settings against a release's, by content and not by time."""
    before = {shard["shard"]: shard["fingerprint"] for shard in manifest["inputs"]}
    now = {shard.name: shard.fingerprint for shard in plan.shards}
    known = {failed["path"] for failed in manifest["provenance"]["failed"]}
    return Changes(
        release=manifest["version"],
        new=tuple(sorted(now.keys() - before.keys() - known)),
        changed=tuple(sorted(name for name in now.keys() & before.keys() if now[name] != before[name])),
        gone=tuple(sorted(before.keys() - now.keys())),
        same=sum(before.get(name) == fingerprint for name, fingerprint in now.items()),
        settings=tuple(_differences(manifest["settings"], settings.model_dump(mode="json"))),
        failures=not {failure.path for failure in plan.failures} <= known,
        documents=manifest["conservation"]["total"]["rows"],
    )


def plan_of(manifest: Mapping[str, Any]) -> Plan:
    """The shard plan of a release: files keep their place in its shards, so that new ones never change old shards."""
    parts: dict[str, list[Part]] = {}
    for source in manifest["sources"]:
        groups = source["row_groups"]
        part = Part(
            source["path"], source["format"], source["fingerprint"], source["bytes"], tuple(groups) if groups else None
        )
        parts.setdefault(source["shard"], []).append(part)
    inputs = {shard["shard"]: shard["fingerprint"] for shard in manifest["inputs"]}
    return Plan(tuple(Shard(name, tuple(parts[name]), inputs[name]) for name in sorted(inputs)))


def last_release(out: str) -> Release | None:
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
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TransientError(f"another refresh of {out} is running; wait for it, then run this again") from error
        yield


def _taken_over(manifest: Mapping[str, Any], settings: Config, work: str, changes: Changes) -> Previous:
    """The last release's encoder; its quality statistics and its prices if what they depend on is the same."""
    identity = dict(manifest["provenance"]["encoder"])
    fitted = storage.join(work, identity["path"])
    if storage.exists(fitted):
        identity["path"] = fitted
    encoder = EncoderRef.from_dict(identity)
    changed = {setting.split(".")[0] for setting in changes.settings}
    kept = changed.isdisjoint({"corpus", "encoder", "quality"})
    quality = QualityRef.from_dict(manifest["provenance"]["quality"]) if kept else None
    prices = None
    key = manifest["provenance"]["certificate"].get("prices")
    if key and kept and changed.isdisjoint({"select", "filter", "duplicates"}) and settings.run.refresh == "prices":
        prices = _saved_prices(work, key)
    certificate = manifest["provenance"]["certificate"]
    gap = certificate.get("solved_gap", certificate.get("gap")) or 0.0
    return Previous(encoder, quality, prices, gap, manifest["version"])


def _saved_prices(work: str, key: str) -> Output | None:
    """The prices of a release, if they are still there and can score what they have not seen."""
    from datamask.selection.prices import Prices

    url = storage.join(work, "prices", f"prices-{key}.parquet")
    found = storage.find_output(url, key)
    if not found:
        return None
    with storage.open_input(url.removesuffix(".parquet") + ".npz") as file:
        return found if Prices.load(file).complete else None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """ "section.name: old → new" of every setting that changes what comes out."""
    found = []
    for section in CONSEQUENCES:
        for name, value in now[section].items():
            old = before.get(section, {}).get(name, value)  # a setting that is new in this version says nothing
            if old != value and f"{section}.{name}" not in INDIFFERENT:
                found.append(f"{section}.{name}: {old} → {value}")
    return found


def _nothing_new(last: Release, changes: Changes) -> dict[str, Any]:
    get_run_logger().info("%s", changes.describe())
    return {"message": changes.describe(), "latest": last.path, "new": False}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
