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

from datamask.models.encoder_ref import EncoderRef
from datamask.models.tokens import DocumentTokenizer, TokenWindows
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


# ---------------------------------------------------------------- token vectors


class StaticEncoder:
    """A StaticEmbedding: the mean of the vectors of a window's tokens."""

    def __init__(
        self, tokenizer: DocumentTokenizer, weights: torch.Tensor, rest: Sequence[torch.nn.Module], ref: EncoderRef
    ) -> None:
        """:param tokenizer: the words it has counted for the index it knows
        :param weights: [vocabulary, dimensions]
        :param rest: what the model does with the means"""
        self._weights = weights
        self._rest = rest
        self._tokenizer = tokenizer
        self._ref = ref
        self._lock = threading.Lock()

    def tokenise(self, texts: Sequence[str]) -> TokenWindows:
        """The texts' tokens in windows of the encoder's length."""
        return self._tokenizer.windows(texts, self._ref.max_length, self._ref.long_documents, self._ref.prompt)

    @torch.inference_mode()
    def compute(self, tokenised: TokenWindows, batch_tokens: int, progress: Progress = silent) -> Encoded:
        """The embeddings of tokenised texts."""
        found = torch.zeros(len(tokenised.lengths), self._weights.shape[1])
        device = self._weights.device
        ends = np.cumsum(tokenised.lengths)
        first = begin = 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, begin + STATIC_TOKENS, side="right")))
            ids = torch.from_numpy(tokenised.ids[begin : ends[last - 1]].astype(np.int64)).to(device)
            offsets = torch.from_numpy(tokenised.starts[first:last] - begin).to(device)
            with self._lock:
                means = torch.nn.functional.embedding_bag(ids, self._weights, offsets, mode="mean")
                bags = run_modules(self._rest, {"sentence_embedding": means})
            found[first:last] = bags.float().cpu()
            progress(finished(tokenised, np.arange(first, last)))
            first, begin = last, int(ends[last - 1])
        return Encoded(merge_vectors(found, tokenised, self._ref.dimensions))


# ---------------------------------------------------------------- windows to documents


def run_modules(modules: Sequence[torch.nn.Module], features: dict[str, Any]) -> torch.Tensor:
    """The sentence_embedding [rows, dimensions] that the later modules of a model make of `features`."""
    for module in modules:
        features = module(features)
    return features["sentence_embedding"]


def finished(windows: TokenWindows, rows: np.ndarray) -> int:
    """How many documents' last windows are among `rows`."""
    following = np.append(windows.owners[1:], -1)
    return int((windows.owners[rows] != following[rows]).sum())


def merge_vectors(vectors: torch.Tensor, windows: TokenWindows, dimensions: int) -> np.ndarray:
    """float32 [documents, dimensions] of unit length: truncated, and the mean over a document's windows.

    A text without any token gets the same direction as any other such text, so that every row has unit length.
    """
    vectors = torch.nn.functional.normalize(vectors[:, :dimensions], dim=1)
    if len(windows.owners) != windows.documents:
        summed = torch.zeros(windows.documents, dimensions)
        vectors = torch.nn.functional.normalize(summed.index_add_(0, torch.from_numpy(windows.owners), vectors), dim=1)
    vectors[(vectors == 0).all(dim=1)] = dimensions**-0.5
    return vectors.numpy()


def merge_scores(scores: np.ndarray, windows: TokenWindows) -> np.ndarray:
    """float32 [documents]: the mean over a document's windows."""
    summed = np.bincount(windows.owners, scores, windows.documents)
    return (summed / np.bincount(windows.owners, minlength=windows.documents)).astype(np.float32)
