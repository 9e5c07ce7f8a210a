"""From a scorer's settings to the thing that scores: pinned once, loaded once per process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamask import extensions, storage
from datamask.config import Config
from datamask.config import ScorerSettings as Settings
from datamask.errors import ModelError
from datamask.models.load import ModelCache, loading
from datamask.models.locate import locate
from datamask.quality import content, simple
from datamask.quality.documents import Scorer
from datamask.quality.fasttext import FastTextScorer, require_file
from datamask.quality.probe import WEIGHTS, ProbeScorer, read_description
from datamask.quality.quality_ref import ScorerRef

if TYPE_CHECKING:
    from datamask.models.load import ModelCache

CONTENT_VERSION = 8  # raised when a measure, a term or the score changes
HEURISTIC_VERSION = 1  # raised when a rule, a signal or the score changes


def pin_scorers(settings: Settings, config: Config) -> ScorerRef:
    """What the settings name, found and fingerprinted.

    :raises ModelError: the model is not there; says where it was looked for.
    """
    kind = settings.kind
    if kind == "content":
        raise ValueError("a content scorer is fitted to its corpus: see prepare_quality and pin_content")
    if kind == "heuristic":
        return ScorerRef(settings, "", None, storage.key(kind, HEURISTIC_VERSION))
    if kind == "column":
        return ScorerRef(settings, "", None, storage.key(kind, settings.column))
    if kind == "encoder":
        return ScorerRef(settings, "", None, storage.key(kind))
    if own := extensions.find_extension("scorer", kind):
        options = dict(settings.options)
        return ScorerRef(settings, "", None, storage.key("own", own.fingerprint(), options))
    assert settings.model is not None
    if kind == "fasttext":
        path = _local(settings.model)
        require_file(path)
        prepared = None if settings.tokenizer is None else _located(settings.tokenizer, None)[2]
        facts = [settings.preparation, settings.label, prepared]
        return ScorerRef(settings, path, None, storage.key(kind, storage.fingerprint(path), facts))
    if kind == "probe":
        path = _local(settings.model)
        read_description(path)
        files = [storage.fingerprint(str(Path(path) / name)) for name in WEIGHTS]
        return ScorerRef(settings, path, None, storage.key(kind, HEURISTIC_VERSION, CONTENT_VERSION, files))
    from datamask.devices import pick_device, pick_dtype  # loads torch

    path, revision, fingerprint = _located(settings.model, settings.revision)
    dtype = pick_dtype(config.encoder.dtype, pick_device(config.encoder.device))
    return ScorerRef(
        settings, path, revision, storage.key(kind, fingerprint, dtype, settings.label, settings.max_length), dtype
    )


def pin_content(settings: Settings, path: str, work: str) -> ScorerRef:
    """The content scorer whose model is at `path` in the work folder; the key holds the file's bytes."""
    return ScorerRef(settings, path, None, _content_key(storage.fingerprint(storage.join(work, path))))


def _content_key(fingerprint: str) -> str:
    return storage.key("content", CONTENT_VERSION, fingerprint)


def load_scorer(ref: ScorerRef, config: Config, work: str = "") -> Scorer:
    """The scorer of a reference, loaded once per process.

    :param work: the work folder, where a fitted scorer's file lies
    :raises ModelError: its model is broken or does not fit the settings.
    """
    settings = ref.settings
    if settings.kind == "heuristic":
        return simple.HeuristicScorer()
    if settings.kind == "content":
        return content.load_content_scorer(storage.join(work, ref.path), ref.fingerprint)
    if settings.kind == "column":
        assert settings.column is not None
        return simple.ColumnScorer(settings.column)
    if settings.kind == "encoder":
        return simple.EncoderScorer()
    if own := extensions.find_extension("scorer", settings.kind):
        return simple.OwnScorer(own.make(settings.options), settings.name)
    return _cache().get((ref.fingerprint, config.encoder.device), lambda: _load(ref, config))


@cache
def _cache() -> ModelCache:
    return ModelCache(size=16)  # every scorer of a run is needed for every shard


def _load(ref: ScorerRef, config: Config) -> Scorer:
    settings = ref.settings
    if settings.kind == "transformer":
        from datamask.quality.transformer import TransformerScorer

        return TransformerScorer(ref, config)
    if settings.kind == "prox":
        from datamask.quality.prox import ProxScorer

        return ProxScorer(ref, config)
    if settings.kind == "probe":
        return ProbeScorer(ref.path)
    tokenizer = None if settings.tokenizer is None else _tokenizer(settings.tokenizer)
    return FastTextScorer(ref.path, settings.preparation, settings.label, tokenizer)


def _local(path: str) -> str:
    if storage.is_remote(path):
        raise ModelError(f"model {path}: give a local path; copy it first, e.g. with `aws s3 cp --recursive`")
    return storage.filesystem(path)[1]


def _located(name: str, revision: str | None) -> tuple[str, str | None, str]:
    return locate(name, revision)


def _tokenizer(name: str) -> Any:
    """A `tokenizers.Tokenizer`, of a folder or hub name."""
    from tokenizers import Tokenizer

    path, revision, _ = _located(name, None)
    file = Path(path) / "tokenizer.json"
    if file.is_file():
        try:
            return Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exceptions
            raise ModelError(f"tokenizer {file} is broken: {error}") from error
    from transformers import AutoTokenizer

    with loading("tokenizer", path, revision):
        return AutoTokenizer.from_pretrained(path, revision=revision).backend_tokenizer
