"""What can be told of a configuration before anything is embedded or scored: minutes rather than hours after the start.

It stands above the rooms of the stages, since it asks each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from datamask import extensions
from datamask.config import COPY_COLUMNS, UNSEEING, Config
from datamask.corpus.columns import nearest_column
from datamask.corpus.convert import convert_shard
from datamask.corpus.identify import wanted as languages_wanted
from datamask.corpus.inputs import InputFile, reading_of
from datamask.corpus.plan import Part, Shard
from datamask.corpus.read import INDEX_COLUMNS, TOPIC, check_columns, corpus_schema, shard_schema
from datamask.corpus.shards import plan_shards
from datamask.corpus.streams import raw_stream
from datamask.errors import ConfigError, DatamaskError, InputError, MissingExtraError, several
from datamask.filter import contamination
from datamask.filter.filters import check_filters
from datamask.release.personal import PersonalRules
from datamask.selection.metrics import pool_columns
from datamask.storage import is_remote

PEEKED = 64  # files whose footers are read before a run is started
HEADS, HEAD = 8, 1 << 18  # files whose first rows are read, and bytes of each
HEADED = {"jsonl", "csv", "tsv"}


def check_packages(config: Config, formats: Iterable[str]) -> None:
    """Whether the optional packages are there that the settings and the input's formats need; none of them is loaded.

    :param formats: of the input's files, as `Part.format`
    :raises MissingExtraError: one is not installed.
    """
    for what, module, extra in _packages(config, formats):
        if find_spec(module) is None:
            raise MissingExtraError(what, extra)


def check_devices(config: Config) -> None:
    """Whether this machine has the devices that the settings name; workers of Dask and Ray have their own.

    :raises ConfigError: a name that is none, or a GPU that is not here.
    """
    for section, name in (("encoder", config.encoder.device), ("select", config.select.device)):
        if name in ("auto", "cpu") or config.run.engine != "threads":
            continue
        from datamask.devices import pick_device  # loads PyTorch, which no other check needs

        try:
            pick_device(name)
        except ConfigError as error:
            raise ConfigError(f"{section}.device: {error}") from error


def _packages(config: Config, formats: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """What needs a package, its module, and the extra that brings it."""
    if config.run.engine != "threads":
        yield f"run.engine {config.run.engine}", f"prefect_{config.run.engine}", config.run.engine
    if languages_wanted(config):
        yield "identifying languages (filter.languages, filter.identify)", "pycld2", "languages"
    if any(scorer.kind == "fasttext" for scorer in config.quality.scorers):
        yield "a fastText scorer", "fasttext", "fasttext"
    if config.encoder.backend == "openvino":
        yield "encoder.backend openvino", "openvino", "openvino"
    if config.release.personal != "off" and "phone" in config.release.personal_kinds:
        yield "release.personal with phone numbers", "phonenumbers", "personal"
    if any(name.partition(".")[0] in ("warc", "wet") for name in formats):
        yield "reading WARC and WET archives", "fastwarc", "web"
        yield "reading WARC and WET archives", "trafilatura", "web"


def check_heads(files: Sequence[InputFile], config: Config) -> str:
    """The same of local text files, JSON lines and tables, by their first rows.

    :returns: what no row there has, where later rows may have it; empty: nothing.
    :raises DatamaskError: see `check_footers`; only where the rows looked at are all that there are.
    """
    kinds = {file.format.partition(".")[0] for file in files}
    if not kinds <= HEADED or any(is_remote(file.path) for file in files) or _adds_columns(config):
        return ""
    whole = len(files) <= HEADS
    with TemporaryDirectory(prefix="datamask-") as folder:
        given, work = f"{folder}/given", f"{folder}/work"
        try:
            for file in files[:HEADS]:
                whole &= _copy_head(file, given)
            peeked = config.corpus.model_copy(update={"input": [given]})
            corpus = config.model_copy(update={"corpus": peeked})
            shards = [convert_shard(shard, corpus, work) for shard in plan_shards(peeked, work).shards]
        except (DatamaskError, OSError, ValueError) as error:
            if isinstance(error, InputError) and "column" in str(error):
                return _told(error, folder, files, whole)
            return ""  # a file that cannot be read is the run's to tell
        try:
            _check_named(shards, corpus)
        except (ConfigError, InputError) as error:
            return _told(error, folder, files, whole)
    return ""


def _told(error: DatamaskError, folder: str, files: Sequence[InputFile], whole: bool) -> str:
    """:raises DatamaskError: the error about the copies in `folder`, of the files themselves, where that is certain."""
    said = str(error)
    for file in files[:HEADS]:
        said = said.replace(_head_of(file, f"{folder}/given"), file.path)
    if whole:
        raise type(error)(said) from None
    return f"{said}. So the first rows of {several(min(len(files), HEADS), 'file')} say; later rows may have it"


def _head_of(file: InputFile, folder: str) -> str:
    name = file.relative
    for compression in reversed(file.format.split(".")[1:]):
        name = name.removesuffix(f".{compression}")
    return f"{folder}/{name}"


def _copy_head(file: InputFile, folder: str) -> bool:
    """Copies the first rows of a file, not compressed. Returns whether they are all."""
    with raw_stream(file.path, file.format) as stream:
        head = stream.read(HEAD)
        whole = not stream.read(1)
    place = Path(_head_of(file, folder))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(head if whole else head[: head.rfind(b"\n") + 1])
    return whole


def _adds_columns(config: Config) -> bool:
    return languages_wanted(config) or contamination.wanted(config)


def check_footers(files: Sequence[InputFile], config: Config) -> None:
    """What can be told of a few local parquet files by their footers, before anything is started.

    Others are looked at when they are converted, by `check_settings`.

    :raises InputError: see `corpus.read.check_columns`.
    :raises ConfigError: filter.where, a filter, a quota or a metric reads a column that no file has.
    """
    local = all(file.format == "parquet" and not is_remote(file.path) for file in files)
    if not local or len(files) > PEEKED or _adds_columns(config):
        return
    shards = [
        Shard(file.relative, (Part(file.path, "parquet", "", file.size, reading=reading_of(file)),), "")
        for file in files
    ]
    failures = []
    for shard in shards:
        try:
            shard_schema(shard, config)
        except InputError as error:
            failures.append(error)
    # a file that cannot be read is the run's to tell; a column that the settings name and no file has, not
    if config.corpus.columns and len(failures) == len(shards):
        raise failures[0]
    if not failures:
        _check_named(shards, config)


# What `benchmarks/judge.py` read of pairwise choices by vectors of either encoder (docs/judge.md).
STATIC_PAIRWISE = (
    "algorithm Pair_simi with the static encoder: after such a choice (λ 0.5, tokens) a coder needs −0.003 and −0.013 "
    "bits a byte beside a random choice's on two halves of a corpus (± 0.010), which is not told apart; with "
    "all-mpnet-base-v2 +0.006 and −0.081. Name such a model in encoder.model, or leave select.algorithm out "
    "(docs/judge.md)"
)


def check_settings(shards: Sequence[Shard], config: Config) -> None:
    """Whether settings fit the (converted) shards, and whether what they name can be imported.

    :raises ConfigError: see `filter_corpus`; a column that a quota or a metric reads is in no file; a scorer or a
        metric of the user's own cannot be imported.
    :raises InputError: see `corpus.read.check_columns`.
    :raises MissingExtraError: a package that the settings need is not installed.
    """
    PersonalRules.of(config.release)
    for scorer in config.quality.scorers:
        if own := extensions.find_extension("scorer", scorer.kind):
            own.load()
    _check_named(shards, config)


def encoder_caution(config: Config) -> str | None:
    """What was measured of the paper's diversity on the static encoder's vectors, where a run asks for that."""
    asked = config.selection
    if config.encoder.model != "static" or "pairwise" not in asked.metrics or asked.solver in UNSEEING:
        return None
    return STATIC_PAIRWISE


def _check_named(shards: Sequence[Shard], config: Config) -> None:
    """Whether the columns that settings name are there: of corpus.columns, filters, quotas and metrics."""
    check_columns(shards, config)
    check_filters(shards, config)
    names = corpus_schema(shards, config).names
    quotas = [quota.column for quota in config.selection.quotas]
    made = (TOPIC, *COPY_COLUMNS) if config.makes_topics else COPY_COLUMNS
    for column in pool_columns(config.selection):
        if column not in (*names, *INDEX_COLUMNS, *made):
            who = "select.quotas" if column in quotas else "select.algorithm, whose metric reads it"
            how = "; nothing else reads vectors here, so have topics made: --set topics.make=always" * (column == TOPIC)
            raise ConfigError(
                f"{who}: no file of the corpus has a column {column!r}"
                f"{nearest_column(column, names)} (columns: {', '.join(names)}){how}"
            )
