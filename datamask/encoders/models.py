"""Models of sentence-transformers: loaded, and run by token budget where they are plain transformers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from transformers import PreTrainedTokenizerBase

from datamask.encoders.encode import Encoded, finished, merge_scores, merge_vectors
from datamask.errors import ModelError
from datamask.models.batching import Batcher, name_padding, window_limit
from datamask.models.encoder_ref import EncoderRef
from datamask.models.load import loading
from datamask.models.tokens import TokenWindows, clean_text
from datamask.stages import Progress, silent


def load_model(ref: EncoderRef, device: torch.device) -> SentenceTransformer:
    """The sentence-transformers model of `ref`, on `device`, in `ref.dtype`.

    :raises ModelError: see `load_encoder`.
    """
    with loading("encoder", ref.path, ref.revision):
        model = SentenceTransformer(
            ref.path,
            device=str(device),
            revision=ref.revision,
            trust_remote_code=ref.trust_remote_code,
            backend=ref.backend,
            model_kwargs={"dtype": getattr(torch, ref.dtype)} if ref.backend == "torch" else {},
        )
    model.eval()
    first = model[0]
    if isinstance(first, Transformer) and isinstance(first.tokenizer, PreTrainedTokenizerBase):
        name_padding(first.tokenizer, first.model.config)
        first.max_seq_length = window_limit(first.max_seq_length or ref.max_length, first.tokenizer, first.model.config)
    size = model.get_embedding_dimension()
    if size is not None and size < ref.dimensions:
        raise ModelError(
            f"encoder {ref.name} makes vectors of {size} dimensions, encoder.dimensions is {ref.dimensions}; "
            f"set encoder.dimensions={size} or choose a larger model"
        )
    return model


class TransformerEncoder:
    """A transformer with its pooling: token ids go straight into batches, nothing is tokenised twice."""

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        self._model = model
        self._ref = ref
        self._lock = threading.Lock()
        self._batcher = Batcher(
            model.tokenizer, min(ref.max_length, model.max_seq_length or ref.max_length), ref.prompt
        )
        self._features: dict[str, Any] = {}  # for a pooling that leaves the prompt out
        if ref.prompt and (length := model.preprocess(["text"], prompt=ref.prompt).get("prompt_length")) is not None:
            self._features["prompt_length"] = length

    def tokenise(self, texts: Sequence[str]) -> TokenWindows:
        """The texts' tokens in windows of the encoder's length."""
        return self._batcher.windows(texts, self._ref.long_documents)

    @torch.inference_mode()
    def compute(self, tokenised: TokenWindows, batch_tokens: int, progress: Progress = silent) -> Encoded:
        """The embeddings of tokenised texts, and their scores if the model has a quality head."""
        vectors = torch.zeros(len(tokenised.lengths), self._ref.dimensions)
        scores: np.ndarray | None = None
        for rows, ids, mask in self._batcher.batches(tokenised, batch_tokens):
            with self._lock:
                found, scored = self._forward(ids.to(self._model.device), mask.to(self._model.device))
            vectors[torch.from_numpy(rows)] = found.float()[:, : self._ref.dimensions].cpu()
            if scored is not None:
                scores = np.zeros(len(tokenised.lengths), np.float32) if scores is None else scores
                scores[rows] = scored.float().cpu().numpy()
            progress(finished(tokenised, rows))
        merged = merge_vectors(vectors, tokenised, self._ref.dimensions)
        return Encoded(merged, None if scores is None else merge_scores(scores, tokenised))

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Embeddings [rows, dimensions of the model], and scores [rows] if there is a head, of one batch."""
        return self._model({"input_ids": ids, "attention_mask": mask, **self._features})["sentence_embedding"], None


class WholeEncoder:
    """Any other sentence-transformers model, by its own `encode`: slower, never refused."""

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        self._model = model
        self._ref = ref
        self._lock = threading.Lock()
        if ref.long_documents == "mean":
            raise ModelError(f"encoder {ref.name} cuts texts itself; set encoder.long_documents=first")
        if model.max_seq_length is not None:
            model.max_seq_length = min(ref.max_length, model.max_seq_length)

    def tokenise(self, texts: Sequence[str]) -> list[str]:
        """The cleaned texts; the model tokenises them itself."""
        return [clean_text(text) for text in texts]

    def compute(self, tokenised: list[str], batch_tokens: int, progress: Progress = silent) -> Encoded:
        """The embeddings of the texts."""
        with self._lock:
            found = self._model.encode(
                tokenised,
                batch_size=max(1, batch_tokens // self._ref.max_length),
                prompt=self._ref.prompt or None,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
        progress(len(tokenised))
        each = np.arange(len(tokenised))
        windows = TokenWindows(np.zeros(0, np.int32), each, each, len(tokenised))
        return Encoded(merge_vectors(found.float().cpu().reshape(len(tokenised), -1), windows, self._ref.dimensions))
