"""Transformer classifiers: FineWeb-Edu's, or any regression or classification head.

Long text is cut at `max_length` tokens, as the classifiers' makers do. Batches are the encoders': by token budget over
windows sorted by length.
"""

from __future__ import annotations

import threading
from typing import Any, Self

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from datamask import storage
from datamask.config import Config, ScorerSettings
from datamask.devices import pick_device, pick_dtype
from datamask.errors import ModelError, nearest
from datamask.models.batching import Batcher, name_padding, special_tokens, window_limit
from datamask.models.load import loading
from datamask.models.locate import locate
from datamask.quality.documents import Documents, Scorer, Scores
from datamask.quality.quality_ref import ScorerRef

MAX_LENGTH = 512


class ModelScorer(Scorer):
    """What scorers that run a model of transformers share: how it is pinned, loaded and kept.

    :raises ModelError: the model is missing or broken, or its tokenizer has no fast version.
    """

    role: str  # of the model, in messages
    automatic: Any  # the class of transformers that loads it

    @classmethod
    def pin(cls, settings: ScorerSettings, config: Config) -> ScorerRef:
        path, revision, fingerprint = locate(str(settings.model), settings.revision)
        dtype = pick_dtype(config.encoder.dtype, pick_device(config.encoder.device))
        key = storage.key(settings.kind, fingerprint, dtype, settings.label, settings.max_length)
        return ScorerRef(settings, path, revision, key, dtype)

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> Self:
        return cls(ref, config)

    def __init__(self, ref: ScorerRef, config: Config) -> None:
        device = pick_device(config.encoder.device)
        dtype = getattr(torch, ref.dtype or pick_dtype(config.encoder.dtype, device))
        options = {"revision": ref.revision, "trust_remote_code": config.encoder.trust_remote_code}
        with loading(self.role, ref.path, ref.revision):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(ref.path, **options)
            model = self.automatic.from_pretrained(ref.path, dtype=dtype, **options)
        if not isinstance(self._tokenizer, PreTrainedTokenizerFast):
            raise ModelError(f"{self.role} {ref.path}: its tokenizer has no fast version; save it with tokenizer.json")
        self._model = model.to(device).eval()
        self._budget = config.encoder.batch_tokens
        self._lock = threading.Lock()


class TransformerScorer(ModelScorer):
    """A regression head's output, with FineWeb-Edu's int_score (the score clipped to 0 … 5 and rounded) as a signal; or
    the probability of `label` of a classification head.

    :raises ModelError: it is missing or broken, its label is not named or not there, or its tokenizer cannot be used.
    """

    role, automatic = "classifier", AutoModelForSequenceClassification

    def __init__(self, ref: ScorerRef, config: Config) -> None:
        super().__init__(ref, config)
        tokenizer, model = self._tokenizer, self._model
        if special_tokens(tokenizer) is None:
            raise ModelError(f"classifier {ref.path}: its tokenizer has no fast version; save it with tokenizer.json")
        name_padding(tokenizer, model.config)
        self._batcher = Batcher(tokenizer, window_limit(ref.settings.max_length or MAX_LENGTH, tokenizer, model.config))
        self._class = _class(ref, model.config)
        self._sigmoid = model.config.problem_type == "multi_label_classification"
        self.signals = ("int_score",) if self._class is None else ()

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the regression value, with `int_score` in 0 to 5, or the class's probability."""
        windows = self._batcher.windows(documents.texts)
        scores = np.zeros(len(documents), dtype=np.float32)
        for rows, ids, mask in self._batcher.batches(windows, self._budget):
            scores[rows] = self._forward(ids, mask)
        if self._class is not None:
            return Scores(scores, np.zeros((len(scores), 0), dtype=np.float32))
        return Scores(scores, np.rint(np.clip(scores, 0, 5))[:, None])

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
        """float32 [rows] of input_ids and attention_mask [rows, width]."""
        device = self._model.device
        with self._lock:
            logits = self._model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits.float()
        if self._class is None:
            found = logits[:, 0]
        elif self._sigmoid:
            found = torch.sigmoid(logits[:, self._class])
        else:
            found = torch.softmax(logits, dim=1)[:, self._class]
        return found.cpu().numpy()


def _class(ref: ScorerRef, config: Any) -> int | None:
    """The index of the positive label; None: a regression head."""
    label = ref.settings.label
    labels = {str(name): int(index) for index, name in config.id2label.items()}
    if config.num_labels == 1:
        if label is not None and label not in labels:
            raise ModelError(f"scorer {ref.name}: {ref.path} has one output, a regression; leave label out")
        return None
    if label is None or label not in labels:
        asked = "label is not set" if label is None else f"no label {label!r}{nearest(label, labels)}"
        raise ModelError(f"scorer {ref.name}: {ref.path}: {asked} (its labels: {', '.join(labels)})")
    return labels[label]
