"""The stage `topics`: a topic of each document, which is the cluster of its vector, named by its words.

    outputs = label_topics(all_files, config, work)               # chunk_id, topic: a row per document
    outputs = label_topics(grown, config, work, previous=outputs[0].facts["model"])      # the same topics

The model is fitted once, on the documents whose texts have the least hashes: centroids by spherical k-means, names by
`topic_names`. It lies in work/topics/model-<key>.parquet, a row per topic. A refresh carries it on, so old documents
keep their topics and new ones get the nearest of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from datamask import storage
from datamask.config import Config
from datamask.corpus.read import TOPIC
from datamask.corpus.rows import corpus_rows
from datamask.errors import InputError
from datamask.maps import Mapper, groups, here
from datamask.pipeline import STAGES
from datamask.selection.near_duplicates import SAMPLE, spherical_kmeans
from datamask.selection.sharded.candidates import vectors_of
from datamask.selection.topic_names import CHARACTERS, name_topics
from datamask.stages import ShardFiles
from datamask.storage import Output

SAMPLE_ROWS = 200_000  # looked at for the sample, of shards in the order of a hash of their content
LEAST = 50  # documents of the sample to a topic, on average
NAMING = 64  # documents to a topic, on average, whose words are read
PAIRED = 200  # documents of a topic whose vectors are compared
BLOCK = 2048  # rows compared with the centroids at a time
TOPICS = pa.schema([("chunk_id", pa.int64()), (TOPIC, pa.string())])
MODEL = pa.schema(
    [
        ("name", pa.string()),
        ("documents", pa.int64()),  # of the sample
        ("cosine", pa.float32()),  # median of pairs of its documents; near 1: their vectors fall on one point
        ("language", pa.string()),  # most frequent of those that state one; null: none does
        ("language_share", pa.float32()),  # its share of these
        ("centroid", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True)
class TopicRun:
    """What the workers of a round are told."""

    config: Config
    work: str
    model: str  # the key of the model


def model_path(work: str, model: str) -> str:
    """The file of the model of this key."""
    return storage.join(work, "topics", f"model-{model}.parquet")


def label_topics(
    all_files: Sequence[ShardFiles], config: Config, work: str, previous: str = "", maps: Mapper = here
) -> list[Output]:
    """Publishes work/topics/<shard>-<key>.parquet of every shard: chunk_id, topic; a row per document, in order.

    Facts: `model`, its key, and `topics`, what it says of each but the centroid.

    :param previous: the key of a model to go on with, if it is still there.
    :param maps: who runs the rounds: the model is one item, then groups of shards.
    :raises InputError: a shard is not embedded, or no document is.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    if missing := [files.shard.name for files in ordered if files.embeddings is None]:
        raise InputError(f"shard {missing[0]} is not embedded, and topics are clusters of vectors")
    embedded = sorted(files.embeddings.key for files in ordered if files.embeddings)
    key = STAGES["topics"].key(config, embedded)
    if previous and storage.find_output(model_path(work, previous), previous):
        key = previous
    state = TopicRun(config, work, key)
    if not storage.find_output(model_path(work, key), key):
        maps(fit_topics, state, [tuple(ordered)], [0])
    items = [tuple(ordered[place] for place in group) for group in groups(ordered)]
    rows = [sum(files.shard.rows or 0 for files in item) for item in items]
    found = [output for group in maps(assign_topics, state, items, rows) for output in group]
    by_name = {files.shard.name: output for files, output in zip(ordered, found, strict=True)}
    return [by_name[files.shard.name] for files in all_files]


# ---------------------------------------------------------------- rounds


def fit_topics(state: TopicRun, shards: Sequence[ShardFiles]) -> None:
    """Publishes the model, fitted on a sample of these shards."""
    wanted = state.config.topics
    sample = _draw(shards, SAMPLE * wanted.count)
    if not sample.size:
        raise InputError("no document has a vector, so there are no topics; --set topics.make=off")
    vectors = torch.from_numpy(sample.vectors())
    count = max(1, min(wanted.count, len(vectors) // LEAST))
    centroids = spherical_kmeans(vectors, count, torch.Generator().manual_seed(wanted.seed)).numpy()
    topic = nearest(vectors.numpy(), centroids)
    languages = sample.column("language", state.config)
    texts = [text[:CHARACTERS] for text in sample.column("text", state.config, NAMING * count)]
    rows = [_described(vectors[topic == n], languages[topic == n]) for n in range(count)]
    names = name_topics(texts, topic[: len(texts)], count)
    columns = [names, *map(list, zip(*rows, strict=True)), centroids.tolist()]
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, MODEL, strict=True)], MODEL.names)
    storage.write_output(model_path(state.work, state.model), state.model, MODEL, [table.cast(MODEL)])


def assign_topics(state: TopicRun, shards: Sequence[ShardFiles]) -> list[Output]:
    """Publishes the topics of some shards' documents: each the name of the centroid nearest by cosine."""
    outputs = []
    model: pa.Table | None = None
    for files in shards:
        assert files.embeddings is not None
        key = STAGES["topics"].key(None, state.model, files.embeddings.key)
        url = storage.join(state.work, "topics", f"{files.shard.name}-{key}.parquet")
        if (found := storage.find_output(url, key)) is None:
            model = model or storage.read_table(model_path(state.work, state.model))
            centroids = np.array(model["centroid"].to_pylist(), np.float32)
            topic = nearest(vectors_of(files.embeddings.path), centroids)
            chunk_id = storage.read_table(files.embeddings.path, ["chunk_id"])["chunk_id"]
            table = pa.table([chunk_id, model["name"].take(pa.array(topic))], schema=TOPICS)
            described = model.drop_columns(["centroid"]).to_pylist()
            facts = {"model": state.model, "topics": described}
            found = storage.write_output(url, key, TOPICS, [table], partial(dict, facts))
        outputs.append(found)
    return outputs


def nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """(n,) int64: the centroid (of k, d) that each vector (n, d) has the greatest cosine with; ties: the first."""
    parts = [
        (vectors[start : start + BLOCK].astype(np.float32) @ centroids.T).argmax(axis=1)
        for start in range(0, len(vectors), BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _described(vectors: torch.Tensor, languages: Iterable[str | None]) -> tuple[int, float, str | None, float | None]:
    """The model's columns between name and centroid, of a topic's documents in the sample. vectors: (n, d)."""
    some = vectors[:PAIRED]
    pairs = (some @ some.T)[tuple(torch.triu_indices(len(some), len(some), 1))]
    stated = Counter(language for language in languages if language)
    language, most = min(stated.items(), key=lambda item: (-item[1], item[0])) if stated else (None, 0)
    share = most / stated.total() if stated else None
    return len(vectors), float(pairs.median()) if len(pairs) else 1.0, language, share


# ---------------------------------------------------------------- the sample


@dataclass(frozen=True, eq=False)
class _Sample:
    """The documents with the least hashes, the least first, each text once."""

    shards: Sequence[ShardFiles]
    shard: np.ndarray  # (n,) int64, of the shards
    place: np.ndarray  # (n,) int64, among the shard's documents
    chunk_id: np.ndarray  # (n,) int64

    @property
    def size(self) -> int:
        return len(self.shard)

    def vectors(self) -> np.ndarray:
        """(n, d) float32 of unit length."""
        found: np.ndarray | None = None
        for number, files in enumerate(self.shards):
            mine = np.flatnonzero(self.shard == number)
            if len(mine) and files.embeddings is not None:
                rows = vectors_of(files.embeddings.path)
                found = np.zeros((self.size, rows.shape[1]), np.float32) if found is None else found
                found[mine] = rows[self.place[mine]]
        assert found is not None
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    def column(self, name: str, config: Config, most: int | None = None) -> np.ndarray:
        """A column of the corpus, of the first `most` of them (n,) object; None where a shard has it not."""
        found = np.full(len(self.shard[:most]), None)
        for number, files in enumerate(self.shards):
            mine = np.flatnonzero(self.shard[:most] == number)
            rows = corpus_rows(files.shard, config, self.chunk_id[mine], [name])
            found[mine] = [row.get(name) for row in rows]
        return found


def _draw(shards: Sequence[ShardFiles], size: int) -> _Sample:
    hashes, places, seen = [], [], 0
    for number, files in sorted(enumerate(shards), key=lambda item: storage.key(item[1].shard.fingerprint)):
        if seen >= SAMPLE_ROWS:
            break
        assert files.index is not None
        index = storage.read_table(files.index.path, ["chunk_id", "text_hash", "reason"])
        index = index.filter(pc.is_null(index["reason"]))
        seen += index.num_rows
        joined = b"".join(index["text_hash"].to_pylist())
        hashes.append(np.frombuffer(joined, ">u8").reshape(-1, 2)[:, 0].astype(np.uint64))
        chunk_id = index["chunk_id"].to_numpy()
        places.append(np.stack([np.full(len(chunk_id), number), np.arange(len(chunk_id)), chunk_id]))
    _, first = np.unique(np.concatenate(hashes), return_index=True)
    return _Sample(shards, *np.concatenate(places, axis=1)[:, first[:size]])
