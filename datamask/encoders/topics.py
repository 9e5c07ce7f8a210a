"""The stage `topics`: a topic of each document, which is the cluster of its vector, named by its words.

    outputs = label_topics(all_files, config, work)               # chunk_id, topic: a row per document
    outputs = label_topics(grown, config, work, previous=outputs[0].facts["model"])      # the same topics

The model is fitted once, on the documents whose texts have the least hashes: centroids by spherical k-means, names by
`name_topics`. It lies in work/topics/model-<key>.parquet, a row per topic. A refresh carries it on, so old documents
keep their topics and new ones get the nearest of these.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from scipy.sparse import csr_array

from datamask import storage
from datamask.config import Config
from datamask.corpus.read import TOPIC, documents_at
from datamask.encoders.clusters import SAMPLE, spherical_kmeans
from datamask.encoders.vectors import read_vectors
from datamask.errors import InputError
from datamask.maps import Mapper, groups, here
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles, required
from datamask.storage import Output
from datamask.text.language_groups import language_groups
from datamask.text.ngrams import word_bounds

SAMPLE_SHARDS = 2000  # looked at for the sample, in the order of a hash of their content
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
    identified = sorted(files.shard.beside.fingerprint for files in ordered if files.shard.beside)
    key = STAGES["topics"].key(config, embedded, *identified)
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
    if not len(sample):
        raise InputError("no document has a vector, so there are no topics; --set topics.make=off")
    count = max(1, min(wanted.count, len(sample) // LEAST))
    number, row, chunk_id = sample.T
    places = [(shards[n].shard.name, one) for n, one in zip(number, chunk_id.tolist(), strict=True)]
    corpus, named = [files.shard for files in shards], places[: NAMING * count]
    stated = documents_at(corpus, state.config, places, ["language"])
    languages = np.array([stated[place].get("language") for place in places], object)
    read = documents_at(corpus, state.config, named, ["text"])
    texts = [read[place]["text"][:CHARACTERS] for place in named]
    parts = [read_vectors(required(shards[n].embeddings).path)[row[number == n]] for n in np.unique(number)]
    vectors = np.concatenate(parts).astype(np.float32)[np.argsort(np.argsort(number, kind="stable"))]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    unit = torch.from_numpy(vectors)
    centroids = spherical_kmeans(unit, count, torch.Generator().manual_seed(wanted.seed)).numpy()
    topic = nearest(vectors, centroids)
    rows = [_described(unit[topic == n], languages[topic == n]) for n in range(count)]
    names = name_topics(texts, topic[: len(texts)], count)
    columns = [names, *map(list, zip(*rows, strict=True)), centroids.tolist()]
    storage.write_output(model_path(state.work, state.model), state.model, MODEL, [pa.table(columns, schema=MODEL)])


def assign_topics(state: TopicRun, shards: Sequence[ShardFiles]) -> list[Output]:
    """Publishes the topics of some shards' documents: each the name of the centroid nearest by cosine."""
    outputs = []
    for files in shards:
        embedded = required(files.embeddings)
        key = STAGES["topics"].key(None, state.model, embedded.key)
        url = storage.join(state.work, "topics", f"{files.shard.name}-{key}.parquet")
        if (found := storage.find_output(url, key)) is None:
            model = storage.read_table(model_path(state.work, state.model))
            topic = nearest(read_vectors(embedded.path), np.array(model["centroid"].to_pylist(), np.float32))
            chunk_id = storage.read_table(embedded.path, ["chunk_id"])["chunk_id"]
            table = pa.table([chunk_id, model["name"].take(pa.array(topic))], schema=TOPICS)
            facts = {"model": state.model, "topics": model.drop_columns(["centroid"]).to_pylist()}
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


def _draw(shards: Sequence[ShardFiles], size: int) -> np.ndarray:
    """(n, 3) int64: shard, place among its documents and chunk_id of those with the least hashes, the least first, each
    text once."""
    hashes, places = np.zeros(0, np.uint64), np.zeros((0, 3), np.int64)
    ordered = sorted(enumerate(shards), key=lambda item: storage.key(item[1].shard.fingerprint))
    for number, files in ordered[:SAMPLE_SHARDS]:
        index = storage.read_table(required(files.index).path, ["chunk_id", "text_hash", "reason"])
        index = index.filter(pc.is_null(index["reason"]))
        joined = b"".join(index["text_hash"].to_pylist())
        mine = np.frombuffer(joined, ">u8").reshape(-1, 2)[:, 0].astype(np.uint64)
        chunk_id = index["chunk_id"].to_numpy()
        rows = np.stack([np.full(len(chunk_id), number), np.arange(len(chunk_id)), chunk_id], axis=1)
        hashes, first = np.unique(np.append(hashes, mine), return_index=True)
        hashes, places = hashes[:size], np.concatenate([places, rows])[first[:size]]
    return places


# -- the topics' names: the words that tell each from the others, in whatever language its documents are
#
# A word is worth the z of its log-odds beside all other topics, with all documents' words as prior (Monroe, Colaresi &
# Quinn, Political Analysis 16, 2008), times a power of its residual idf: by how much fewer documents of its language
# hold it than would by chance, in bits (Church & Gale, VLC 1995). That is near 0 for the small words of any language,
# also where a topic has the whole language. Languages are told by letters (`language_groups`). In scripts without
# spaces, pairs of neighbouring characters are words.

CHARACTERS = 2000  # of a document that are read, from its beginning
WORDS = 3  # of a name
FEWEST = 3  # documents of a topic that hold a word of its name
PRIOR = 500.0  # words that the prior counts for
COMMON = 0.06  # share of the other topics' documents above which a word tells nothing
SHARPNESS = 1.3  # power of the residual idf: 2 prefers rare names, 0.5 small words; chosen by reading names
LEAST_IDF = 0.01  # bits of residual idf that every word counts for
ALIKE = 4  # letters from the start by which two words count as one: patient, patients
MARKUP = re.compile(r"(?<!\S)\S*[<>{}/\\=_@&|$^]\S*")  # what holds a sign of markup, an address, a formula or code


def name_topics(texts: Sequence[str], topic: np.ndarray, count: int) -> list[str]:
    """A name of each of `count` topics, no two alike. topic: (texts,) the topic of each text."""
    words, worth = _worth(texts, topic, count)
    names: list[str] = []
    for number in range(count):
        telling: list[str] = []
        for place in np.argsort(-worth[number], kind="stable"):
            if np.isneginf(worth[number, place]) or len(telling) == 4 * WORDS:
                break
            if not any(words[place][:ALIKE] == word[:ALIKE] for word in telling):
                telling.append(words[place])
        length = WORDS
        while (name := " ".join(telling[:length])) in names and length < len(telling):
            length += 1
        names.append(name if name and name not in names else f"{name} {number}".strip())
    return names


def naming_words(text: str) -> list[str]:
    """The words of a text of two characters or more, and pairs of those that are words alone, in lower case."""
    text = MARKUP.sub(" ", unicodedata.normalize("NFKC", text).lower())
    starts, ends = word_bounds(text)
    longer = ends - starts > 1
    paired = (ends[:-1] == starts[1:]) & ~longer[:-1] & ~longer[1:]
    firsts = np.concatenate([starts[longer], starts[:-1][paired]]).tolist()
    lasts = np.concatenate([ends[longer], ends[1:][paired]]).tolist()
    return [text[first:last] for first, last in zip(firsts, lasts, strict=True)]


def can_name(word: str) -> bool:
    """Whether a name may have this word: no digits, and three letters where they are Latin without accents."""
    return len(word) > 1 + word.isascii() and not any(map(str.isdigit, word))


def _worth(texts: Sequence[str], topic: np.ndarray, count: int) -> tuple[list[str], np.ndarray]:
    """The words that may name a topic, sorted, and what each is worth to it, (count, words); -inf: it may not."""
    found = [naming_words(text) for text in texts]
    coded = pa.array([word for own in found for word in own], pa.string()).dictionary_encode()
    every = np.array(coded.dictionary.to_pylist(), object)
    row = np.repeat(np.arange(len(texts)), list(map(len, found)))
    cell, often = np.unique(row * len(every) + coded.indices.to_numpy(), return_counts=True)
    row, column = np.divmod(cell, max(len(every), 1))
    documents = np.bincount(topic, minlength=count)[:, None]
    fewest = np.clip(documents, 1, FEWEST)
    held = np.bincount(column, minlength=len(every)) >= fewest.min()
    naming = np.flatnonzero(held & np.fromiter(map(can_name, every), bool, len(every)))
    if len(naming) < 2:  # one word tells no topic from another
        return [], np.empty((count, 0))
    naming = naming[np.argsort(every[naming])]
    words, place = every[naming].tolist(), np.full(len(every), -1)
    place[naming] = np.arange(len(naming))
    kept = place[column] >= 0
    row, column, often = row[kept], place[column[kept]], often[kept]

    languages = language_groups(texts, 0)[1]
    pair, of_pair = np.unique(languages[row] * len(words) + column, return_inverse=True)  # of a language and a word
    of_language, held = np.bincount(languages)[pair // len(words)], np.bincount(of_pair)
    rare = np.log2(of_language / held) + np.log2(-np.expm1(-np.bincount(of_pair, often) / of_language))

    def summed(values: np.ndarray) -> np.ndarray:
        """(count, words): the sums of the topics' documents."""
        return csr_array((values, (topic[row], column)), (count, len(words))).toarray()

    here = summed(np.ones(len(row)))
    bits = summed(rare.clip(0)[of_pair]) / np.maximum(here, 1)
    other, total = here.sum(0) - here, here.sum(1, keepdims=True)
    rest, prior = here.sum() - total, PRIOR * here.sum(0) / here.sum()
    odds = np.log((here + prior) / (total + PRIOR - here - prior)) - np.log(
        (other + prior) / (rest + PRIOR - other - prior)
    )
    z = odds / np.sqrt(1 / (here + prior) + 1 / (other + prior))
    may = (here >= fewest) & (other <= COMMON * (len(texts) - documents))
    return words, np.where(may, z * (bits + LEAST_IDF) ** SHARPNESS, -np.inf)
