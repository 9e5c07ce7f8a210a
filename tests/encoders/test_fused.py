"""Vector and educational score from one forward pass, equal to what the two separate models give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from datamask import storage
from datamask.config import validate
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.embed import SCORE, embed_shard
from datamask.errors import ConfigError, ModelError
from datamask.quality import prepare_quality, score_shard
from tests.encoders.conftest import Corpus, sentences, settings

Make = Callable[..., Corpus]


def test_both_outputs_equal_the_separate_models_in_one_pass(
    make_corpus: Make, edu: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder_folder, classifier_folder = edu
    texts = [*sentences(70), "word " * 300]
    corpus = make_corpus(texts)
    config = settings(model=str(encoder_folder), quality_head=str(classifier_folder), dtype="float32", batch_tokens=512)
    encoder = prepare_encoder([corpus.shard], config, corpus.work)

    passes: list[tuple[int, int]] = []
    forward = BertLayer.forward

    def count(self: BertLayer, hidden_states: torch.Tensor, *args: object, **kwargs: object) -> object:
        passes.append(tuple(hidden_states.shape[:2]))
        return forward(self, hidden_states, *args, **kwargs)

    monkeypatch.setattr(BertLayer, "forward", count)
    output = embed_shard(corpus.files, encoder, config, corpus.work)
    layers = 2
    assert sum(rows for rows, _ in passes) == layers * len(texts), "each layer sees each text once"
    monkeypatch.undo()

    table = storage.read_table(output.path)
    vectors = np.stack(table["feature_arr"].to_pylist()).astype(np.float32)
    expected = SentenceTransformer(str(encoder_folder), device="cpu").encode(texts)
    assert np.abs(vectors - expected).max() < 1e-3

    classifier = AutoModelForSequenceClassification.from_pretrained(classifier_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(classifier_folder)
    inputs = tokenizer(texts, truncation=True, max_length=128, padding=True, return_tensors="pt")
    with torch.inference_mode():
        scores = classifier(**inputs).logits[:, 0].numpy()
    assert np.std(scores) > 0.05
    assert np.abs(table[SCORE].to_numpy() - scores).max() < 1e-4


def test_the_quality_stage_takes_the_score(make_corpus: Make, edu: tuple[Path, Path]) -> None:
    corpus = make_corpus(sentences(40))
    scorer = {"kind": "encoder", "name": "edu"}
    encoder_settings = settings(model=str(edu[0]), quality_head=str(edu[1])).encoder.model_dump()
    config = validate({"encoder": encoder_settings, "quality": {"scorers": [scorer]}})
    encoder = prepare_encoder([corpus.shard], config, corpus.work)
    embeddings = embed_shard(corpus.files, encoder, config, corpus.work)
    quality = prepare_quality([corpus.shard], encoder, config, corpus.work)
    files = replace(corpus.files, embeddings=embeddings)
    scores = score_shard(files, quality, encoder, config, corpus.work)
    expected = storage.read_table(embeddings.path)[SCORE].to_numpy()
    assert np.array_equal(storage.read_table(scores.path)["quality_score"].to_numpy(), expected)


def test_without_a_head_there_is_no_score_column(make_corpus: Make, edu: tuple[Path, Path]) -> None:
    corpus = make_corpus(sentences(5))
    config = settings(model=str(edu[0]))
    output = embed_shard(corpus.files, prepare_encoder([corpus.shard], config, corpus.work), config, corpus.work)
    assert storage.read_table(output.path).column_names == ["chunk_id", "feature_arr"]


def test_a_classifier_with_another_body_is_refused(make_corpus: Make, edu: tuple[Path, Path], bert: Path) -> None:
    corpus = make_corpus(sentences(5))
    with pytest.raises(ModelError, match=r"not trained on a frozen .*embeddings.word_embeddings.weight differs"):
        prepare_encoder([corpus.shard], settings(model=str(bert), quality_head=str(edu[1])), corpus.work)


def test_a_classifier_of_many_labels_is_refused(make_corpus: Make, edu: tuple[Path, Path], tmp_path: Path) -> None:
    classifier = BertForSequenceClassification.from_pretrained(edu[1], num_labels=5, ignore_mismatched_sizes=True)
    classifier.save_pretrained(tmp_path / "five")
    AutoTokenizer.from_pretrained(edu[1]).save_pretrained(tmp_path / "five")
    corpus = make_corpus(sentences(5))
    with pytest.raises(ModelError, match="has 5 labels"):
        prepare_encoder([corpus.shard], settings(model=str(edu[0]), quality_head=str(tmp_path / "five")), corpus.work)


def test_a_head_needs_a_transformer(make_corpus: Make, edu: tuple[Path, Path]) -> None:
    corpus = make_corpus(sentences(5))
    with pytest.raises(ConfigError, match="quality_head needs a transformer"):
        prepare_encoder([corpus.shard], settings(model="static", quality_head=str(edu[1])), corpus.work)
