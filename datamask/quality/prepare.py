"""From the settings to a QualityRef: models found, checked and pinned, and the combination fitted on a sample."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config, ScorerSettings
from datamask.corpus.columns import is_number, numbers_of
from datamask.corpus.plan import Shard
from datamask.corpus.quarantine import why_no_text
from datamask.corpus.read import sample_rows, shard_schema
from datamask.errors import ConfigError, InputError, ModelError, nearest
from datamask.pipeline import STAGES
from datamask.quality import pool_model as pool
from datamask.quality.documents import Documents, Scorer
from datamask.quality.probe import CHECK_SENTENCES, ProbeScorer
from datamask.quality.quality_ref import QualityRef, ScorerRef, Statistics
from datamask.quality.scorers import ContentScorer, load_scorer, pin_scorer

if TYPE_CHECKING:
    from datamask.models.encoder_ref import EncoderRef

SAMPLE_DOCUMENTS = 10_000
SAMPLE_ROWS = 200_000  # looked at


def prepare_quality(
    shards: Sequence[Shard], encoder: EncoderRef | None, config: Config, work: str, previous: QualityRef | None = None
) -> QualityRef:
    """The scorers of `config.quality`, each loaded once to see that it can be, and pinned by its files' content.

    The content scorer's model is fitted on a sample of the corpus, if it is not there from an earlier run.
    With `combine` standard or rank their scores are measured on a sample of the corpus chosen by hashes, so that
    every shard is scored alone and yet on one scale.

    :param shards: the corpus, converted
    :param encoder: None will do unless `config.quality.reads_encoder`
    :param previous: of the last release: a refresh keeps what was fitted then, so that old and new scores compare and
        what is scored stays scored; scorers whose settings or files changed are fitted again.
    :raises ModelError: a model is missing, broken, or does not fit the settings.
    :raises ConfigError: the encoder gives no score, and a scorer asks for it.
    :raises InputError: a shard lacks a scorer's column.
    """
    settings = config.quality
    refs = tuple(
        _content(scorer, shards, config, work, previous) if scorer.kind == "content" else pin_scorer(scorer, config)
        for scorer in settings.measured
    )
    scorers = [load_scorer(ref, config, work) for ref in refs]
    for ref, scorer in zip(refs, scorers, strict=True):
        _check(ref, scorer, shards, encoder, config)
    statistics: dict[str, Statistics] = {}
    if settings.combine != "sum":
        kept = previous if previous is not None and _same(previous, refs, settings.combine) else None
        statistics = dict(kept.statistics) if kept else _fit(refs, scorers, shards, encoder, config)
    quality = QualityRef(refs, settings.combine, statistics)
    url = storage.join(work, "quality", f"{quality.fingerprint}.json")
    if not storage.exists(url):
        storage.write_json(url, quality.as_dict())
    return quality


def _content(
    settings: ScorerSettings, shards: Sequence[Shard], config: Config, work: str, previous: QualityRef | None
) -> ScorerRef:
    """The scorer with the last release's model, where that file is still what it was, or one of these shards."""
    for ref in previous.scorers if previous is not None else ():
        named = ref.settings.kind == "content" and ref.name == settings.name
        if named and storage.exists(storage.join(work, ref.path)):
            found = ContentScorer.pin_fitted(settings, ref.path, work)
            if found.fingerprint == ref.fingerprint:
                return found
    key = STAGES["quality"].key(config, sorted(shard.columns_key for shard in shards))
    path = f"quality/pool-{key}.safetensors"
    if not storage.exists(storage.join(work, path)):
        rows = _rows_with_text(shards, config, ["text", "language"])
        texts, languages = pool.sample((row["text"], row["language"]) for row in rows)
        if not texts:
            raise InputError(why_no_text(shards, config))
        pool.write_pool_model(storage.join(work, path), pool.fit_pool_model(texts, languages))
    return ContentScorer.pin_fitted(settings, path, work)


def _rows_with_text(shards: Sequence[Shard], config: Config, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Those of SAMPLE_ROWS rows from everywhere in the corpus that have text."""
    for batch in sample_rows(shards, config, columns, SAMPLE_ROWS):
        yield from (row for row in batch.to_pylist() if row["text"] and not row["text"].isspace())


def _same(previous: QualityRef, refs: tuple[ScorerRef, ...], combine: str) -> bool:
    before, now = ({ref.name: ref.fingerprint for ref in scorers} for scorers in (previous.scorers, refs))
    return previous.combine == combine and before == now


def _check(ref: ScorerRef, scorer: Scorer, shards: Sequence[Shard], encoder: EncoderRef | None, config: Config) -> None:
    if "encoder_scores" in scorer.needs and not getattr(encoder, "quality_head", None):
        raise ConfigError(
            f"quality.scorers: {ref.name} is of kind encoder, but the encoder gives no score; "
            f"set encoder.quality_head to a classifier on the same encoder"
        )
    if isinstance(scorer, ProbeScorer) and "vectors" in scorer.needs and encoder and encoder.kind != "column":
        from datamask.encoders.load import load_encoder  # loads torch

        model = load_encoder(encoder, config.encoder.device)
        scorer.check_encoder(model.compute(model.tokenise(CHECK_SENTENCES), config.encoder.batch_tokens).vectors)
    for column in scorer.columns:
        for shard in shards:
            schema, path = shard_schema(shard, config), (shard.converted_from or shard.parts)[0].path
            if column not in schema.names:
                raise InputError(
                    f"{path}: no column {column} for scorer {ref.name}{nearest(column, schema.names)} "
                    f"(there are: {', '.join(schema.names)})"
                )
            kind = schema.field(column).type
            if not is_number(kind) or column == "text":
                raise InputError(f"{path}: column {column} is of type {kind}; a score is a number")


def _fit(
    refs: Sequence[ScorerRef],
    scorers: Sequence[Scorer],
    shards: Sequence[Shard],
    encoder: EncoderRef | None,
    config: Config,
) -> dict[str, Statistics]:
    sample = _sample(scorers, shards, encoder, config)
    if not len(sample):
        raise InputError(why_no_text(shards, config))
    fitted = {}
    for ref, scorer in zip(refs, scorers, strict=True):
        score = scorer.score(sample).score
        if scorer.columns:
            score = score[np.isfinite(score)]  # rows without one are in quarantine
            if not len(score):
                raise InputError(f"no row has a number in column {scorer.columns[0]}; a score is a number")
        if not np.isfinite(score).all():
            raise ModelError(
                f"scorer {ref.name} gives no number for {int((~np.isfinite(score)).sum())} of {len(score)} sampled "
                f"documents; mend the model or the column, or leave the scorer out"
            )
        fitted[ref.name] = Statistics.of(score)
    return fitted


def _sample(
    scorers: Sequence[Scorer], shards: Sequence[Shard], encoder: EncoderRef | None, config: Config
) -> Documents:
    """The documents with the least hashes of their text."""
    needs = frozenset().union(*(scorer.needs for scorer in scorers))
    columns = list(dict.fromkeys(column for scorer in scorers for column in scorer.columns))
    given = [encoder.name] if "vectors" in needs and encoder and encoder.kind == "column" else []
    stated = ["language"] if "languages" in needs else []
    wanted = list(dict.fromkeys(["text", *columns, *stated, *given]))
    rows = _rows_with_text(shards, config, wanted)
    found = heapq.nsmallest(
        SAMPLE_DOCUMENTS, rows, key=lambda row: blake2b(row["text"].encode(), digest_size=8).digest()
    )
    texts = [row["text"] for row in found]
    vectors = encoder_scores = None
    assert encoder is not None or not needs & {"vectors", "encoder_scores"}  # config.quality.reads_encoder
    if encoder and given:
        vectors = np.array([row[encoder.name] for row in found], dtype=np.float32)[:, : encoder.dimensions]
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    elif encoder and needs & {"vectors", "encoder_scores"}:
        from datamask.encoders.load import load_encoder  # loads torch

        model = load_encoder(encoder, config.encoder.device)
        encoded = model.compute(model.tokenise(texts), config.encoder.batch_tokens)
        vectors, encoder_scores = encoded.vectors, encoded.scores
    numbers = numbers_of(pa.table({name: [row[name] for row in found] for name in columns}), columns)
    languages = [row["language"] for row in found] if stated else None
    return Documents(np.arange(len(texts)), texts, vectors, encoder_scores, languages, numbers)
