"""From the settings to a QualityRef: models found, checked and pinned, and the combination fitted on a sample."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.read import read_batches, shard_schema
from datamask.errors import ConfigError, InputError, ModelError, nearest
from datamask.quality.combine import fit
from datamask.quality.documents import Documents, Scorer
from datamask.quality.load import load_scorer, pin
from datamask.quality.probe import CHECK_SENTENCES, ProbeScorer
from datamask.quality.ref import QualityRef, ScorerRef, Statistics

if TYPE_CHECKING:
    from datamask.encoders import EncoderRef

VERSION = 1
SAMPLE_DOCUMENTS = 10_000
SAMPLE_ROWS = 200_000  # looked at, of shards in the order of a hash of their content


def prepare_quality(
    shards: Sequence[Shard], encoder: EncoderRef, config: Config, work: str, previous: QualityRef | None = None
) -> QualityRef:
    """The scorers of `config.quality`, each loaded once to see that it can be, and pinned.

    With `combine` standard or rank their scores are measured on a sample of the corpus chosen by hashes, so that
    every shard is scored alone and yet on one scale.

    :param shards: the corpus, converted
    :param previous: of the last release: a refresh keeps the statistics fitted then, so that old and new scores
        compare and what is scored stays scored; changed scorers are fitted again.
    :raises ModelError: a model is missing, broken, or does not fit the settings.
    :raises ConfigError: the encoder gives no score, and a scorer asks for it.
    :raises InputError: a shard lacks a scorer's column.
    """
    settings = config.quality
    refs = tuple(pin(scorer, config) for scorer in settings.scorers)
    scorers = [load_scorer(ref, config) for ref in refs]
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


def _same(previous: QualityRef, refs: tuple[ScorerRef, ...], combine: str) -> bool:
    def identity(scorers: Sequence[ScorerRef]) -> dict[str, str]:
        return {ref.name: ref.fingerprint for ref in scorers}

    return previous.combine == combine and identity(previous.scorers) == identity(refs)


def _check(ref: ScorerRef, scorer: Scorer, shards: Sequence[Shard], encoder: EncoderRef, config: Config) -> None:
    if "encoder_scores" in scorer.needs and not getattr(encoder, "quality_head", None):
        raise ConfigError(
            f"quality.scorers: {ref.name} is of kind encoder, but the encoder gives no score; "
            f"set encoder.quality_head to a classifier on the same encoder"
        )
    if isinstance(scorer, ProbeScorer) and "vectors" in scorer.needs and encoder.kind != "column":
        from datamask.encoders.encode import load_encoder  # loads torch

        model = load_encoder(encoder, config.encoder.device)
        scorer.check_encoder(model.compute(model.tokenise(CHECK_SENTENCES), config.encoder.batch_tokens).vectors)
    for column in scorer.columns:
        for shard in shards:
            schema = shard_schema(shard, config)
            if column not in schema.names:
                raise InputError(
                    f"shard {shard.name} has no column {column} for scorer {ref.name}{nearest(column, schema.names)} "
                    f"(there are: {', '.join(schema.names)})"
                )
            kind = schema.field(column).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                raise InputError(f"shard {shard.name}: column {column} is of type {kind}; a score is a number")


def _fit(
    refs: Sequence[ScorerRef], scorers: Sequence[Scorer], shards: Sequence[Shard], encoder: EncoderRef, config: Config
) -> dict[str, Statistics]:
    sample = _sample(scorers, shards, encoder, config)
    if not len(sample):
        raise InputError("the corpus has no text to fit the quality scores on: every row is null or empty")
    fitted = {}
    for ref, scorer in zip(refs, scorers, strict=True):
        score = scorer.score(sample).score
        if not np.isfinite(score).all():
            raise ModelError(
                f"scorer {ref.name} gives no number for {int((~np.isfinite(score)).sum())} of {len(score)} sampled "
                f"documents; mend the model or the column, or leave the scorer out"
            )
        fitted[ref.name] = fit(score)
    return fitted


def _sample(scorers: Sequence[Scorer], shards: Sequence[Shard], encoder: EncoderRef, config: Config) -> Documents:
    """The documents with the least hashes of their text, of shards in the order of a hash of their content."""
    needs = frozenset().union(*(scorer.needs for scorer in scorers))
    columns = list(dict.fromkeys(column for scorer in scorers for column in scorer.columns))
    given = [encoder.name] if "vectors" in needs and encoder.kind == "column" else []
    wanted = list(dict.fromkeys(["text", *columns, *given]))
    chosen: list[tuple[int, int, dict[str, Any]]] = []  # a heap, of negated hashes
    rows = number = 0
    for shard in sorted(shards, key=lambda shard: storage.key(shard.fingerprint)):
        if rows >= SAMPLE_ROWS:
            break
        for batch in read_batches(shard, config, wanted):
            rows += batch.num_rows
            texts = batch["text"].to_pylist()
            for place, text in enumerate(texts):
                if not text or text.isspace():
                    continue
                rank = -int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
                number -= 1
                if len(chosen) < SAMPLE_DOCUMENTS or rank > chosen[0][0]:
                    heapq.heappush(chosen, (rank, number, {name: batch[name][place].as_py() for name in wanted}))
                    if len(chosen) > SAMPLE_DOCUMENTS:
                        heapq.heappop(chosen)
    found = [row for _, _, row in sorted(chosen, key=lambda entry: entry[:2], reverse=True)]
    texts = [row["text"] for row in found]
    vectors = encoder_scores = None
    if given:
        vectors = np.array([row[encoder.name] for row in found], dtype=np.float32)[:, : encoder.dimensions]
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    elif needs & {"vectors", "encoder_scores"}:
        from datamask.encoders.encode import load_encoder  # loads torch

        model = load_encoder(encoder, config.encoder.device)
        encoded = model.compute(model.tokenise(texts), config.encoder.batch_tokens)
        vectors, encoder_scores = encoded.vectors, encoded.scores
    numbers = {name: np.array([row[name] for row in found], dtype=np.float64) for name in columns}
    return Documents(np.arange(len(texts)), texts, vectors, encoder_scores, numbers)
