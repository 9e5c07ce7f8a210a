"""What is kept of a document to find its duplicates: a sample of its shingles, and how intact its surface is.

A shard's texts are read once. The sample holds the shingles whose hash is below a bound that depends on the document's
length alone, so that any two documents can be compared at the coarser of their bounds (FracMinHash, Irber et al. 2022;
it estimates containment, which MinHash cannot): 48 to 96 shingles up to 6,000 letters, one in 64 of longer texts.
The files are the index that later runs compare new documents with: they depend on the shard's own texts alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.reading import ShardReading
from datamask.pipeline import STAGES
from datamask.stages import Progress, silent
from datamask.storage import Output
from datamask.text.letters import WINDOW, tables
from datamask.text.signature_loops import Signed, signed
from datamask.text.unescape import unescaped
from datamask.text.utf8 import runs_of

SAMPLE = 48  # shingles of a document's sample, at least (if it has so many), and below twice as many
COARSEST = 6  # bits: of a document of any length, one shingle in 2⁶ is in its sample
BLOCK_BYTES = 1 << 20  # of text at a time: the arrays made of it stay in the processor's cache
SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("windows", pa.int64()),  # shingles, repeated ones counted each time; 0: no letters, or no document
        ("scale", pa.int8()),  # one shingle in 2^scale is in the sample
        ("wear", pa.int32()),  # see `surface`
        ("sample", pa.list_(pa.uint64())),  # ascending, each once
    ]
)


def sign_shard(
    shard: Shard, config: Config, work: str, progress: Progress = silent, reading: ShardReading | None = None
) -> Output:
    """Publishes the signatures of a (converted) shard: a row per row read.

    :raises InputError: a file is damaged or has no text; names it.
    """
    key = STAGES["signatures"].key(config, shard.fingerprint)
    url = storage.join(work, "signatures", f"{shard.name}-{key}.parquet")
    return storage.find_or_write(url, key, SCHEMA, _batches(reading or ShardReading(shard, config), progress))


def _batches(reading: ShardReading, progress: Progress) -> Iterator[pa.RecordBatch]:
    for batch in reading.batches(["text"]):
        chunk_id, texts = batch.rows["chunk_id"], batch.rows["text"]
        sizes = np.asarray(pa.compute.fill_null(pa.compute.binary_length(texts), 0)).astype(np.int64)
        for run in runs_of(sizes, BLOCK_BYTES):
            yield sign_texts(chunk_id[run], texts[run])
        progress(len(batch))


def sign_texts(chunk_id: pa.Array, texts: pa.Array) -> pa.RecordBatch:
    """The signatures of some texts."""
    plain = unescaped(texts)
    count, scale, wear = np.empty(len(texts), np.int64), np.empty(len(texts), np.int8), np.empty(len(texts), np.int32)
    values, offsets = np.empty(2 * len(plain[0]) + WINDOW, np.uint64), np.zeros(len(texts) + 1, np.int32)
    filled = signed(plain, tables(), SAMPLE, COARSEST, Signed(count, scale, wear, values, offsets))
    samples = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[:filled]))
    return pa.RecordBatch.from_arrays([chunk_id, *map(pa.array, (count, scale, wear)), samples], schema=SCHEMA)


def sample_bound(scale: np.ndarray) -> np.ndarray:
    """(n,) uint64: a 64-bit hash is in a sample of this scale if it is not above."""
    return np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> scale.astype(np.uint64)
