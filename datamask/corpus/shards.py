"""From files to shards: large parquet split by row groups, small files grouped by folder, names that stay.

plan = plan_shards(config.corpus, "out/work")
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from datamask.config import Corpus
from datamask.corpus.inputs import InputFile, find_inputs, reading_of, stem
from datamask.corpus.inspect import FileFacts, inspect_files
from datamask.corpus.plan import FailedFile, Part, Plan, Reading, Shard
from datamask.errors import InputError
from datamask.storage import key, remove_leftovers

MAX_NAME = 100  # characters of a shard's name; keys and endings are added to it, and file systems allow 255


def plan_shards(settings: Corpus, work: str, previous: Plan | None = None) -> Plan:
    """The shards of the corpus, by name.

    A file of `group_bytes` or more is a shard of its own, or several of about `shard_rows` rows, whole row groups each.
    Smaller files of a folder are read together until they reach `group_bytes`. Files that `previous` knows keep their
    place in its shards, so that new files never change old shards.

    :param work: folder or URL for the record of what was already hashed.
    :raises InputError: nothing matches, nothing can be read, or corpus.columns names a column no file has.
    """
    remove_leftovers(work)
    files, skipped, broken = find_inputs(settings.input, posixpath.dirname(work.rstrip("/")))
    facts = dict(zip((file.path for file in files), inspect_files(files, settings, work), strict=True))
    failures, skipped, good = [*broken], [*skipped], []
    for file in files:
        if error := facts[file.path].error:
            failures.append(FailedFile(file.path, error.removeprefix(f"{file.path}: ")))
        elif facts[file.path].empty:
            skipped.append(FailedFile(file.path, "no rows"))
        else:
            good.append(file)
    if not good:
        raise InputError(_nothing_to_read(failures, skipped))
    shards = _shards(good, facts, settings, previous)
    return Plan(
        tuple(sorted(shards, key=lambda shard: shard.name)),
        tuple(sorted(failures, key=lambda failed: failed.path)),
        tuple(sorted(skipped, key=lambda failed: failed.path)),
    )


def _nothing_to_read(failures: Sequence[FailedFile], skipped: Sequence[FailedFile]) -> str:
    if failures:
        more = f"\n… and {len(failures) - 5} more" if len(failures) > 5 else ""
        return "\n".join(f"{failed.path}: {failed.error}" for failed in failures[:5]) + more
    shown = "; ".join(f"{failed.path}: {failed.error}" for failed in skipped[:3])
    return f"none of the {len(skipped)} input files has documents ({shown}{'; …' if len(skipped) > 3 else ''})"


def _shards(
    files: Sequence[InputFile], facts: Mapping[str, FileFacts], settings: Corpus, previous: Plan | None
) -> list[Shard]:
    parts = {file.path: _part(file, facts[file.path]) for file in files}
    names = _kept_names(previous)
    names.update(unique_names([file for file in files if file.path not in names], set(names.values())))
    grouped = _kept_groups(previous, parts, settings)
    shards = [_shard(name, [parts[path] for path in paths]) for name, paths in grouped.items()]
    in_group = {path for paths in grouped.values() for path in paths}
    small: dict[str, list[InputFile]] = defaultdict(list)
    for file in files:
        if file.path in in_group:
            continue
        part = parts[file.path]
        if _is_large(part, settings):
            shards.extend(_split(names[file.path], part, facts[file.path].row_groups, settings.shard_rows))
        else:
            kind = "parquet" if file.format == "parquet" else "txt" if file.format.startswith("txt") else "lines"
            small[f"{posixpath.dirname(file.path)}\n{kind}"].append(file)
    for members in small.values():
        for group in _fill(members, settings.group_bytes):
            name, *others = (names[file.path] for file in group)
            if others:
                name = f"{name[: MAX_NAME - 30]}-and-{len(others)}-more-{_digest(name, *others)}"
            shards.append(_shard(name, [parts[file.path] for file in group]))
    if len({shard.name for shard in shards}) < len(shards):  # a file called like another's run of row groups
        twice = next(shard.name for shard in shards if sum(other.name == shard.name for other in shards) > 1)
        raise InputError(f"two shards would be called {twice!r}; rename one of the files so called")
    return shards


def _part(file: InputFile, facts: FileFacts) -> Part:
    rows = None if facts.row_groups is None else sum(facts.row_groups)
    return Part(file.path, file.format, facts.fingerprint, file.size, None, rows, reading_of(file, facts.reading))


def _shard(name: str, parts: Sequence[Part]) -> Shard:
    # the ending of the format is in: the same bytes as .csv and .jsonl are other rows
    content = [
        [
            part.fingerprint,
            part.format,
            list(part.row_groups or ()),
            *([_plain(part.reading)] if part.reading else []),
            *(["strict"] if part.format.startswith(("csv", "tsv")) else []),  # 0.1.0 read other rows of the same bytes
        ]
        for part in parts
    ]
    return Shard(name, tuple(parts), key("shard", content))


def _plain(reading: Reading) -> dict[str, Any]:
    plain = asdict(reading)
    return plain if reading.folders else {name: value for name, value in plain.items() if name != "folders"}


def _split(name: str, part: Part, groups: Sequence[int] | None, shard_rows: int) -> list[Shard]:
    """Runs of row groups of at most `shard_rows` rows each, or one row group where that is larger."""
    runs: list[list[int]] = []
    held = 0
    for number, rows in enumerate(groups or ()):
        if not runs or held + rows > shard_rows:
            runs.append([])
            held = 0
        runs[-1].append(number)
        held += rows
    if groups is None or len(runs) < 2:
        return [_shard(name, [part])]
    shards = []
    for run in runs:
        piece = replace(part, row_groups=(run[0], run[-1] + 1), rows=sum(groups[number] for number in run))
        shards.append(_shard(f"{name}-rg{run[0]:05d}", [piece]))
    return shards


def _fill(files: Sequence[InputFile], group_bytes: int) -> list[list[InputFile]]:
    groups: list[list[InputFile]] = []
    held = group_bytes
    for file in sorted(files, key=lambda file: file.relative):
        if held >= group_bytes:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += file.size
    return groups


# ---------------------------------------------------------------- what a previous plan fixed


def _kept_names(previous: Plan | None) -> dict[str, str]:
    """path: name, of the files that were a shard, or several, of their own."""
    names = {}
    for shard in previous.shards if previous else ():
        if len(shard.parts) == 1:
            part = shard.parts[0]
            names[part.path] = shard.name if part.row_groups is None else re.sub(r"-rg\d{5,}$", "", shard.name)
    return names


def _kept_groups(previous: Plan | None, parts: Mapping[str, Part], settings: Corpus) -> dict[str, list[str]]:
    """name: paths, of the groups that were formed (a group of one too), less the files that are gone."""
    kept = {}
    for shard in previous.shards if previous else ():
        paths = [part.path for part in shard.parts if part.path in parts]
        alone = len(shard.parts) == 1 and (not paths or _is_large(parts[paths[0]], settings))
        if paths and not alone:
            kept[shard.name] = paths
    return kept


def _is_large(part: Part, settings: Corpus) -> bool:
    return part.bytes >= settings.group_bytes or (part.rows or 0) > settings.shard_rows


# ---------------------------------------------------------------- names


def unique_names(files: Sequence[InputFile], taken: set[str]) -> dict[str, str]:
    """path: name. The relative path without its ending; where two would be the same, both get more of theirs.

    Independent of the order of `files` and of where the tree lies. Compared without case: not every file system has it.
    """
    names: dict[str, str] = {}
    pending = list(files)
    used = {name.casefold() for name in taken}
    for level in range(64):
        by_name: dict[str, list[InputFile]] = defaultdict(list)
        for file in pending:
            by_name[_candidate(file, level).casefold()].append(file)
        pending = []
        for name, same in by_name.items():
            if len(same) == 1 and name not in used:
                names[same[0].path] = _candidate(same[0], level)
            else:
                pending.extend(same)
        used.update(name.casefold() for name in names.values())
        if not pending:
            break
    return names


def _candidate(file: InputFile, level: int) -> str:
    if level == 0:
        return safe_name(stem(file.relative))
    if level == 1:
        return safe_name(file.relative)
    folders = file.path[: -len(file.relative)].rstrip("/").split("/")
    longer = "/".join([*folders[max(0, len(folders) - level + 2) :], file.relative]) if level > 2 else file.relative
    return f"{safe_name(longer)}-{_digest(longer)}"


def safe_name(name: str) -> str:
    """`name` as a file name of letters, digits, dot, dash and underscore, at most MAX_NAME characters."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("/", ".")).lstrip("._-") or "shard"
    return plain if len(plain) <= MAX_NAME else f"{plain[: MAX_NAME - 9]}-{_digest(name)}"


def _digest(*names: str) -> str:
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()[:8]
