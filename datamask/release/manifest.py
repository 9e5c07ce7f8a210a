"""manifest.json: all that a release is, checked against manifest.schema.json, with a digest of itself at its end.

The digest is of the manifest's own bytes without it, so an edited manifest shows; the version's name carries the key,
which is computed from inputs, settings and provenance, so an edit of these shows even under a new digest.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from typing import Any

from datamask import __version__
from datamask.errors import InputError
from datamask.release.data_files import WrittenFile

FORMAT = "datamask release 1"
LIBRARIES = (
    "pyarrow",
    "duckdb",
    "numpy",
    "torch",
    "sentence-transformers",
    "transformers",
    "tokenizers",
    "scikit-learn",
    "prefect",
)


def build_manifest(
    draft: Mapping[str, Any],
    version: str,
    files: Sequence[WrittenFile],
    previous: Mapping[str, Any] | None,
    created: str,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
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


def parse_manifest(data: bytes, where: str) -> dict[str, Any]:
    """:raises InputError: not JSON, or not an object."""
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} is not JSON ({error}); it was cut short or edited: copy the release again"
        ) from error
    if not isinstance(manifest, dict):
        raise InputError(f"{where} is not a manifest, but a {type(manifest).__name__}")
    return manifest


def manifest_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of manifest.json."""
    schema: dict[str, Any] = json.loads(
        resources.files("datamask.release").joinpath("manifest.schema.json").read_text("utf-8")
    )
    return schema


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
