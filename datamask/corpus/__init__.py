"""Stage 1, read: from files as they are to shards of documents, every row accounted for."""

from datamask.corpus.columns import FINEWEB
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.plan import FailedFile, Part, Plan, Shard
from datamask.corpus.quarantine import REASONS
from datamask.corpus.read import corpus_schema, read_batches, read_documents, sample_texts, shard_schema
from datamask.corpus.sample import sample_corpus
from datamask.corpus.shards import plan_shards
from datamask.text.text_hashes import normalise, text_hash

__all__ = [
    "FINEWEB",
    "REASONS",
    "FailedFile",
    "Part",
    "Plan",
    "Shard",
    "convert_shard",
    "corpus_schema",
    "index_shard",
    "normalise",
    "plan_shards",
    "read_batches",
    "read_documents",
    "sample_corpus",
    "sample_texts",
    "shard_schema",
    "text_hash",
]
