"""The stages as values: what each is called, reads and depends on, and how its files' keys are made.

The flows, the cost model, the progress, `clean`, the keys and the documentation's tables read this one declaration. A
file that is there under its key is done, so what is in the key decides what a changed setting makes again: the settings
that the stage declares, by their values, and what it is given besides, which are the keys of the files that it reads
and of what stands for other settings (an encoder's fingerprint, the content of a file that a setting names).
"""

from __future__ import annotations

from dataclasses import dataclass
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
    "duplicates.alarm",
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


_READING = ("corpus.columns", "corpus.drop")
_FITTING = (
    "corpus.columns",
    *(f"encoder.{name}" for name in ("fit_documents", "vocabulary", "dimensions", "max_length")),
)
_SCORED = ("index", "embed", "score")
_DECIDED = (*_SCORED, "atoms", "filter", "duplicates")
_ELSEWHERE = ("select.semantic_duplicates",)  # of `duplicates`, which is given it where it searches by embeddings
STAGES = {
    stage.name: stage
    for stage in (
        Stage("plan", "one", None, (), version=5),
        Stage("convert", "shard", "corpus", ("plan",), version=2, settings=_READING),
        Stage("languages", "shard", "languages", ("convert",), settings=_READING),
        Stage("tokenizer", "one", "tokenizer", ("convert",), settings=_FITTING),  # under the encoder's key
        Stage("encoder", "one", "encoder", ("convert", "tokenizer"), version=6, settings=_FITTING),
        Stage("quality", "one", "quality", ("convert", "encoder"), version=3, settings=_READING),
        Stage("signatures", "shard", "signatures", ("convert",), version=2, settings=_READING),
        Stage("index", "shard", "index", ("convert", "tokenizer"), version=4, settings=_READING),
        Stage("embed", "shard", "embeddings", ("encoder", "index"), version=2),
        Stage("score", "shard", "scores", ("quality", "index", "embed"), version=2),
        Stage("atoms", "shard", "atoms", ("index",)),
        Stage("leaks", "shard", "leaks", ("index",), version=4),
        Stage(
            "filter",
            "rounds",
            "filters",
            ("index", "score", "signatures", "leaks"),
            version=4,
            settings=("filter",),
            without=("filter.own",),  # by their code
            rounds=3,
        ),
        Stage(
            "duplicates",
            "rounds",
            "duplicates",
            (*_SCORED, "signatures", "filter"),
            version=19,
            settings=("duplicates",),
            without=("duplicates.against",),  # by what those curations selected
            rounds=13,
        ),
        Stage("prices", "rounds", "prices", _DECIDED, version=23, settings=("select",), without=_ELSEWHERE, rounds=48),
        Stage("mask", "shard", "masks", (*_DECIDED, "prices"), version=9, settings=("select",), without=_ELSEWHERE),
        Stage("export", "rounds", "staging", ("index", "score", "filter", "mask"), rounds=2),
        Stage("report", "rounds", None, (*_SCORED, "filter", "duplicates", "mask", "export"), rounds=40),
        Stage("publish", "one", None, ("export", "report")),
    )
}
