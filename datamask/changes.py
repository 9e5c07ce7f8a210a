"""What differs from the last release, and whether so much is gone that nothing may be published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datamask import extensions, storage
from datamask.config import Config, Select, resolve, validate_section
from datamask.corpus.plan import Plan, Shard
from datamask.errors import IncompleteError, several, some
from datamask.pipeline import INDIFFERENT
from datamask.release.release_folder import latest_version

NAMED = 3  # shards that are named of those that are new, changed or gone
# a section whose settings changed, and what is done again for every document, old ones too
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
# settings that cost less than their section
GROUPING = dict.fromkeys(
    ("corpus.group_bytes", "corpus.shard_rows"),
    "what lies in other shards now is read again, and the release is written again",
)
# settings that change no file of a release that is there
LATER = dict.fromkeys(("release.statements", "release.small_enterprise"), "the next release that is made says it")
LATER |= {"release.keep": "older releases are removed"}


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
    settings: tuple[str, ...]  # "select.lamb: 0.5 → 0.7", "filter.own: NAME has changed"
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
        left = self.settings
        for name, consequence in (LATER | GROUPING | CONSEQUENCES).items():
            found = tuple(setting for setting in left if setting.startswith((f"{name}:", f"{name}.")))
            left = tuple(setting for setting in left if setting not in found)
            if found:
                cost = "" if name in LATER else f" ({several(self.documents, 'document')})"
                text += f"\n{'; '.join(found)}: {consequence}{cost}"
        return text


def named_content(config: Config) -> dict[str, str]:
    """What the settings name beside the input, by setting and name: the fingerprints of code of the user's own, of test
    items and of the target, and the last version of each curation that duplicates are looked for in."""
    select, names = config.selection, dict[str, dict[str, str]]()
    names["encoder.model"] = extensions.fingerprints_of("encoder", [config.encoder.model])
    names["quality.scorers"] = extensions.fingerprints_of("scorer", [each.kind for each in config.quality.scorers])
    names["filter.own"] = extensions.fingerprints_of("filter", [each.use for each in config.filter.own])
    names["select.algorithm"] = extensions.fingerprints_of("metric", select.metrics)
    names["select.solver"] = extensions.fingerprints_of("solver", [select.solver])
    for setting, paths in (
        ("filter.decontaminate", config.filter.decontaminate),
        ("select.target", storage.expand_patterns(select.target)),
    ):
        names[setting] = {path: storage.fingerprint(path) for path in paths if storage.exists(path)}
    names["duplicates.against"] = {place: latest_version(place) or "" for place in config.duplicates.against}
    return {f"{setting}: {name}": each for setting, found in names.items() for name, each in found.items()}


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
    held = {part.path for shard in plan.shards for part in shard.parts}
    excused |= {name for name in gone if paths.get(name) and paths[name] <= held}  # other runs of row groups now
    contents = {part.fingerprint for shard in plan.shards for part in shard.parts}
    unmoved = {source["shard"] for source in manifest["sources"] if source["fingerprint"] not in contents}
    files = {
        source["path"]
        for source in manifest["sources"]
        if source["shard"] in now and source["path"] not in held | broken and source["fingerprint"] not in contents
    }
    changed = _differences(manifest["settings"], settings.resolved.model_dump(mode="json"))
    named = named_content(settings)
    told = manifest.get("named", named)  # older releases do not say
    changed += [
        f"{name} has changed"
        for name in sorted(told.keys() | named.keys())
        if told.get(name) != named.get(name) and not any(each.startswith(f"{name.split(':')[0]}:") for each in changed)
    ]
    return Changes(
        release=manifest["version"],
        new=tuple(sorted(now.keys() - before.keys() - known)),
        again=tuple(sorted((now.keys() - before.keys()) & known)),
        changed=tuple(sorted(name for name in now.keys() & before.keys() if now[name] != before[name])),
        gone=tuple(sorted(gone)),
        lost=tuple(sorted(gone & unmoved - excused)),
        files=tuple(sorted(files)),
        same=sum(before.get(name) == fingerprint for name, fingerprint in now.items()),
        settings=tuple(changed),
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
    runs = {source["path"] for source in manifest["sources"] if source["row_groups"]}
    runs |= {part.path for shard in shards for part in shard.parts if part.row_groups}
    before, now = Counter[str](), Counter[str]()  # of such a file whole: its rows may lie in another of its shards
    held = {(shard.name, part.fingerprint) for shard in shards for part in shard.converted_from or shard.parts}
    contents = {content for _, content in held}
    for source in manifest["sources"]:
        if source["fingerprint"] in contents and (source["shard"], source["fingerprint"]) not in held:
            continue  # the file moved from this shard to another
        before[source["path"] if source["path"] in runs else source["shard"]] += source["rows"]
    for shard in shards:
        path = shard.parts[0].path
        now[path if path in runs else shard.name] += shard.rows or 0
    fewer = {name: before[name] - now[name] for name in now if before[name] > now[name]}
    lost, total = sum(fewer.values()), max(1, manifest["conservation"]["total"]["rows"])
    if lost / total > settings.run.loss and not settings.run.allow_loss:
        worst = sorted(fewer, key=lambda name: -fewer[name])
        raise IncompleteError(
            f"files that changed since release {manifest['version']} have {several(lost, 'row')} fewer than before "
            f"({lost / total:.1%} of its {total:,}, and run.loss allows {settings.run.loss:.1%}), so nothing is "
            f"published: {some((f'{name} {before[name]:,} → {now[name]:,}' for name in worst), 3)}. Were they cut "
            "short? Mend them, or publish so: --allow-loss"
        )


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
