"""Encoders and scorers on another device: a fake one that refuses to mix devices, and a GPU where there is one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from datamask.config import ScorerSettings, validate
from datamask.encoders.encode import StaticEncoder
from datamask.models.tokens import DocumentTokenizer
from datamask.quality import scorers
from datamask.quality.documents import Documents
from datamask.quality.scorers import load_scorer, pin_scorer
from tests.quality import models
from tests.selection.fake_device import Far, Mixed, fake_device

TEXTS = ["the proof of the lemma", "buy cheap shoes now", "a", "the lemma of the field and the definition " * 30]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


@pytest.fixture(autouse=True)
def forgotten():
    """Models that a test has moved are loaded anew by the next one."""
    yield
    scorers._LOADED._models.clear()


def move(model: torch.nn.Module) -> None:
    """Its parameters and buffers to the fake device."""
    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            for name, value in kept.items():
                if value is not None:
                    kept[name] = Far(value.data)  # type: ignore[assignment]


def built(kind: str, folder: Path) -> str:
    build = {"transformer": models.classifier, "prox": models.language_model}[kind]
    return str(build(folder / "model"))


def loaded(kind: str, model: str, device: str = "cpu"):
    config = validate({"encoder": {"dtype": "float32", "device": device}})
    return load_scorer(pin_scorer(ScorerSettings(kind=kind, model=model), config), config)


@pytest.mark.parametrize("kind", ["transformer", "prox"])
def test_scorers(kind, tmp_path):
    scorer = loaded(kind, built(kind, tmp_path))
    documents = Documents(np.arange(len(TEXTS)), TEXTS)
    here = scorer.score(documents).score
    scorer._forward = partial(type(scorer)._forward.__wrapped__, scorer)  # inference mode knows no such tensors
    with fake_device(), torch.no_grad():
        move(scorer._model)
        there = scorer.score(documents).score
        with pytest.raises(Mixed):
            scorer._model(input_ids=torch.ones(1, 4, dtype=torch.int64))
    assert here.tolist() == pytest.approx(there.tolist(), rel=1e-5, abs=1e-5)  # of scores of 2, rounded to 2e-7


def test_the_static_encoder():
    ref = SimpleNamespace(prompt="", long_documents="first", max_length=32, dimensions=16)
    tokenizer = models.word_pieces().backend_tokenizer
    weights = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    encoder = StaticEncoder(DocumentTokenizer(tokenizer), weights, [], ref)
    windows = encoder.tokenise(TEXTS)
    here = encoder.compute(windows, 1000).vectors
    with fake_device(), torch.no_grad():
        encoder._weights = Far(weights)
        there = StaticEncoder.compute.__wrapped__(encoder, windows, 1000).vectors
    assert np.array_equal(here, there)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["transformer", "prox"])
def test_scorers_on_a_gpu(kind, tmp_path):
    documents, model = Documents(np.arange(len(TEXTS)), TEXTS), built(kind, tmp_path)
    here = loaded(kind, model).score(documents).score
    there = loaded(kind, model, "cuda").score(documents).score
    assert here.tolist() == pytest.approx(there.tolist(), abs=1e-3)
