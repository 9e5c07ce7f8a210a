"""What `from datamask import curate, refresh` gives: the flows as functions, with their results as objects.

    from datamask import curate

    release = curate("dumps/*.parquet", "out/mine", select={"lamb": 0.7}, filter={"min_tokens": 50})
    release.certificate["gap"]
    release.dataset()

In a notebook the stages' bars run below the cell, and a release shows its report.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

from datamask import config as settings
from datamask import storage
from datamask.api import Release
from datamask.errors import UNGUARDED, ConfigError
from datamask.release.release_folder import find_release
from flows.commands import begin_server
from flows.prefect_settings import load_prefect
from flows.session import run_named, session

Settings: TypeAlias = settings.Config | Mapping[str, Any] | str | Path


class Sections(TypedDict, total=False):
    """The sections of the settings: each as plain data, or as its class of `datamask.config`, which an editor shows."""

    corpus: settings.Corpus | Mapping[str, Any]
    encoder: settings.EncoderSettings | Mapping[str, Any]
    quality: settings.Quality | Mapping[str, Any]
    topics: settings.Topics | Mapping[str, Any]
    select: settings.Select | Mapping[str, Any]
    filter: settings.Filter | Mapping[str, Any]
    duplicates: settings.Duplicates | Mapping[str, Any]
    release: settings.ReleaseSettings | Mapping[str, Any]
    run: settings.RunSettings | Mapping[str, Any]


def curate(
    input: str | Path | Sequence[str | Path],
    output: str | Path = "out/curated",
    *,
    target: str | Path | Sequence[str | Path] = (),
    config: Settings | None = None,
    progress: bool = True,
    **sections: Unpack[Sections],
) -> Release:
    """Curates a corpus, end to end, in this process: what `datamask curate` does.

    :param input: files, folders or globs.
    :param output: folder or URL for work/ and releases/.
    :param target: files of texts like those the model shall be good at; the choice explains them.
    :param config: a Config, plain data, or a YAML file.
    :param progress: show the stages on stderr, or below the notebook's cell.
    :param sections: settings by section, e.g. select={"lamb": 0.7} or select=Select(lamb=0.7), a class of
        `datamask.config`; they go before config's.
    :raises DatamaskError: ConfigError, InputError, IncompleteError …: as the command, with the same messages.
    """
    out = storage.output_folder(output)
    return _run("curate", progress, config=_config(config, sections, input, target), output=out)


def refresh(
    output: str | Path,
    input: str | Path | Sequence[str | Path] = (),
    *,
    target: str | Path | Sequence[str | Path] = (),
    config: Settings | None = None,
    progress: bool = True,
    **sections: Unpack[Sections],
) -> Release:
    """Brings the last release up to date with its input: what `datamask refresh` does. Nothing new: the last release.

    :param input: files, folders or globs; none: those of the last release.
    :param target: as for `curate`; none: the last release's.
    :param config: as for `curate`, laid over the last release's settings key by key.
    :raises DatamaskError: ConfigError, InputError, IncompleteError …: as the command, with the same messages.
    """
    out, chosen = storage.output_folder(output), _config(config, sections, input, target)
    if not chosen.corpus.input:
        find_release(out)  # whose input is read again
    return _run("refresh", progress, config=chosen, output=out)


def forget(
    output: str | Path,
    *,
    urls: str | Path | Sequence[str | Path] = (),
    domains: str | Path | Sequence[str | Path] = (),
    ids: str | Path | Sequence[str | Path] = (),
    texts: str | Path | Sequence[str | Path] = (),
    allow_loss: bool = False,
    progress: bool = True,
) -> Release:
    """Makes a release without what these lists name, nor its copies, for good: what `datamask forget` does.

    :param urls, domains, ids, texts: lists (files: lines, CSV, JSON lines; packed too), or entries.
    :param allow_loss: publish though shards of the last release, or many of its rows, are gone from the input.
    :raises DatamaskError: ConfigError, InputError, IncompleteError …: as the command, with the same messages.
    """
    out = storage.output_folder(output)
    find_release(out)
    given = {"urls": urls, "domains": domains, "ids": ids, "texts": texts}
    lists = {name: storage.paths_of(values) for name, values in given.items()}
    return _run("forget", progress, output=out, allow_loss=allow_loss, **lists)


def _config(
    given: Settings | None,
    sections: Sections,
    input: str | Path | Sequence[str | Path],
    target: str | Path | Sequence[str | Path],
) -> settings.Config:
    if isinstance(given, str | Path):
        given = settings.load_config(given)
    base = settings.lay_settings(_plain(given or {}), {name: _plain(values) for name, values in sections.items()})
    for section, name, files in (("corpus", "input", input), ("select", "target", target)):
        paths = storage.paths_of(files)
        values = base.get(section) or {}
        if paths and isinstance(values, Mapping):  # what is no mapping is refused below
            base[section] = {**values, name: paths}
    return settings.validate(base)


def _plain(given: Any) -> Any:
    """What was set of settings, as plain data; what is no class of settings is refused later, if it must be."""
    return given.model_dump(mode="json", exclude_unset=True) if isinstance(given, settings.Section) else given


def _run(name: str, progress: bool, **parameters: Any) -> Release:
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself asks
        raise ConfigError(f"this process reads the script that started it, and would run it once more; {UNGUARDED}")
    server = begin_server()
    load_prefect()
    with session(server, progress):
        # what a run sets when its server is gone goes with its context
        found = copy_context().run(run_named, name, **parameters)
    return Release.of_run(found)
