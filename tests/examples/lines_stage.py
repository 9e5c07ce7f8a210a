"""A stage of one's own: how many lines each row has. `test_own_stage` adds it to a checkout."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.reading import ShardReading
from datamask.pipeline import STAGES
from datamask.stages import Progress, silent
from datamask.storage import Output

SCHEMA = pa.schema([("chunk_id", pa.int64()), ("lines", pa.int64())])


def count_lines(
    shard: Shard, config: Config, work: str, progress: Progress = silent, reading: ShardReading | None = None
) -> Output:
    """Publishes work/lines/<shard>-<key>.parquet: a row per row read."""
    key = STAGES["lines"].key(config, shard.fingerprint)
    url = storage.join(work, "lines", f"{shard.name}-{key}.parquet")
    if found := storage.find_output(url, key):
        return found

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in (reading or ShardReading(shard, config)).batches(["text"]):
            lines = pc.add(pc.count_substring(pc.fill_null(batch.rows["text"], ""), "\n"), 1).cast(pa.int64())
            yield pa.RecordBatch.from_arrays([batch.rows["chunk_id"], lines], schema=SCHEMA)
            progress(len(batch))

    return storage.write_output(url, key, SCHEMA, counted())
