"""A shard's documents to its scores file: read ahead, scored in windows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.corpus.columns import numbers_of
from datamask.corpus.reading import ShardReading, conserved, count_documents, windows
from datamask.errors import ConservationError, ModelError, some
from datamask.pipeline import STAGES
from datamask.quality.documents import Documents, Need, Scorer
from datamask.quality.quality_ref import QualityRef
from datamask.quality.scorers import load_scorer
from datamask.read_ahead import one_ahead
from datamask.stages import Progress, ShardFiles, required, silent
from datamask.storage import Output

if TYPE_CHECKING:
    from datamask.models.encoder_ref import EncoderRef

WINDOW_DOCUMENTS = 2048
WINDOW_CHARACTERS = 8_000_000
QUALITY = "quality_score"
EMBEDDED: dict[str, Need] = {"feature_arr": "vectors", "encoder_score": "encoder_scores"}  # columns, by their need


def score_shard(
    files: ShardFiles,
    quality: QualityRef,
    encoder: EncoderRef,
    config: Config,
    work: str,
    progress: Progress = silent,
    reading: ShardReading | None = None,
) -> Output:
    """Publishes the shard's scores: chunk_id int64, and float32 columns: one per scorer, `<scorer>.<signal>` per signal
    (null where a signal does not apply), and quality_score; a row per document, in order.

    Facts: documents; pool: where in the work folder the content score's counts of the corpus are, or None.

    :raises ModelError: a score is not a number (names the documents), or a model cannot be loaded.
    :raises ConservationError: rows were lost.
    """
    index = required(files.index)
    scorers = {ref.name: load_scorer(ref, config, work) for ref in quality.scorers}
    uses_embeddings = any(scorer.needs & {"vectors", "encoder_scores"} for scorer in scorers.values())
    embeddings = required(files.embeddings).key if uses_embeddings else None
    key = STAGES["score"].key(config, files.shard.columns_key, index.key, quality.fingerprint, embeddings)
    url = storage.join(work, "scores", f"{files.shard.name}-{key}.parquet")
    if found := storage.find_output(url, key):
        return found
    documents = count_documents(index)

    def batches() -> Iterator[pa.RecordBatch]:
        for window in one_ahead(_windows(reading or ShardReading(files.shard, config, index), files, scorers)):
            yield _score(window, quality, scorers, files.shard.name)
            progress(len(window))

    pool = next((ref.path for ref in quality.scorers if ref.settings.kind == "content"), None)
    whole = conserved(batches(), documents, f"shard {files.shard.name}", "score")
    return storage.write_output(url, key, schema(scorers), whole, lambda: {"documents": documents, "pool": pool})


def schema(scorers: Mapping[str, Scorer]) -> pa.Schema:
    """The columns of a scores file."""
    names = [*scorers, *(f"{name}.{signal}" for name, scorer in scorers.items() for signal in scorer.signals), QUALITY]
    return pa.schema([("chunk_id", pa.int64()), *((name, pa.float32()) for name in names)])


def _score(documents: Documents, quality: QualityRef, scorers: Mapping[str, Scorer], shard: str) -> pa.RecordBatch:
    scores: dict[str, np.ndarray] = {}
    signals: list[np.ndarray] = []
    for name, scorer in scorers.items():
        found = scorer.score(documents)
        if len(bad := documents.chunk_ids[~np.isfinite(found.score)]):
            raise ModelError(
                f"scorer {name} gives no number for {len(bad)} document(s) of shard {shard}: chunk_id "
                f"{some(bad, 10)}. Mend the model or the column, or leave the scorer out (quality.scorers)"
            )
        scores[name] = found.score
        signals.extend(found.signals.T)
    arrays = [pa.array(values, from_pandas=True) for values in (*scores.values(), *signals)]
    combined = pa.array(quality.combined(scores))
    return pa.RecordBatch.from_arrays([pa.array(documents.chunk_ids), *arrays, combined], schema=schema(scorers))


def _windows(reading: ShardReading, files: ShardFiles, scorers: Mapping[str, Scorer]) -> Iterator[Documents]:
    columns = list(dict.fromkeys(column for scorer in scorers.values() for column in scorer.columns))
    needs = frozenset().union(*(scorer.needs for scorer in scorers.values()))
    others = ["language"] if "languages" in needs else []
    wanted = [name for name, need in EMBEDDED.items() if need in needs]
    embedded = _Rows(files, wanted) if wanted else None
    for window in windows(reading, [*columns, *others], WINDOW_DOCUMENTS, WINDOW_CHARACTERS):
        vectors = scores = None
        if embedded is not None:
            table = embedded.take(window.chunk_ids)
            if "feature_arr" in wanted:
                flat = table["feature_arr"].combine_chunks().flatten()
                vectors = flat.to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(table), -1)
            if "encoder_score" in wanted:
                scores = table["encoder_score"].to_numpy().astype(np.float32)
        languages = window.rows["language"].to_pylist() if others else None
        read = numbers_of(window.rows, columns)
        yield Documents(window.chunk_ids, window.texts, vectors, scores, languages, read)


class _Rows:
    """The embeddings file, read along with the documents."""

    def __init__(self, files: ShardFiles, columns: Sequence[str]) -> None:
        self._name = files.shard.name
        self._batches = self._read(required(files.embeddings).path, ["chunk_id", *columns])
        self._held: list[pa.RecordBatch] = []

    @staticmethod
    def _read(url: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with storage.open_parquet(url) as file:
            yield from file.iter_batches(WINDOW_DOCUMENTS, columns=list(columns), use_threads=False)

    def take(self, ids: np.ndarray) -> pa.Table:
        """The next rows, which are those of `ids`.

        :raises ConservationError: they are not.
        """
        while sum(map(len, self._held)) < len(ids) and (batch := next(self._batches, None)) is not None:
            self._held.append(batch)
        table = pa.Table.from_batches(self._held) if self._held else None
        if table is None or not np.array_equal(table["chunk_id"].to_numpy()[: len(ids)], ids):
            raise ConservationError(f"shard {self._name}: the embeddings are not of the same documents as the text")
        self._held = table.slice(len(ids)).to_batches()
        return table.slice(0, len(ids))
