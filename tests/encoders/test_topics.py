"""Topics: the same for any order, batch and workers, kept by a refresh, named by what tells them apart."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from datamask import storage
from datamask.config import load_config
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.read import read_documents
from datamask.corpus.shards import plan_shards
from datamask.encoders import topics
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.embed import embed_shard
from datamask.encoders.topics import can_name, label_topics, name_topics, naming_words, nearest
from datamask.maps import Threads
from datamask.report.findings import remark
from datamask.stages import ShardFiles
from tests.flows.conftest import SMALL, TOPICS, write_shard

KINDS = 4  # of made-up documents, a source each


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """(files of three shards of 120 rows, settings, work): each document is of one of four kinds."""
    folder = tmp_path_factory.mktemp("topics")
    for number in range(3):
        write_shard(folder / "corpus", number, count=120)
    settings = [f"corpus.input=[{folder / 'corpus'}]", *SMALL, f"topics.count={KINDS}"]
    config, work = load_config(overrides=settings), str(folder / "work")
    shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
    encoder = prepare_encoder(shards, config, work)
    found = []
    for shard in shards:
        files = ShardFiles(shard)
        files = replace(files, index=index_shard(shard, encoder, config, work))
        found.append(replace(files, embeddings=embed_shard(files, encoder, config, work)))
    return found, config, work


def bytes_of(outputs):
    return [storage.filesystem(output.path)[0].cat(output.path) for output in outputs]


def test_a_topic_is_of_every_document_and_of_one_kind(embedded):
    all_files, config, work = embedded
    outputs = label_topics(all_files, config, work)
    pairs = Counter()
    for files, output in zip(all_files, outputs, strict=True):
        files = replace(files, topics=output)
        for batch in read_documents(files, config, ["source", "topic"]):
            pairs.update(zip(batch["source"].to_pylist(), batch["topic"].to_pylist(), strict=True))
        assert output.rows == files.embeddings.rows
    of = {source: max((n, topic) for (own, topic), n in pairs.items() if own == source) for source in TOPICS}
    assert len({topic for _, topic in of.values()}) == KINDS
    assert sum(n for n, _ in of.values()) > 0.75 * pairs.total()  # one text in eleven repeats one of another kind
    assert all(set(topic.split()) <= set(TOPICS[source].split()) for source, (_, topic) in of.items())


def test_neither_order_nor_workers_matter(embedded, tmp_path, monkeypatch):
    all_files, config, work = embedded
    expected = bytes_of(label_topics(all_files, config, work))
    monkeypatch.setattr(topics, "BLOCK", 7)
    others = label_topics(all_files[::-1], config, str(tmp_path / "other"), maps=Threads(3))
    assert bytes_of(others[::-1]) == expected


def test_a_refresh_keeps_the_topics_of_old_documents(embedded, tmp_path):
    all_files, config, _ = embedded
    work = str(tmp_path / "work")
    before = label_topics(all_files[:2], config, work)
    after = label_topics(all_files, config, work, previous=before[0].facts["model"])
    assert [output.key for output in after[:2]] == [output.key for output in before]
    assert after[2].facts == before[0].facts
    fitted = label_topics(all_files, config, work)
    assert fitted[0].facts["model"] != before[0].facts["model"]


def test_a_model_that_is_gone_is_fitted_again(embedded, tmp_path):
    all_files, config, _ = embedded
    found = label_topics(all_files, config, str(tmp_path / "work"), previous="0" * 16)
    assert found[0].facts["model"] != "0" * 16


def test_the_nearest_centroid_is_numpys():
    generator = np.random.default_rng(3)
    vectors, centroids = generator.standard_normal((500, 8)), generator.standard_normal((9, 8)).astype(np.float32)
    distances = ((vectors.astype(np.float32)[:, None] - centroids) ** 2).sum(2) - (centroids**2).sum(1)
    assert np.array_equal(nearest(vectors, centroids), distances.argmin(1))


def test_names_tell_topics_apart_in_any_script():
    texts = ["the court and the judge"] * 5 + ["the enzyme and the gene"] * 5 + ["法院审理了这个案件"] * 5
    names = name_topics(texts, np.repeat([0, 1, 2], 5), 3)
    assert {"court", "judge"} <= set(names[0].split()) and {"enzyme", "gene"} <= set(names[1].split())
    assert any(pair in names[2] for pair in ("法院", "案件", "审理", "院审", "理了"))


def test_names_differ_though_the_words_do_not():
    names = name_topics(["one and the same text"] * 8, np.repeat([0, 1], 4), 2)
    assert len(set(names)) == 2 and name_topics([], np.zeros(0, int), 2) == ["0", "1"]
    with np.errstate(all="raise"):
        assert name_topics(["word"] * 4, np.repeat([0, 1], 2), 2) == ["0", "1"]


@pytest.mark.parametrize("text, words", [("A B12 it the Zürich", {"the", "zürich"}), ("東京 ab", {"東京"})])
def test_words_of_a_name(text, words):
    assert {word for word in naming_words(text) if can_name(word)} == words


def test_what_is_no_good_group_is_remarked():
    good = {"cosine": 0.3, "language": "en", "language_share": 0.9}
    assert remark(good) == ""
    assert "one point" in remark(good | {"cosine": 0.97})
    assert "mixes languages (en has 31" in remark(good | {"language_share": 0.31})
    point = torch.nn.functional.normalize(torch.ones(40, 4) + 1e-3 * torch.rand(40, 4))
    assert topics._described(point, ["en"] * 40)[1] > 0.99


def test_the_model_is_a_table_that_others_can_read(embedded):
    all_files, config, work = embedded
    model = label_topics(all_files, config, work)[0].facts["model"]
    table = pq.read_table(topics.model_path(work, model))
    assert table.schema.names == topics.MODEL.names and table.num_rows == KINDS
    assert np.allclose(np.linalg.norm(np.array(table["centroid"].to_pylist()), axis=1), 1, atol=1e-5)
