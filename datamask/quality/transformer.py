"""Scores by models of transformers: FineWeb-Edu's classifier or any regression or classification head, and ProX.

Long text is cut at `max_length` tokens, as the classifiers' makers do. Batches are the encoders': by token budget over
windows sorted by length.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from datamask import storage
from datamask.config import Config, ScorerSettings
from datamask.devices import pick_device, pick_dtype
from datamask.errors import ModelError, nearest
from datamask.models.batching import Batcher, name_padding, special_tokens, window_limit
from datamask.models.load import loading
from datamask.models.locate import locate
from datamask.models.tokens import DocumentTokenizer
from datamask.quality.documents import Documents, Scorer, Scores, plain_scores
from datamask.quality.quality_ref import ScorerRef

MAX_LENGTH = 512
# ProX
MAX_PROMPT = 2000  # tokens, as published
# Llama 2's chat template, which the published code applies whatever the model
BEFORE = "[INST] <<SYS>>\nYou are a helpful, respectful and honest assistant.\n<</SYS>>\n\n"
AFTER = " [/INST]"
KEEP, DROP = " keep_doc()", " drop_doc()"


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
        self._batcher: Batcher

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """float32 [rows], scores of input_ids and attention_mask [rows, width]."""
        raise NotImplementedError

    def _scored(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [texts]: what `_forward` gives of each."""
        windows = self._batcher.windows(texts)
        scores = np.zeros(len(texts), dtype=np.float32)
        for rows, ids, mask in self._batcher.batches(windows, self._budget):
            with self._lock:
                found = self._forward(ids.to(self._model.device), mask.to(self._model.device))
            scores[rows] = found.cpu().numpy()
        return scores


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
            raise ModelError(
                f"classifier {ref.path}: its tokenizer does more to a text than add tokens before and after it, "
                "so it cannot be cut to max_length; use a classifier with another tokenizer"
            )
        name_padding(tokenizer, model.config)
        self._batcher = Batcher(tokenizer, window_limit(ref.settings.max_length or MAX_LENGTH, tokenizer, model.config))
        self._class = _class(ref, model.config)
        self._sigmoid = model.config.problem_type == "multi_label_classification"
        self.signals = ("int_score",) if self._class is None else ()

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the regression value, with `int_score` in 0 to 5, or the class's probability."""
        scores = self._scored(documents.texts)
        if self._class is not None:
            return plain_scores(scores)
        return Scores(scores, np.rint(np.clip(scores, 0, 5))[:, None])

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(input_ids=ids, attention_mask=mask).logits.float()
        if self._class is None:
            return logits[:, 0]
        if self._sigmoid:
            return torch.sigmoid(logits[:, self._class])
        return torch.softmax(logits, dim=1)[:, self._class]


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


class ProxScorer(ModelScorer):
    """ProX, a small language model that writes `keep_doc()` or `drop_doc()` for a document; here, how sure it is (Zhou
    et al. 2024, arXiv 2409.17115; prompt and limits of its data_gen/tasks/apply_doc_refining.py). Nothing is rewritten.

    P(keep) / (P(keep) + P(drop)) in [0, 1]: of the first token in which the two programs differ, what they have in
    common standing in the prompt. One pass a document.

    The published code runs the model greedily and drops where "drop" is in the answer: a score of ½ is that border,
    for a model that writes nothing else. It cuts a long prompt at its end, the closing [/INST] with it; here the
    document is cut and the closing kept.

    :raises ModelError: the model is missing or broken, or its tokenizer cannot be used.
    """

    role, automatic = "ProX model", AutoModelForCausalLM

    def __init__(self, ref: ScorerRef, config: Config) -> None:
        super().__init__(ref, config)
        tokenizer, model = self._tokenizer, self._model
        ids, sizes = DocumentTokenizer(tokenizer.backend_tokenizer).all([BEFORE, AFTER + KEEP, AFTER + DROP])
        before, keep, drop = np.split(ids, np.cumsum(sizes)[:-1])
        if tokenizer.bos_token_id is not None:
            before = np.append(np.int32(tokenizer.bos_token_id), before)
        shared = next((at for at, (a, b) in enumerate(zip(keep, drop, strict=False)) if a != b), None)
        if shared is None:
            raise ModelError(f"ProX model {ref.path}: its tokenizer cannot tell keep_doc() from drop_doc()")
        self._choices = [int(keep[shared]), int(drop[shared])]
        positions = getattr(model.config, "max_position_embeddings", None) or MAX_PROMPT
        limit = min(ref.settings.max_length or MAX_PROMPT, positions)
        if limit <= len(before) + shared:
            raise ModelError(f"ProX model {ref.path}: the prompt fills all {limit} tokens; raise max_length")
        tokenizer.padding_side = "right"
        self._batcher = Batcher(tokenizer, limit, around=(before, keep[:shared]))

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`."""
        return plain_scores(self._scored([text.strip() for text in documents.texts]))

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        body = self._model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
        last = body.last_hidden_state[torch.arange(len(ids)), mask.sum(dim=1) - 1]  # [rows, hidden]
        choices = torch.tensor(self._choices, device=ids.device)
        logits = self._model.get_output_embeddings()(last).index_select(1, choices).float()
        return torch.softmax(logits, dim=1)[:, 0]
