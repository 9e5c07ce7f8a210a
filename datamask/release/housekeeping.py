"""What an output folder holds, what of it can go, which release `latest` is, and whether a run will fit.

found = survey("out")                     # what `datamask status` shows
plan = unneeded("out", releases=2)        # files of work/ that neither the last two releases nor `latest` need
remove("out", releases=2)
roll_back("out")
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config, Corpus
from datamask.corpus.plan import Plan
from datamask.errors import ConfigError, DamagedFileError, InputError, MissingFileError, StorageError, nearest
from datamask.filter.forgotten import DONE, FOLDER, REASON, Requests, digest_of, is_pending, load_requests, read_done
from datamask.pipeline import STAGES
from datamask.release.manifest import data_paths
from datamask.release.printing import size
from datamask.release.publication import nobody_running, one_publisher, remove_release
from datamask.release.release_folder import (
    ReleaseFolder,
    latest_version,
    list_versions,
    point_latest,
    release_at,
    version_number,
)
from datamask.stages import KEPT, RECORD, ROUNDS, SCRATCH
from datamask.text.text_hashes import text_hashes

FOLDERS = {stage.folder for stage in STAGES.values() if stage.folder} | {ROUNDS, SCRATCH, KEPT}  # others are nobody's
# an interrupted run's; with the first two, the next run with its settings goes on there
UNFINISHED = (STAGES["export"].folder, ROUNDS, SCRATCH)
_RECORD = re.compile(r"[0-9a-f]{16}\.json")
# bytes a document in work/ beside its embedding: index, scores, signatures, atoms, masks, parts that are kept (4,200 on
# 38,232 real documents); and a quarter for what a release and scratch files take for a while
PER_DOCUMENT = 5200
FITTED = 35_000_000  # bytes of the static encoder's tokenizer and the quality score's model, 33 MB for 38,232 documents
COUNTED = 1200  # bytes a token of the vocabulary, for a while: the texts counted by it, on which the vectors are fitted
ASSUMED_DOCUMENT = 2000  # bytes of text, where nobody has counted the rows yet
KEY = re.compile(r"[0-9a-f]{16}")  # of an output, in the name of its file
# of a shard in work/: what holds its documents, or what was measured of them
OF_DOCUMENTS = ("corpus", "languages", "index", "embeddings", "scores", "signatures", "atoms", "leaks")
SHARED = ("parts", "staging", "rounds", "tmp")  # of several shards; made again


@dataclass(frozen=True)
class Folder:
    """A folder of work/."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Unneeded:
    """What can go, and for whom the rest stays."""

    out: str
    kept_for: tuple[str, ...]  # versions
    paths: tuple[str, ...]
    stages: tuple[Folder, ...]
    releases: tuple[str, ...]  # versions that hold what must be forgotten, with all their files

    @property
    def bytes(self) -> int:
        return sum(stage.bytes for stage in self.stages)


@dataclass(frozen=True)
class Survey:
    """What `datamask status` tells."""

    out: str
    latest: str | None
    releases: int
    release_bytes: int
    work: tuple[Folder, ...]
    unfinished: tuple[str, ...]  # releases that an interrupted run had begun to write
    input: tuple[str, ...]  # of the last run
    shards: int
    documents: int
    frees: int  # bytes that `datamask clean` would free
    free: int | None  # bytes of the disk; None: an object store
    warnings: tuple[str, ...]


def survey(out: str) -> Survey:
    """:raises InputError: nothing of datamask lies there."""
    out = storage.output_folder(out)
    versions = list_versions(out)
    work = storage.join(out, "work")
    if not versions and not storage.exists(work):
        raise InputError(f"{out}: neither releases/ nor work/ is there; give the --output folder of a run")
    last = _last_run(work)
    latest = latest_version(out)
    warnings = [] if latest in versions or not versions else [f"latest points at {latest}, which is not there"]
    total = release_at(out, latest).manifest()["conservation"]["total"] if latest and latest in versions else {}
    sizes, staging = _sizes(storage.join(out, "releases")), storage.join(work, "staging")
    staged = {path[len(staging) + 1 :].split("/")[0].removesuffix(".json") for path in _sizes(staging)}
    return Survey(
        out,
        latest,
        len(versions),
        sum(sizes.values()),
        _by_stage(work, _sizes(work)),
        tuple(sorted(filter(KEY.fullmatch, staged))),
        tuple(last.get("config", {}).get("corpus", {}).get("input", ())),
        len(last.get("plan", {}).get("shards", ())),
        int(total.get("rows", 0)),
        unneeded(out).bytes if versions else 0,
        None if storage.is_remote(out) else shutil.disk_usage(_existing(out)).free,
        tuple(warnings),
    )


# ---------------------------------------------------------------- clean


def unneeded(out: str, releases: int = 1) -> Unneeded:
    """The files of work/ that no run needs which goes on from the newest releases, from `latest`, or from the last run.

    :param releases: how many of the newest; what they need stays, so that the same command finds every stage done.
    :raises InputError: no release is there, so that everything may be needed.
    """
    out = storage.output_folder(out)
    versions = list_versions(out)
    latest = latest_version(out)
    if not versions:
        raise InputError(f"{out} has no release yet: what lies in its work/ is what the next run goes on from")
    requests = load_requests(storage.join(out, "work"))
    holding = tuple(
        version
        for version in versions
        if requests and version != latest and any(forgotten_rows(release_at(out, version), requests))
    )
    kept = [version for version in versions if version in versions[-releases:] or version == latest]
    kept = [version for version in kept if version not in holding]
    needed: set[str] = set()
    for version in kept:
        manifest = release_at(out, version).manifest()
        needed |= {*KEY.findall(json.dumps(manifest))}.union(*(keys for _, keys in inputs_with_keys(manifest)))
    work = storage.join(out, "work")
    needed |= {*KEY.findall(json.dumps(_last_run(work)))}
    sizes = _sizes(work)
    gone = {path: size for path, size in sizes.items() if _can_go(work, path, needed)}
    gone |= _parts(work, sizes, gone)
    if requests and latest in versions:
        gone |= {path: sizes[path] for path in work_files(release_at(out, latest).manifest(), work, sizes)}
    return Unneeded(out, tuple(kept), tuple(sorted(gone)), _by_stage(work, gone), holding)


def _last_run(work: str) -> Mapping[str, Any]:
    """What `stages.record` wrote; {}: nothing.

    :raises DamagedFileError: it cannot be read.
    """
    try:
        found: Mapping[str, Any] = storage.read_json(storage.join(work, RECORD))
    except MissingFileError:
        return {}
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; run `datamask curate` again to renew it") from error
    return found


def remove(out: str, releases: int = 1) -> Unneeded:
    """Removes what no run needs, and says what it was. Runs that begin meanwhile wait.

    :raises InputError: no release is there. :raises StorageError: a run is writing there, or it may not be removed.
    """
    out = storage.output_folder(out)
    with nobody_running(out), one_publisher(out):
        found = unneeded(out, releases)
        for path in found.paths:
            storage.remove(path)
        _remove_empty(found.out)
        for version in found.releases:
            remove_release(found.out, version)
        mark_clean(found.out)
    return found


def _remove_empty(out: str) -> None:
    if not storage.is_remote(out):
        root = Path(storage.filesystem(storage.join(out, "work"))[1])
        for stage in sorted(FOLDERS):
            for folder in sorted((root / stage).rglob("*"), reverse=True):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()


def _can_go(work: str, path: str, needed: set[str]) -> bool:
    stage, _, rest = path[len(work) + 1 :].partition("/")
    if stage not in FOLDERS or stage == KEPT or not rest:
        return False
    if stage in UNFINISHED:
        return True
    keys = KEY.findall(rest.split("/")[0])  # the last is the file's own, or its folder's: a shard's name may hold some
    if not keys or keys[-1] in needed:
        return False
    if "/" in rest or not rest.endswith(".json"):
        return True
    try:  # a record of files, or of what was fitted, goes with the first that it names
        return not needed.issuperset(KEY.findall(json.dumps(storage.read_json(path))))
    except ValueError:
        return True


def _parts(work: str, sizes: Mapping[str, int], gone: Mapping[str, int]) -> dict[str, int]:
    """What maps kept for a next run (`maps.keeping`), but for what the runs kept whose corpus-<key>.json stays.

    Where no run has said what it kept, nothing goes.
    """
    found: dict[str, int] = {}
    for name, stage in STAGES.items():
        folder = storage.join(work, KEPT, name)
        own = {path: size for path, size in sizes.items() if path.startswith(f"{folder}/")}
        records = [path for path in own if _RECORD.fullmatch(path[len(folder) + 1 :])]
        of = {path: storage.join(work, stage.folder or "", f"corpus-{path[len(folder) + 1 :]}") for path in records}
        kept = {path for path in records if of[path] in sizes and of[path] not in gone}
        for path in sorted(kept):
            kept |= {storage.join(folder, file) for file in storage.read_json(path)}
        found |= {path: size for path, size in own.items() if records and path not in kept}
    return found


# ---------------------------------------------------------------- roll back


def roll_back(out: str, version: str | None = None) -> tuple[str, str]:
    """Moves `latest` to an earlier release: the one before it, or `version`. (from, to).

    :raises InputError: there is none before it. :raises ConfigError: there is no such release; names those that are.
    """
    out = storage.output_folder(out)
    if not list_versions(out) or latest_version(out) is None:  # asked before the lock, which makes the folder
        raise InputError(f"{out} has no release to roll back to")
    with one_publisher(out):
        versions, now = list_versions(out), str(latest_version(out))
        if version is None:
            manifest = release_at(out, now).manifest() if now in versions else {}
            before = (manifest.get("previous") or {}).get("version")
            earlier = [one for one in versions if (version_number(one), one) < (version_number(now), now)]
            version = before if before in versions else (earlier[-1] if earlier else None)
            if version is None:
                raise InputError(f"{out}: {now} is the first release that is there; nothing is before it")
        matching = [one for one in versions if one == version or one.split("-")[0] == version.zfill(4)]
        if len(matching) != 1:
            there = ", ".join(versions)
            raise ConfigError(f"no release {version} in {out}{nearest(version, versions)} (there are: {there})")
        point_latest(out, matching[0])
        return now, matching[0]


# ---------------------------------------------------------------- forecast


def forecast(plan: Plan, config: Config) -> int:
    """Bytes that a run from nothing writes into its output folder, at most as far as can be told from the plan."""
    parts = [part for shard in plan.shards for part in shard.parts]
    size = sum(part.bytes for part in parts)
    documents = sum(part.rows if part.rows is not None else part.bytes // ASSUMED_DOCUMENT + 1 for part in parts)
    converted = sum(part.bytes for part in parts if part.format != "parquet")
    words = config.encoder.vocabulary if config.encoder.model == "static" else 0
    dimensions = config.encoder.dimensions if config.reads_vectors else 0
    fitted = FITTED + words * (4 * dimensions + COUNTED)  # however small the corpus is
    return documents * (2 * dimensions + PER_DOCUMENT) + converted + size + fitted


def check_room(plan: Plan, config: Config, out: str) -> None:
    """Whether the disk can hold what the run will write, less what its work/ holds already.

    :raises StorageError: it cannot, and run.room is "refuse"; says how much is lacking and what to do.
    """
    if config.run.room == "off" or storage.is_remote(out):
        return
    lacking = forecast(plan, config) - sum(_sizes(storage.join(out, "work")).values())
    free = shutil.disk_usage(_existing(out)).free
    if lacking > free:
        raise StorageError(
            f"{out}: this run will write about {size(lacking)}, and {size(free)} are free there; "
            "free some space (`datamask clean OUT` says what can go), choose another --output, or try all the same: "
            "--set run.room=off"
        )


# ---------------------------------------------------------------- files


def _sizes(folder: str) -> dict[str, int]:
    """Bytes of every file below a folder, by URL."""
    return {storage.join(folder, path): size for path, size in storage.file_sizes(folder).items()}


def _by_stage(work: str, sizes: Mapping[str, int]) -> tuple[Folder, ...]:
    own: dict[str, list[int]] = {}
    for path, bytes_ in sizes.items():
        own.setdefault(path[len(work) + 1 :].partition("/")[0], []).append(bytes_)
    return tuple(Folder(name, len(found), sum(found)) for name, found in sorted(own.items()))


def _existing(out: str) -> Path:
    path = Path(storage.filesystem(out)[1])
    while not path.exists():
        path = path.parent
    return path


# ---------------------------------------------------------------- what must be forgotten


def forgotten_rows(release: ReleaseFolder, requests: Requests) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    """(data file, its rows that are to be forgotten, why the first is), of a release's files that hold any."""
    manifest = release.manifest()
    there = [column["name"] for column in manifest["columns"] if column["name"] in ("url", "id", "text")]
    for path in sorted(data_paths(manifest)):
        found = np.zeros(0, np.int64)
        for batch in release.batches(path, there):
            table = pa.Table.from_batches([batch])
            hashes = pa.array(text_hashes(batch["text"].cast(pa.string())), pa.binary(16))
            entry = requests.match(table.drop_columns(["text"]).append_column("text_hash", hashes))
            found = np.append(found, entry[entry >= 0])
        if len(found):
            yield path, len(found), requests.told(found[:1])[found[0]]


def holds_forgotten(out: str, release: ReleaseFolder) -> bool:
    """Whether a data file of a release holds what the output folder's record says must be forgotten."""
    requests = load_requests(storage.join(out, "work"))
    return requests is not None and any(forgotten_rows(release, requests))


def must_forget(out: str, latest: ReleaseFolder) -> bool:
    """Whether a release must be made without what was recorded since the last one, or, where `latest` was rolled back,
    without what that one holds."""
    rolled_back = read_done(out).get("version", latest.version) != latest.version
    return is_pending(out) or (rolled_back and holds_forgotten(out, latest))


def inputs_with_keys(manifest: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], set[str]]]:
    """Each shard of a release's `inputs`, and the keys of its files in work/."""
    corpus = manifest["settings"]["corpus"]
    reading = Config(corpus=Corpus(columns=corpus["columns"], drop=corpus["drop"]))
    for item in manifest["inputs"]:  # a file that is not parquet has been converted
        yield item, {STAGES["convert"].key(reading, item["fingerprint"]), *item["keys"].values()}


def work_files(manifest: Mapping[str, Any], work: str, paths: Iterable[str]) -> list[str]:
    """Those of these files of work/ that hold or measure documents, but for shards of which the latest release says
    that nothing in them must be forgotten; none once `mark_clean` was called.

    :param manifest: of the latest release.
    """
    out = work.rsplit("/", 1)[0]
    done = read_done(out)
    if done.get("digest") != digest_of(out) or done.get("cleaned"):
        return []
    clean: set[str] = set()
    for item, keys in inputs_with_keys(manifest) if done["version"] == manifest["version"] else ():
        key = item["keys"].get("copies")  # none: the record named nothing when the release was made, nor since
        made = key and storage.find_output(storage.join(work, "copies", f"{item['shard']}-{key}.parquet"), key)
        if not key or (made and not made.facts["filtered"].get(REASON)):
            clean |= keys
    inside = [(path, *path[len(work) + 1 :].partition("/")[::2]) for path in paths]
    found = [path for path, folder, name in inside if folder in OF_DOCUMENTS and clean.isdisjoint(KEY.findall(name))]
    return found + [path for path, folder, _ in inside if folder in SHARED and found]


def mark_clean(out: str) -> None:
    """Notes that older releases and work/ were cleaned of what is to be forgotten."""
    done = read_done(out)
    if done.get("digest") == digest_of(out) and done:
        storage.write_json(storage.join(out, FOLDER, DONE), {**done, "cleaned": True})
