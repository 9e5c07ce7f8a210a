"""Relative paths of settings, once these are read again in another folder than the run's.

paths_seen_from(noted_folder(out, ".."), settings)    # "target.jsonl", beside out: "/data/project/target.jsonl"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datamask import storage
from datamask.surroundings import shown

# settings that hold paths; own code is not among them, for what only a release names is not run
NAMING = ("corpus.input", "duplicates.against", "filter.decontaminate", "select.target")


def present_folder(out: str) -> str:
    """The folder that relative paths lead from, as an output folder notes it: from a local one, else absolute."""
    here = Path.cwd()
    if storage.is_remote(out):
        return shown(str(here))
    return shown(os.path.relpath(here, Path(storage.filesystem(out)[1]).resolve()))


def noted_folder(out: str, noted: str | None) -> Path:
    """The folder that `present_folder` noted in an output folder; None, as of an older version: the present one."""
    return Path.cwd() if noted is None else Path(storage.filesystem(out)[1], noted).resolve()


def paths_seen_from(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with each path of `NAMING` as `seen_from` has it."""
    found = dict(settings)
    for name in NAMING:
        section, _, setting = name.partition(".")
        if given := found.get(section, {}).get(setting):
            found[section] = {**found[section], setting: [seen_from(folder, each) for each in given]}
    return found


def seen_from(folder: Path, given: str) -> str:
    """The absolute path of a relative one that leads from another folder to something; any other as it is given."""
    path = os.path.normpath(f"{folder}/{given}")
    absolute = storage.is_remote(given) or given.startswith(("/", "~"))
    return given if absolute or folder == Path.cwd() or not storage.exists(storage.expand_patterns([path])[0]) else path
