"""The stages as values: what each is called, runs, reads and depends on, and how its files' keys are made.

The driver (`datamask.run`), the cost model, the progress, `clean`, the keys and the documentation's tables read this
one declaration. A file that is there under its key is done, so what is in the key decides what a changed setting makes
again: the settings that the stage declares, by their values, and what it is given besides, which are the keys of the
files that it reads and of what stands for other settings (an encoder's fingerprint, the content of a file that a
setting names).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any, Literal

from datamask import storage
from datamask.config import Config

# settings that change how the work is done, or where it lies, not what comes out: in no key
INDIFFERENT = {
    "corpus.input",
    "encoder.device",
    "encoder.batch_tokens",
    "select.device",
    "filter.memory_limit",
}


@dataclass(frozen=True)
class Stage:
    """What a stage is."""

    name: str
    by: Literal["shard", "rounds", "one"]  # shards each on its own; rounds of maps (`datamask.maps`); one worker
    folder: str | None  # of work/, where its files carry their key; None: it has none there
    reads: tuple[str, ...]  # stages, as far as they run
    version: int = 1  # raised when the same key would stand for other bytes
    settings: tuple[str, ...] = ()  # sections, or single settings: in its key by their values
    without: tuple[str, ...] = ()  # settings of these sections that are not, beside the indifferent ones
    rounds: int = 1  # of `datamask.maps`, about: some stages repeat rounds, or need fewer
    run: str = ""  # "module:function"; the function's parameters say what it is given
    makes: str = ""  # the field of ShardFiles that its output becomes; "": another Shard, or a value for other stages
    place: str = ""  # "module:function" of (the file that a shard's output becomes, its key), where no Output says
    together: bool = False  # no shard goes on before all are through, and have been looked at
    sums: bool = False  # it adds floats in threads of libraries, so their number must be the same everywhere
    says: str = "run"  # what its one task does; {model}: the encoder's name
    reading: int = 0  # of a shard's text, in which the stages of the same number are made together; 0: none, or its own

    def call(self, **given: Any) -> Any:
        """What the stage's function returns; it is given those of these values that its parameters name."""
        function = _found(self.run)
        return function(**{name: given[name] for name in signature(function).parameters if name in given})

    def path(self, **given: Any) -> str:
        """The file that a shard's output becomes."""
        function = _found(self.place)
        return str(function(**{name: given[name] for name in signature(function).parameters})[0])

    def key(self, config: Config | None, *given: Any) -> str:
        """The key of a file of this stage.

        :param config: None: of a file that `given` determines whatever the settings are.
        :param given: what else determines the file's bytes, as JSON can hold it.
        """
        return storage.key(self.name, self.version, self.chosen(config) if config else {}, *given)

    def chosen(self, config: Config) -> dict[str, Any]:
        """The settings in the key, by name."""
        found: dict[str, Any] = {}
        for name in self.settings:
            section, _, single = name.partition(".")
            chosen = config.selection if section == "select" else getattr(config, section)
            values = chosen.model_dump(mode="json", include={single} if single else None)
            found |= {f"{section}.{setting}": value for setting, value in values.items()}
        return {name: value for name, value in found.items() if name not in INDIFFERENT and name not in self.without}


def _found(name: str) -> Any:
    """A function by "module:function": what is heavy is loaded where the work is."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


_READING = ("corpus.columns", "corpus.drop")
_FITTING = (
    "corpus.columns",
    *(f"encoder.{name}" for name in ("fit_documents", "vocabulary", "dimensions", "max_length")),
)
_SCORED = ("index", "embed", "score")
_DECIDED = ("index", "embed", "topics", "score", "atoms", "filter", "duplicates", "copies")
_ELSEWHERE = ("select.semantic_duplicates",)  # of `duplicates`, which is given it where it searches by embeddings
STAGES = {
    stage.name: stage
    for stage in (
        Stage("plan", "one", None, (), version=5, run="datamask.corpus.shards:plan_shards", says="list the shards"),
        Stage(
            "convert", "shard", "corpus", ("plan",), version=3, settings=_READING, together=True,
            run="datamask.corpus.convert:convert_shard", place="datamask.corpus.convert:converted_to",
        ),
        Stage(
            "languages", "shard", "languages", ("convert",), settings=_READING, together=True,
            run="datamask.corpus.identify:identify_shard", place="datamask.corpus.identify:identified_to",
        ),
        Stage(  # under the encoder's key
            "tokenizer", "one", "tokenizer", ("convert",), version=2, settings=_FITTING,
            run="datamask.encoders.choose:prepare_tokenizer", sums=True, says="fit",
        ),
        Stage(
            "encoder", "one", "encoder", ("convert", "tokenizer"), version=7, settings=_FITTING,
            run="datamask.encoders.choose:prepare_encoder", sums=True, says="prepare {model}",
        ),
        Stage(
            "quality", "one", "quality", ("convert", "encoder"), version=18, settings=_READING,
            run="datamask.quality.prepare:prepare_quality", sums=True, says="prepare",
        ),
        Stage(
            "signatures", "shard", "signatures", ("convert",), version=5, settings=_READING, reading=1,
            run="datamask.filter.signatures:sign_shard", makes="signatures",
        ),
        Stage(
            "index", "shard", "index", ("convert", "tokenizer"), version=4, settings=_READING, reading=1, together=True,
            run="datamask.corpus.index:index_shard", makes="index",
        ),
        Stage(
            "atoms", "shard", "atoms", ("convert",), version=2, settings=_READING, reading=1,
            run="datamask.selection.cover.counting:count_shard", makes="atoms",
        ),
        Stage(
            "leaks", "shard", "leaks", ("convert",), version=5, settings=_READING, reading=1,
            run="datamask.filter.leaks:find_leaks", makes="leaks",
        ),
        Stage(
            "embed", "shard", "embeddings", ("encoder", "index"), version=2, reading=2, sums=True,
            run="datamask.encoders.embed:embed_shard", makes="embeddings",
        ),
        Stage(
            "topics", "rounds", "topics", ("embed",), version=5, settings=("topics",), without=("topics.make",),
            rounds=2, run="datamask.encoders.topics:label_topics", makes="topics", sums=True,
        ),
        Stage(
            "score", "shard", "scores", ("quality", "index", "embed"), version=2, reading=2, sums=True,
            run="datamask.quality.score:score_shard", makes="scores",
        ),
        Stage(  # filter.own: by their code
            "filter", "rounds", "filters", ("index", "topics", "score", "signatures", "leaks"), version=5,
            settings=("filter",), without=("filter.own",),
            rounds=3, run="datamask.filter.filters:filter_corpus", makes="filters",
        ),
        Stage(  # duplicates.against: by what those curations selected
            "duplicates", "rounds", "duplicates", (*_SCORED, "signatures", "filter"), version=34,
            settings=("duplicates",), without=("duplicates.against", "duplicates.count"),
            rounds=13, run="datamask.filter.duplicates:find_duplicates", makes="duplicates",
        ),
        Stage(
            "copies", "rounds", "copies", ("index", "topics", "score", "signatures", "filter", "duplicates"),
            settings=("filter.where", "filter.order", "quality.scorers", "quality.combine"),
            rounds=5, run="datamask.filter.copy_counts:count_copies", makes="copies",
        ),
        Stage(
            "prices", "rounds", "prices", _DECIDED, version=43, settings=("select",), without=_ELSEWHERE,
            rounds=200, run="datamask.prices:solve_or_extend",
        ),
        Stage(
            "mask", "shard", "masks", (*_DECIDED, "prices"), version=21, settings=("select",), without=_ELSEWHERE,
            run="datamask.selection.stage:mask_shard", makes="masks", sums=True,
        ),
        Stage(
            "export", "rounds", "staging", ("index", "topics", "score", "filter", "copies", "mask"),
            rounds=2, run="datamask.release.staging:export",
        ),
        Stage(
            "report", "rounds", None, (*_SCORED, "topics", "filter", "duplicates", "mask", "export"),
            rounds=40, run="datamask.report.report:write_report",
        ),
        Stage(
            "publish", "one", None, ("export", "report"),
            run="datamask.release.publication:publish", says="make the release visible",
        ),
    )
}  # fmt: skip
