"""manifest.json: all that a release is, checked against manifest.schema.json, with a digest of itself at its end.

The digest is of the manifest's own bytes without it, so an edited manifest shows. The version's name carries the key,
which is computed from inputs, settings and provenance, and every parquet file of the release carries it too: an edit of
these shows even under a new digest, unless every file is written anew, which makes another release with other sums.

Names in a manifest become paths. They are checked here, once, by `read_manifest`; whoever has a manifest from there may
join them to a folder.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import metadata, resources
from typing import Any, NamedTuple

from datamask import storage
from datamask.errors import InputError, one_line, printable
from datamask.release.data_files import ADDED, WrittenFile
from datamask.version import __version__

FORMATS = ("datamask release 1", "datamask release 2")  # read; the last is written
LIBRARIES = (
    "pyarrow", "duckdb", "numpy", "torch", "sentence-transformers", "transformers", "tokenizers", "scikit-learn",
    "prefect",
)  # fmt: skip
# settings that change how the work is done, or where it lies, not what comes out; all others are in a release's key
INDIFFERENT = {
    "corpus": ("input",),
    "encoder": ("device", "batch_tokens"),
    "select": ("device",),
    "filter": ("memory_limit",),
    "release": ("keep", "statements", "small_enterprise"),
}
MAX_BYTES = 1 << 30  # of a manifest; one of 10,000 shards has 10 MB
SHOWN = 20  # violations of the schema that are told


def build_manifest(
    draft: Mapping[str, Any],
    version: str,
    files: Sequence[WrittenFile],
    previous: Mapping[str, Any] | None,
    created: str,
) -> dict[str, Any]:
    return {
        "format": FORMATS[-1],
        "version": version,
        "created": created,
        "previous": previous,
        "versions": library_versions(),
        **draft,
        "files": [file.to_json() for file in sorted(files, key=lambda file: file.path)],
    }


def library_versions() -> dict[str, str]:
    versions = {"datamask": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def render_manifest(manifest: Mapping[str, Any]) -> bytes:
    """The file's bytes, with `digest`."""
    body = {name: value for name, value in manifest.items() if name != "digest"}
    digest = hashlib.sha256(_dump(body)).hexdigest()
    return _dump({**body, "digest": digest})


def release_key(
    inputs: Sequence[Any], settings: Mapping[str, Any], provenance: Mapping[str, Any], format_: str = FORMATS[-1]
) -> str:
    """The key of what determines a release's files; recomputed from the manifest by `verify`.

    In format 1 the settings' share of it were columns, drop and the section release.
    """
    if format_ == FORMATS[0]:
        release = {name: value for name, value in settings["release"].items() if name != "keep"}
        corpus = settings["corpus"]
        return storage.key("release", 1, inputs, corpus["columns"], corpus["drop"], release, provenance)
    sealed = {
        section: {name: value for name, value in values.items() if name not in INDIFFERENT.get(section, ())}
        for section, values in settings.items()
        if section != "run"
    }
    return storage.key("release", 2, inputs, sealed, provenance)


def key_of(manifest: Mapping[str, Any]) -> str:
    """The key of what a manifest says; another than its own `key` where it was edited."""
    return release_key(manifest["inputs"], manifest["settings"], manifest["provenance"], manifest["format"])


# ---------------------------------------------------------------- the door


def read_manifest(folder: str) -> dict[str, Any]:
    """The manifest of the release in `folder`: of the right form, and no name in it leads out of a folder.

    The value is shared between callers and must not be changed.

    :raises InputError: it is no manifest, or of a form that no release has; says where.
    """
    url = storage.join(folder, "manifest.json")
    with storage.storage_errors(url), storage.open_input(url) as file:
        data = bytes(file.read(MAX_BYTES + 1))
    try:
        return _checked(data)
    except InputError as error:
        raise InputError(f"{url}: {error}") from error.__cause__


def data_paths(manifest: Mapping[str, Any]) -> list[str]:
    return [item["path"] for item in manifest["files"] if item["path"].startswith("data/")]


class SourceRun(NamedTuple):
    """Rows of a shard that come from one file, in order."""

    shard: str
    file: str
    rows: int
    chunk_id: int  # of the first
    row: int | None  # of the first in the file; None: a run of row groups before it has failed


def source_runs(manifest: Mapping[str, Any]) -> Iterator[SourceRun]:
    """Where the shards' rows come from. A file's row groups stand in order, for so do the names of their shards."""
    of_shard, of_file, groups = Counter[str](), Counter[str](), Counter[str]()
    for source in manifest["sources"]:
        shard, file, rows = source["shard"], source["path"], source["rows"]
        first, last = source["row_groups"] or (0, 0)
        yield SourceRun(shard, file, rows, of_shard[shard], of_file[file] if first == groups[file] else None)
        of_shard[shard] += rows
        of_file[file] += rows
        groups[file] = last


@lru_cache(maxsize=4)
def _checked(data: bytes) -> dict[str, Any]:
    manifest = parse_manifest(data, "this")
    if wrong := problems_of(manifest):
        more = f" ({len(wrong) - 1} more: datamask verify)" if len(wrong) > 1 else ""
        raise InputError(f"no release has such a manifest: {wrong[0]}{more}")
    return manifest


def parse_manifest(data: bytes, where: str) -> dict[str, Any]:
    """:raises InputError: not JSON, or not an object."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{where} is larger than {MAX_BYTES >> 20} MiB, which no manifest is")
    try:
        manifest = json.loads(data)
        json.dumps(manifest, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} is not JSON ({one_line(error)}); it was cut short or edited: copy the release again"
        ) from error
    if not isinstance(manifest, dict):
        raise InputError(f"{where} is not a manifest, but a {type(manifest).__name__}")
    return manifest


def problems_of(manifest: dict[str, Any]) -> list[str]:
    """What no manifest has: against the schema, or of parts that do not fit together. [] for every release's own."""
    wrong = sorted(_validator().iter_errors(manifest), key=lambda found: list(map(str, found.absolute_path)))
    if wrong:
        return [
            printable(f"{'.'.join(map(str, violation.absolute_path)) or 'it'}: {violation.message}"[:300])
            for violation in wrong[:SHOWN]
        ]
    shards = manifest["conservation"]["shards"]
    found = []
    for what, names in (
        ("inputs", [item["shard"] for item in manifest["inputs"]]),
        ("files", [item["path"] for item in manifest["files"]]),
        ("shards", list(shards)),
        ("columns", [column["name"] for column in manifest["columns"]]),
    ):
        folded = Counter(name if what == "columns" else name.casefold() for name in names)
        found += [f"{what}: {name!r} stands {times} times" for name, times in folded.items() if times > 1]
    if {item["shard"] for item in manifest["inputs"]} != shards.keys():
        found.append("inputs and conservation.shards are of other shards")
    found += [
        f"sources: {source['path']!r} is of a shard {source['shard']!r} that inputs have not"
        for source in manifest["sources"]
        if source["shard"] not in shards
    ]
    found += [
        f"sources: row groups {source['row_groups']} of {source['path']!r} run backwards"
        for source in manifest["sources"]
        if source["row_groups"] and source["row_groups"][0] >= source["row_groups"][1]
    ]
    found += [
        f"files: {item['path']} {'has no' if item['path'].endswith('.parquet') else 'has'} rows"
        for item in manifest["files"]
        if item["path"].endswith(".parquet") != ("rows" in item)
    ]
    decided = {f"decisions/{shard}.parquet" for shard in shards}
    listed = {item["path"] for item in manifest["files"]}
    found += [f"files: {path} is missing" for path in sorted((decided | {"quarantine.parquet"}) - listed)]
    found += [f"files: {path} is of no shard" for path in sorted(listed - decided) if path.startswith("decisions/")]
    ours = [(field.name, str(field.type)) for field in ADDED]
    if [(column["name"], column["type"]) for column in manifest["columns"]][-len(ours) :] != ours:
        found.append(f"columns: the last are not {', '.join(name for name, _ in ours)}")
    return [printable(text) for text in found]


@cache
def manifest_schema() -> dict[str, Any]:
    return json.loads(resources.files("datamask.release").joinpath("manifest.schema.json").read_text("utf-8"))


@cache
def _validator() -> Any:
    import jsonschema  # loaded while the first stages work

    plain = jsonschema.Draft202012Validator
    whole = plain.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)  # 1.0 is none
    return jsonschema.validators.extend(plain, type_checker=whole)(manifest_schema())


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
