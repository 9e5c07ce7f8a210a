"""What the stages hand to one another: a shard and the files published about it so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from datamask import storage
from datamask.config import Config, load_config, validate
from datamask.corpus.plan import Plan, Shard, from_json, to_json
from datamask.errors import ConfigError, InputError, one_line
from datamask.seen_from import noted_folder, paths_seen_from, present_folder
from datamask.storage import Output

ROUNDS = "rounds"  # folder of work/: what rounds hand to one another, gone when their stage has ended
SCRATCH = "tmp"  # folder of work/: scratch files of a running stage
KEPT = "parts"  # folder of work/: what the next run can use of this one's maps

Progress = Callable[[int], None]  # called with the number of rows done since the last call


def silent(rows: int) -> None:
    """The Progress that shows nothing."""


@dataclass(frozen=True)
class ShardFiles:
    """A shard with each stage's output; None where the stage has not run yet."""

    shard: Shard
    index: Output | None = None
    embeddings: Output | None = None
    scores: Output | None = None
    signatures: Output | None = None
    filters: Output | None = None
    duplicates: Output | None = None
    masks: Output | None = None
    topics: Output | None = None
    atoms: Output | None = None
    leaks: Output | None = None
    copies: Output | None = None

    def joined(self, others: Iterable[ShardFiles]) -> ShardFiles:
        """The shard with what it has, and else what the others have: outputs of stages that ran beside each other."""
        found: dict[str, Any] = {}
        for files in (*others, self):
            found |= files.outputs()
        return replace(self, **found)

    def outputs(self) -> dict[str, Output]:
        """The outputs that there are, by stage."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "shard"}
        return {name: output for name, output in found.items() if output is not None}


def required(output: Output | None) -> Output:
    """What an earlier stage wrote.

    :raises ValueError: it has not run.
    """
    if output is None:
        raise ValueError("an earlier stage has not run for this shard")
    return output


# ---------------------------------------------------------------- files that are named by their own rows


def cached_outputs(all_files: Sequence[ShardFiles], folder: str, key: str) -> list[Output] | None:
    """What `keep_outputs` noted of this corpus, in the order of `all_files`; None: not all of it is there."""
    try:
        held = storage.read_json(storage.join(folder, f"corpus-{key}.json"))
        keys = [(files.shard.name, held["keys"][files.shard.name]) for files in all_files]
    except (FileNotFoundError, KeyError, ValueError):
        return None
    found = [storage.find_output(storage.join(folder, f"{name}-{own}.parquet"), own) for name, own in keys]
    return [with_facts(output, held["facts"]) for output in found if output] if all(found) else None


def keep_outputs(
    all_files: Sequence[ShardFiles],
    outputs: Sequence[Output],
    folder: str,
    key: str,
    facts: Mapping[str, Any] | None = None,
) -> list[Output]:
    """Notes which files a stage made for the corpus of this key, and returns them in the order of `all_files`.

    :param outputs: in the order of the shards' names. :param facts: of the whole corpus.
    """
    names = sorted(files.shard.name for files in all_files)
    found = dict(zip(names, outputs, strict=True))
    keys = {name: output.key for name, output in found.items()}
    storage.write_json(storage.join(folder, f"corpus-{key}.json"), {"keys": keys, "facts": facts or {}})
    return [with_facts(found[files.shard.name], facts or {}) for files in all_files]


def with_facts(output: Output, facts: Mapping[str, Any]) -> Output:
    """With the facts of the whole corpus beside the shard's own, which alone are in its file."""
    return replace(output, facts={**output.facts, **facts})


# ---------------------------------------------------------------- the last run's files, for what looks at them later

RECORD = "shards.json"


def record(work: str, all_files: Sequence[ShardFiles], config: Config) -> None:
    """Publishes `work/shards.json`: the run's settings and where each shard's files are."""
    outputs = [
        {
            name: {"path": output.path, "key": output.key, "rows": output.rows}
            for name, output in files.outputs().items()
        }
        for files in all_files
    ]
    plan = to_json(Plan(tuple(files.shard for files in all_files)))
    made = {"config": config.model_dump(mode="json"), "plan": plan, "outputs": outputs}
    storage.write_json(storage.join(work, RECORD), {**made, "folder": present_folder(work)})


def recorded(place: str) -> tuple[list[ShardFiles], Config, str]:
    """The files and settings of the last run, and its work folder.

    :param place: an output folder, its work/, its latest, or one of its releases.
    :raises InputError: there is no record, it cannot be read, or a file it names is gone.
    """
    place = place.rstrip("/")
    parents = [place, place.rsplit("/", 1)[0], place.rsplit("/", 2)[0]]
    for work in [place, *(storage.join(parent, "work") for parent in parents)]:
        if storage.exists(storage.join(work, RECORD)):
            break
    else:
        raise InputError(
            f"{place} belongs to no curated corpus: no work/{RECORD} there; "
            "give the --output folder of a `datamask curate`, whose work/ is still there"
        )
    try:
        stored = storage.read_json(storage.join(work, RECORD))
        shards = from_json(stored["plan"]).shards
        outputs = [_here(found, work) for found in stored["outputs"]]
        all_files = [ShardFiles(shard, **found) for shard, found in zip(shards, outputs, strict=True)]
        settings = paths_seen_from(noted_folder(work, stored.get("folder")), stored["config"])
        config = validate(settings, storage.join(work, RECORD))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{work}/{RECORD} cannot be read ({one_line(error)}); run `datamask curate` again to renew it"
        ) from error
    for files in all_files:
        made = (files.index, files.embeddings, files.scores, files.masks)
        for output in made if config.reads_vectors else (files.index, files.scores, files.masks):
            if output is None or not storage.exists(output.path):
                where = output.path if output else f"shard {files.shard.name}"
                raise InputError(f"{where}: gone since the last run; `datamask curate` again makes what is missing")
    return all_files, config, work


def _here(stored: dict[str, dict[str, Any]], work: str) -> dict[str, Output]:
    """A shard's files in the work folder as it is called now: the run may have had another working directory."""
    before = stored["index"]["path"].rpartition("index/")[0]
    outputs = {name: Output(**value) for name, value in stored.items()}
    if not before:
        return outputs
    return {
        name: replace(output, path=storage.join(work, output.path.removeprefix(before)))
        for name, output in outputs.items()
    }


def check_place(place: str, overrides: Sequence[str], files: Sequence[str] = ()) -> str:
    """What a command can be refused for before the libraries are loaded that it needs. Returns the work folder.

    :param files: paths or patterns of texts that it will read
    :raises InputError: see `recorded`; or a local file is not there.
    :raises ConfigError: an override is wrong, or of what was done before the choice.
    """
    _, config, work = recorded(place)
    if overrides:
        load_config(None, overrides, config.model_dump(mode="json"))
    if others := [given for given in overrides if given.partition("=")[0].strip().split(".")[0] != "select"]:
        raise ConfigError(
            f"--set {others[0]}: this command reads what {place} holds, so only settings of `select` change anything; "
            "for another, run `datamask curate` with it into another --output, and name that"
        )
    for pattern in files:
        if not storage.is_remote(pattern) and not storage.exists(storage.expand_patterns([pattern])[0]):
            raise InputError(f"{pattern} matches no file; check the path")
    return work
