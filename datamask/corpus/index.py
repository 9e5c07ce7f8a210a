"""The index: a row per row read, with its id, its length, the hash that finds its copies, or why it is no document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.project import EXCERPT
from datamask.corpus.quarantine import score_columns
from datamask.corpus.read import scattered
from datamask.corpus.reading import Batch, ShardReading
from datamask.errors import ConservationError
from datamask.models.encoder_ref import EncoderRef
from datamask.pipeline import STAGES
from datamask.stages import Progress
from datamask.storage import Output, find_or_write, join
from datamask.text.text_hashes import text_hashes

SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("id", pa.string()),
        ("token_count", pa.int64()),  # null in quarantine, like all that follow but the last two
        ("characters", pa.int64()),
        ("bytes", pa.int64()),  # of the text in UTF-8
        ("text_hash", pa.binary(16)),
        ("reason", pa.string()),
        ("excerpt", pa.string()),
    ]
)

MOST_TOKENS = 1 << 40  # of a document: more is no count, and sums of such would pass 64 bits


def index_shard(
    shard: Shard,
    encoder: EncoderRef,
    config: Config,
    work: str,
    progress: Progress | None = None,
    reading: ShardReading | None = None,
) -> Output:
    """Reads every row of a (converted) shard once and publishes its index.

    A missing or null id becomes `<shard>/<chunk_id>`, the latter with at least six digits. A token_count that
    is missing, or is none (`is_count`), is counted with the encoder's tokenizer (white-space-separated words where it
    has none). Equal ids are kept: (shard, chunk_id) is what names a document.

    Facts: rows, documents, quarantined, reasons {reason: rows}, tokens, tokens_counted (rows), characters, ids_made,
    duplicate_ids (rows whose id came before in this shard).

    :raises InputError: a file is damaged or has no text; names it.
    """
    given = [shard.name, shard.fingerprint, encoder.fingerprint, score_columns(config)]
    output_key = STAGES["index"].key(config, *given)
    url = join(work, "index", f"{shard.name}-{output_key}.parquet")
    index = _Indexer(shard, encoder)
    batches = index.batches(reading or ShardReading(shard, config), progress)
    output = find_or_write(url, output_key, SCHEMA, batches, index.facts)
    if shard.rows is not None and output.rows != shard.rows:
        raise ConservationError(f"shard {shard.name}: {output.rows} rows read where {shard.rows} were planned")
    return output


class _Indexer:
    """Makes the index's batches and adds up its facts."""

    def __init__(self, shard: Shard, encoder: EncoderRef) -> None:
        self._shard = shard
        self._encoder = encoder
        self._sums: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._id_hashes = [np.zeros(0, np.int64)]  # of each batch, this process's own: equal ids are counted

    def batches(self, reading: ShardReading, progress: Progress | None) -> Iterator[pa.RecordBatch]:
        for batch in reading.batches(["text", "id", "token_count", "_excerpt"]):
            yield self._index(batch)
            if progress:
                progress(len(batch))

    def facts(self) -> Mapping[str, Any]:
        names = ("rows", "documents", "quarantined", "tokens", "tokens_counted", "characters", "ids_made")
        hashes = np.concatenate(self._id_hashes)
        return {
            **{name: self._sums[name] for name in names},
            "reasons": dict(sorted(self._reasons.items())),
            "duplicate_ids": int((np.diff(np.sort(hashes)) == 0).sum()),
        }

    def _index(self, batch: Batch) -> pa.RecordBatch:
        rows, reason, documents = batch.rows, batch.reason, batch.documents.rows
        text = documents["text"]
        excerpt = pc.if_else(
            pc.and_(pc.is_valid(reason), pc.is_null(rows["_excerpt"])),
            pc.utf8_slice_codeunits(rows["text"], 0, EXCERPT),
            rows["_excerpt"],
        )
        tokens = self._tokens(documents["token_count"], documents)
        characters = pc.utf8_length(text).cast(pa.int64())
        size = pc.binary_length(text).cast(pa.int64())
        hashes = pa.array(text_hashes(text), pa.binary(16))
        ids = self._ids(rows)
        self._sums.update(
            rows=len(rows),
            documents=len(documents),
            quarantined=len(rows) - len(documents),
            tokens=pc.sum(tokens).as_py() or 0,
            characters=pc.sum(characters).as_py() or 0,
        )
        self._reasons.update(reason.drop_null().to_pylist())
        good = np.asarray(reason.is_null())
        placed = [scattered(values, good) for values in (tokens, characters, size, hashes)]
        return pa.RecordBatch.from_arrays([rows["chunk_id"], ids, *placed, reason, excerpt], schema=SCHEMA)

    def _ids(self, batch: pa.RecordBatch) -> pa.Array:
        ids = batch["id"]
        missing = pc.is_null(ids)
        made = pc.sum(missing).as_py()
        if made:
            numbers = pc.utf8_lpad(batch["chunk_id"].cast(pa.string()), 6, "0")
            ids = pc.if_else(missing, pc.binary_join_element_wise(self._shard.name, numbers, "/"), ids)
            self._sums["ids_made"] += made
        self._id_hashes.append(np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids)))
        return ids

    def _tokens(self, counts: pa.Array, documents: pa.RecordBatch) -> pa.Array:
        missing = ~np.asarray(is_count(counts))
        if not missing.any():
            return counts
        numbers = np.array(pc.fill_null(counts, 0))
        numbers[missing] = self._count(documents["text"].filter(pa.array(missing)))
        self._sums["tokens_counted"] += int(missing.sum())
        return pa.array(numbers)

    @cached_property
    def _count(self) -> Callable[[pa.Array], Any]:
        """A function from texts to how many tokens each has."""
        if self._encoder.kind in ("column", "own"):
            return lambda texts: [len(text.split()) for text in texts.to_pylist()]
        from datamask.models.tokens import load_tokenizer  # Numba

        return load_tokenizer(self._encoder).count


def is_count(counts: pa.Array) -> pa.Array:
    """Which token counts of a corpus (int64) can be some: not null, not negative, at most MOST_TOKENS."""
    return pc.fill_null(pc.and_(pc.greater_equal(counts, 0), pc.less_equal(counts, MOST_TOKENS)), False)
