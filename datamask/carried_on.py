"""What a run takes over from a release: its plan, and what old documents keep their vectors, scores and topics by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from datamask import storage
from datamask.changes import Changes, check_gone, check_rows
from datamask.config import Config
from datamask.corpus.plan import Part, Plan, Shard, part_of
from datamask.engine import Engine
from datamask.errors import ConfigError, InputError
from datamask.models.encoder_ref import EncoderRef
from datamask.pipeline import STAGES
from datamask.quality import QualityRef
from datamask.release.release_folder import ReleaseFolder
from datamask.run import Previous
from datamask.selection.extension import StandingChoice


def carry_on(
    manifest: Mapping[str, Any], settings: Config, work: str, changed: Collection[str] = frozenset()
) -> Previous:
    """The release's encoder; its quality statistics and its topics, if what they depend on is the same.

    :param work: of the release, where what it fitted lies.
    :param changed: sections whose settings are not the release's.
    :raises ConfigError: its encoder runs code that a model brings, and the settings do not say that this is trusted.
    """
    identity = dict(manifest["provenance"]["encoder"])
    fitted = storage.join(work, identity["path"])
    if storage.exists(fitted):
        identity["path"] = fitted
    encoder = EncoderRef.from_dict(identity)
    if encoder.trust_remote_code and not settings.encoder.trust_remote_code:
        raise ConfigError(
            f"release {manifest['version']} was made with the model {encoder.name}, whose own code is run: "
            "say that you trust it, --set encoder.trust_remote_code=true"
        )
    reading = {"corpus", "encoder"}.isdisjoint(changed)
    kept = reading and "quality" not in changed
    quality = QualityRef.from_dict(manifest["provenance"]["quality"]) if kept else None
    topics = manifest["provenance"].get("topics", {}) if reading and "topics" not in changed else {}
    return Previous(encoder, quality, topics.get("model", ""), version=manifest["version"])


def plan_of(manifest: Mapping[str, Any]) -> Plan:
    """The shard plan of a release: files keep their place in its shards, so that new ones never change old shards."""
    parts: dict[str, list[Part]] = {}
    for source in manifest["sources"]:
        parts.setdefault(source["shard"], []).append(part_of(source))
    inputs = {shard["shard"]: shard["fingerprint"] for shard in manifest["inputs"]}
    return Plan(tuple(Shard(name, tuple(parts[name]), inputs[name]) for name in sorted(inputs)))


def plan_again(engine: Engine, settings: Config, out: str, last: ReleaseFolder | None) -> Plan:
    """The plan of the input as it is now, whose files keep their place in the last release's shards.

    :raises InputError: an input matches nothing; says where the last release names it.
    """
    before = plan_of(last.manifest()) if last else None
    try:
        return engine.run(STAGES["plan"], settings=settings.corpus, work=storage.join(out, "work"), previous=before)
    except InputError as error:
        if last is None or error.path not in last.settings()["corpus"]["input"]:
            raise
        raise InputError(
            f"input {error.path!r} of release {last.version}, made in {last.made_in}, is not there; put it back, or "
            f"say where it is now: datamask refresh --output {out} --input PATH",
            path=error.path,
            next=[f"datamask refresh --output {out} --input PATH"],
        ) from error


def previous_run(last: ReleaseFolder, settings: Config, work: str, changes: Changes, keep: bool) -> Previous:
    """What a run takes over from the last release: what it fitted, and its prices if the settings ask for them and
    what they depend on is the same.

    :param keep: its choice stays, but for what must be forgotten.
    :raises IncompleteError: shards of it are gone, and run.allow_loss is not set; later, rows of files that changed.
    """
    check_gone(changes, settings)
    manifest, changed = last.manifest(), {setting.split(".")[0] for setting in changes.settings}
    taken = carry_on(manifest, settings, work, changed)
    certificate = manifest["provenance"]["certificate"]
    key, prices = certificate.get("prices"), None
    unchanged = taken.quality and changed.isdisjoint({"select", "filter", "duplicates"})
    if key and unchanged and settings.run.refresh == "prices":
        prices = storage.find_output(storage.join(work, "prices", f"prices-{key}.parquet"), key)
    total = manifest["conservation"]["total"]
    chosen = total["selected"], total["tokens_selected"]
    return replace(
        taken,
        prices=prices,
        gap=certificate.get("solved_gap", certificate.get("gap")) or 0.0,
        keep=StandingChoice(last.path, last.key, dict(certificate), *chosen) if keep else None,
        check=partial(check_rows, manifest, settings),
    )
