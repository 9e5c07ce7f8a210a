"""A shard's documents to its embeddings file: read, tokenise and compute at the same time, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config
from datamask.corpus.columns import is_numeric
from datamask.corpus.plan import Shard
from datamask.corpus.read import read_documents
from datamask.corpus.reading import ShardReading, Window, conserved, count_documents, windows
from datamask.errors import ModelError, printable, several, some
from datamask.models.encoder_ref import EncoderRef
from datamask.pipeline import STAGES
from datamask.read_ahead import one_ahead
from datamask.stages import Progress, ShardFiles, required, silent
from datamask.storage import Output

WINDOW_DOCUMENTS = 2048  # sorted by length together
WINDOW_CHARACTERS = 16_000_000
SCORE = "encoder_score"  # the column of encoder.quality_head
NAMED = 10  # documents in a message

T = TypeVar("T")


def embed_shard(
    files: ShardFiles,
    encoder: EncoderRef,
    config: Config,
    work: str,
    progress: Progress = silent,
    reading: ShardReading | None = None,
) -> Output:
    """Publishes the shard's embeddings: chunk_id int64, feature_arr fixed_size_list<float16>[dimensions] of unit
    length, and with a quality head `encoder_score` float32; a row per document, in order.

    :raises ModelError: the model is missing, or made NaN (the documents are named).
    :raises ConservationError: rows were lost.
    """
    index = required(files.index)
    key = STAGES["embed"].key(config, files.shard.fingerprint, index.key, encoder.fingerprint)
    url = storage.join(work, "embeddings", f"{files.shard.name}-{key}.parquet")
    if found := storage.find_output(url, key):
        return found
    reading = reading or ShardReading(files.shard, config, index)
    batches = (
        _copy(files, encoder, config, progress)
        if encoder.kind == "column"
        else _compute(files, reading, encoder, config, progress)
    )
    documents = count_documents(index)
    whole = conserved(batches, documents, f"shard {files.shard.name}", "embed")
    return storage.write_output(url, key, schema(encoder), whole, lambda: {"documents": documents})


def schema(encoder: EncoderRef) -> pa.Schema:
    """The columns of an embeddings file."""
    fields = [pa.field("chunk_id", pa.int64()), pa.field("feature_arr", pa.list_(pa.float16(), encoder.dimensions))]
    return pa.schema(fields + ([pa.field(SCORE, pa.float32())] if encoder.quality_head else []))


# ---------------------------------------------------------------- computed


def _compute(
    files: ShardFiles, reading: ShardReading, ref: EncoderRef, config: Config, progress: Progress
) -> Iterator[pa.RecordBatch]:
    from datamask.encoders.load import load_encoder  # loads torch

    encoder = load_encoder(ref, config.encoder.device)

    def tokenise(window: Window) -> tuple[np.ndarray, Any]:
        return window.chunk_ids, encoder.tokenise(window.texts)

    for ids, tokenised in one_ahead(map(tokenise, windows(reading, [], WINDOW_DOCUMENTS, WINDOW_CHARACTERS))):
        encoded = encoder.compute(tokenised, config.encoder.batch_tokens, progress)
        _check(encoded.vectors, ids, files, ref, "vector")
        if encoded.scores is not None:
            _check(encoded.scores[:, None], ids, files, ref, "score")
        yield _batch(ids, encoded.vectors, encoded.scores, ref)


# ---------------------------------------------------------------- a column of the corpus


def _copy(files: ShardFiles, ref: EncoderRef, config: Config, progress: Progress) -> Iterator[pa.RecordBatch]:
    for batch in read_documents(files, config, ["id", ref.name]):
        vectors = _matrix(batch, files.shard, ref)
        progress(batch.num_rows)
        yield _batch(batch["chunk_id"].to_numpy(), vectors, None, ref)


def _matrix(batch: pa.RecordBatch, shard: Shard, ref: EncoderRef) -> np.ndarray:
    """float64 [rows, dimensions], unit rows.

    :raises ModelError: a row has no embedding, or one that is not finite; names it.
    """
    column = batch[ref.name]
    parts = shard.converted_from or shard.parts
    where = f"{parts[0].path} (shard {shard.name}): column {ref.name}"
    listed = pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
    if not (listed and is_numeric(column.type.value_type)):
        raise ModelError(f"{where} is of type {column.type}; an embedding is a list of numbers (encoder.column)")
    sizes = np.asarray(pc.fill_null(pc.list_value_length(column), -1))
    short = sizes < ref.dimensions
    if short.any() or len(np.unique(sizes)) > 1:
        raise ModelError(
            f"{where} holds embeddings of {min(sizes)} to {max(sizes)} numbers (−1: null), encoder.dimensions is "
            f"{ref.dimensions}; too short for {_named(batch, short)}. Give every document one of the same size, "
            "and set encoder.dimensions to that size or less"
        )
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    vectors = flat.reshape(len(column), -1)[:, : ref.dimensions]
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise ModelError(
            f"{where} holds a number that is not finite, or null, for {_named(batch, bad)}. Embed those documents "
            "again, or leave them out of the corpus"
        )
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    vectors = np.where(largest == 0, 1, vectors / np.where(largest == 0, 1, largest))  # no square is beyond a double
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _named(batch: pa.RecordBatch, rows: np.ndarray) -> str:
    """Some of a batch's documents, by id and chunk_id. rows: bool [rows]."""
    chosen = batch.filter(pa.array(rows))
    pairs = zip(chosen["id"].to_pylist(), chosen["chunk_id"].to_pylist(), strict=True)
    named = (f"{id_} (chunk_id {chunk_id})" for id_, chunk_id in pairs)
    return f"{several(chosen.num_rows, 'document')}: {printable(some(named, NAMED))}"


# ---------------------------------------------------------------- common


def _check(values: np.ndarray, ids: np.ndarray, files: ShardFiles, ref: EncoderRef, what: str) -> None:
    bad = ids[~np.isfinite(values).all(axis=1)]
    if len(bad):
        hint = "; try encoder.dtype=float32" if ref.dtype != "float32" else ""
        raise ModelError(
            f"encoder {ref.name} made a {what} that is not a number for {len(bad)} document(s) "
            f"of shard {files.shard.name}: chunk_id {some(bad, NAMED)}{hint}"
        )


def _batch(ids: np.ndarray, vectors: np.ndarray, scores: np.ndarray | None, ref: EncoderRef) -> pa.RecordBatch:
    flat = pa.array(vectors.astype(np.float16).ravel(), pa.float16())
    columns = [pa.array(ids), pa.FixedSizeListArray.from_arrays(flat, ref.dimensions)]
    if scores is not None:
        columns.append(pa.array(scores.astype(np.float32)))
    return pa.RecordBatch.from_arrays(columns, schema=schema(ref))
