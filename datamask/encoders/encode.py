"""Texts to vectors of unit length: tokenise (any thread), then compute (one batch at a time per model).

encoder = load_encoder(ref)
encoded = encoder.compute(encoder.tokenise(texts), batch_tokens=16_384)
encoded.vectors          # float32 [texts, dimensions]
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer
from transformers import PreTrainedTokenizerFast

from datamask.devices import pick_device
from datamask.encoders.batching import Batcher, cut, special_tokens
from datamask.encoders.load import MODELS, loading
from datamask.encoders.ref import EncoderRef
from datamask.encoders.tokens import DocumentTokenizer, Windows, clean
from datamask.errors import ModelError
from datamask.stages import Progress, silent

STATIC_TOKENS = 1 << 18  # looked up at a time by a static encoder, which needs no small batches


@dataclass(frozen=True)
class Encoded:
    """What an encoder makes of some texts; NaN where the model's output was."""

    vectors: np.ndarray  # float32 [texts, dimensions], rows of unit length
    scores: np.ndarray | None = None  # float32 [texts], of encoder.quality_head


class Encoder(Protocol):
    """The seam where models are loaded: what is downstream needs these two calls alone."""

    def tokenise(self, texts: Sequence[str]) -> Any:
        """What `compute` needs of the texts; safe to call from any thread."""

    def compute(self, tokenised: Any, batch_tokens: int, progress: Progress = silent) -> Encoded:
        """Vectors (and scores) of tokenised texts, in their order. Batches hold at most `batch_tokens` tokens."""


# ---------------------------------------------------------------- loading


def load_encoder(ref: EncoderRef, device: str = "auto", model: SentenceTransformer | None = None) -> Encoder:
    """The encoder of `ref`, loaded once per process.

    :param model: of `load_model`, where the caller has it already
    :raises ModelError: it is missing, broken, or its size does not fit `ref.dimensions`.
    """
    chosen = pick_device(device)
    return MODELS.get((ref.fingerprint, chosen), lambda: _wrap(model or load_model(ref, chosen), ref))


def _wrap(model: SentenceTransformer, ref: EncoderRef) -> Encoder:
    first = model[0]
    plain = isinstance(first, Transformer) and "message" not in first.modality_config
    plain = (
        plain and isinstance(first.tokenizer, PreTrainedTokenizerFast) and special_tokens(first.tokenizer) is not None
    )
    if ref.quality_head:
        from datamask.encoders.fused import FusedEncoder

        if not plain or ref.backend != "torch":
            raise ModelError(
                f"encoder.quality_head needs a plain transformer on the torch backend, not {ref.name} on {ref.backend}"
            )
        return FusedEncoder(model, ref)
    if plain:
        return TransformerEncoder(model, ref)
    return StaticEncoder(model, ref) if isinstance(first, StaticEmbedding) else WholeEncoder(model, ref)


def load_model(ref: EncoderRef, device: torch.device) -> SentenceTransformer:
    """The sentence-transformers model of `ref`, on `device`, in `ref.dtype`.

    :raises ModelError: see `load_encoder`.
    """
    from datamask.encoders.prepare import local_folder

    path = local_folder(ref.path) if ref.kind == "static" else ref.path
    with loading("encoder", ref.path, ref.revision):
        model = SentenceTransformer(
            path,
            device=str(device),
            revision=ref.revision,
            trust_remote_code=ref.trust_remote_code,
            backend=ref.backend,
            model_kwargs={"dtype": getattr(torch, ref.dtype)} if ref.backend == "torch" else {},
        )
    model.eval()
    size = model.get_embedding_dimension()
    if size is not None and size < ref.dimensions:
        raise ModelError(
            f"encoder {ref.name} makes vectors of {size} dimensions, encoder.dimensions is {ref.dimensions}; "
            f"set encoder.dimensions={size} or choose a larger model"
        )
    return model


# ---------------------------------------------------------------- kinds of model


class StaticEncoder:
    """A StaticEmbedding: the mean of the vectors of a window's tokens."""

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        first: Any = model[0]
        self._embedding: torch.nn.EmbeddingBag = first.embedding
        self._rest = list(model)[1:]
        self._tokenizer = DocumentTokenizer(first.tokenizer)
        self._ref = ref
        self._lock = threading.Lock()

    def tokenise(self, texts: Sequence[str]) -> Windows:
        if self._ref.prompt:
            texts = [self._ref.prompt + text for text in texts]
        if self._ref.long_documents == "first":
            return Windows(*self._tokenizer.first(texts, self._ref.max_length), np.arange(len(texts)), len(texts))
        return cut(*self._tokenizer.all(texts), self._ref.max_length, np.zeros(0, np.int32))

    @torch.inference_mode()
    def compute(self, tokenised: Windows, batch_tokens: int, progress: Progress = silent) -> Encoded:
        found = torch.zeros(len(tokenised.lengths), self._embedding.embedding_dim)
        device = self._embedding.weight.device
        ends = np.cumsum(tokenised.lengths)
        first = begin = 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, begin + STATIC_TOKENS, side="right")))
            ids = torch.from_numpy(tokenised.ids[begin : ends[last - 1]].astype(np.int64)).to(device)
            offsets = torch.from_numpy(tokenised.starts[first:last] - begin).to(device)
            with self._lock:
                bags = run_modules(self._rest, {"sentence_embedding": self._embedding(ids, offsets)})
            found[first:last] = bags.float().cpu()
            progress(finished(tokenised, np.arange(first, last)))
            first, begin = last, int(ends[last - 1])
        return Encoded(merge_vectors(found, tokenised, self._ref.dimensions))


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

    def tokenise(self, texts: Sequence[str]) -> Windows:
        return self._batcher.windows(texts, self._ref.long_documents)

    @torch.inference_mode()
    def compute(self, tokenised: Windows, batch_tokens: int, progress: Progress = silent) -> Encoded:
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
        return [clean(text) for text in texts]

    def compute(self, tokenised: list[str], batch_tokens: int, progress: Progress = silent) -> Encoded:
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
        windows = Windows(np.zeros(0, np.int32), each, each, len(tokenised))
        return Encoded(merge_vectors(found.float().cpu().reshape(len(tokenised), -1), windows, self._ref.dimensions))


# ---------------------------------------------------------------- windows to documents


def run_modules(modules: Sequence[torch.nn.Module], features: dict[str, Any]) -> torch.Tensor:
    """The sentence_embedding [rows, dimensions] that the later modules of a model make of `features`."""
    for module in modules:
        features = module(features)
    return features["sentence_embedding"]


def finished(windows: Windows, rows: np.ndarray) -> int:
    """How many documents' last windows are among `rows`."""
    following = np.append(windows.owners[1:], -1)
    return int((windows.owners[rows] != following[rows]).sum())


def merge_vectors(vectors: torch.Tensor, windows: Windows, dimensions: int) -> np.ndarray:
    """float32 [documents, dimensions] of unit length: truncated, and the mean over a document's windows.

    A text without any token gets the same direction as any other such text, so that every row has unit length.
    """
    vectors = torch.nn.functional.normalize(vectors[:, :dimensions], dim=1)
    if len(windows.owners) != windows.documents:
        summed = torch.zeros(windows.documents, dimensions)
        vectors = torch.nn.functional.normalize(summed.index_add_(0, torch.from_numpy(windows.owners), vectors), dim=1)
    vectors[(vectors == 0).all(dim=1)] = dimensions**-0.5
    return vectors.numpy()


def merge_scores(scores: np.ndarray, windows: Windows) -> np.ndarray:
    """float32 [documents]: the mean over a document's windows."""
    summed = np.bincount(windows.owners, scores, windows.documents)
    return (summed / np.bincount(windows.owners, minlength=windows.documents)).astype(np.float32)
