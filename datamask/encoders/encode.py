"""Texts to vectors of unit length: tokenise (any thread), then compute (one thread at a time per model).

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

from datamask.encoders.batching import batches, pad, padded
from datamask.encoders.load import MODELS, loading, pick_device
from datamask.encoders.ref import EncoderRef
from datamask.encoders.tokens import DocumentTokenizer, Windows, clean
from datamask.errors import ModelError
from datamask.stages import Progress, silent


@dataclass(frozen=True)
class Encoded:
    """What an encoder makes of some texts."""

    vectors: np.ndarray  # float32 [texts, dimensions], rows of unit length; a row is NaN where the model's output was
    scores: np.ndarray | None = None  # float32 [texts], of encoder.quality_head


class Encoder(Protocol):
    """The seam where models are loaded: everything downstream needs these two calls alone."""

    def tokenise(self, texts: Sequence[str]) -> Any:
        """What `compute` needs of the texts; safe to call from any thread."""

    def compute(self, tokenised: Any, batch_tokens: int, progress: Progress = silent) -> Encoded:
        """Vectors (and scores) of tokenised texts, in their order."""


def load_encoder(ref: EncoderRef, device: str = "auto") -> Encoder:
    """The encoder of `ref`, loaded once per process.

    :raises ModelError: it is missing, broken, or its size does not fit `ref.dimensions`.
    """
    device = pick_device(device)
    return MODELS.get((ref.fingerprint, device), lambda: _load(ref, device))


def _load(ref: EncoderRef, device: str) -> Encoder:
    model = load_model(ref, device)
    first = model[0]
    if isinstance(first, StaticEmbedding):
        return StaticEncoder(model, ref)
    if isinstance(first, Transformer) and TransformerEncoder.fits(first):
        return TransformerEncoder(model, ref)
    return WholeEncoder(model, ref)


def load_model(ref: EncoderRef, device: str) -> SentenceTransformer:
    """The sentence-transformers model of `ref`.

    :raises ModelError: see `load_encoder`.
    """
    options: dict[str, Any] = {}
    if ref.backend == "torch":
        options = {"dtype": getattr(torch, ref.dtype)}
    with loading("encoder", ref.path, ref.revision):
        model = SentenceTransformer(
            ref.path,
            device=device,
            revision=ref.revision,
            trust_remote_code=ref.trust_remote_code,
            backend=ref.backend,
            model_kwargs=options,
        )
    model.eval()
    size = model.get_embedding_dimension()
    if size is not None and size < ref.dimensions:
        raise ModelError(
            f"encoder {ref.name} makes vectors of {size} dimensions, encoder.dimensions is {ref.dimensions}; "
            f"set encoder.dimensions={size} or choose a larger model"
        )
    return model


class StaticEncoder:
    """A StaticEmbedding: the mean of the vectors of a window's tokens."""

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        self._embedding = model[0].embedding
        self._rest = list(model)[1:]
        self._tokenizer = DocumentTokenizer(model[0].tokenizer)
        self._ref = ref
        self._lock = threading.Lock()

    def tokenise(self, texts: Sequence[str]) -> Windows:
        if self._ref.prompt:
            texts = [self._ref.prompt + text for text in texts]
        if self._ref.long_documents == "first":
            ids, lengths = self._tokenizer.first(texts, self._ref.max_length)
            return Windows(ids, lengths, np.arange(len(texts)), len(texts))
        ids, lengths = self._tokenizer.all(texts)
        return _cut(ids, lengths, self._ref.max_length)

    @torch.inference_mode()
    def compute(self, windows: Windows, batch_tokens: int, progress: Progress = silent) -> Encoded:
        parts = []
        device = self._embedding.weight.device
        with self._lock:
            for first, last in _runs(windows.lengths, max(batch_tokens, 1 << 18)):
                begin = int(windows.starts[first]) if first < len(windows.lengths) else 0
                lengths = windows.lengths[first:last]
                ids = windows.ids[begin : begin + int(lengths.sum())]
                offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[:-1])])
                bags = self._embedding(torch.from_numpy(ids).to(device, torch.int64), torch.from_numpy(offsets).to(device))
                parts.append(_rest(self._rest, {"sentence_embedding": bags}))
                progress(_documents(windows, np.arange(first, last)))
        vectors = torch.cat(parts) if parts else torch.zeros(0, self._ref.dimensions)
        return Encoded(_merge(vectors.float().cpu(), windows, self._ref.dimensions))


class TransformerEncoder:
    """A transformer with its pooling: token ids go straight into batches of equal length, nothing is tokenised twice."""

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        self._model = model
        self._ref = ref
        self._lock = threading.Lock()
        tokenizer = model.tokenizer
        self._tokenizer = DocumentTokenizer(tokenizer.backend_tokenizer)
        self._pad_id = tokenizer.pad_token_id or 0
        self._left = tokenizer.padding_side == "left"
        self._begin, self._end = special_tokens(tokenizer)
        self._limit = min(ref.max_length, model.max_seq_length or ref.max_length)
        self._features: dict[str, Any] = {}
        self._prompt_ids = np.zeros(0, np.int32)
        if ref.prompt:
            length = model.preprocess(["text"], prompt=ref.prompt).get("prompt_length")
            if length is not None:
                self._features["prompt_length"] = length
            self._prompt_ids = self._tokenizer.all([ref.prompt.rstrip()])[0]
        room = self._limit - len(self._begin) - len(self._end)
        if room - len(self._prompt_ids) < 1:
            raise ModelError(
                f"encoder {ref.name}: the prompt {ref.prompt!r} and the special tokens fill the window of {self._limit} tokens; "
                f"raise encoder.max_length or shorten encoder.prompt"
            )
        self._room = room

    @staticmethod
    def fits(first: Transformer) -> bool:
        """True for a text encoder with a fast tokenizer that puts fixed special tokens around a text."""
        tokenizer = first.tokenizer
        plain = isinstance(tokenizer, PreTrainedTokenizerFast) and "message" not in first.modality_config
        return plain and special_tokens(tokenizer) is not None

    def tokenise(self, texts: Sequence[str]) -> Windows:
        prompted = [self._ref.prompt + text for text in texts] if self._ref.prompt else texts
        if self._ref.long_documents == "first":
            ids, lengths = self._tokenizer.first(prompted, self._room)
            windows = Windows(ids, lengths, np.arange(len(texts)), len(texts))
        else:
            ids, lengths = self._tokenizer.all(prompted)
            windows = _cut(ids, lengths, self._room, self._prompt_ids)
        return windows

    def compute(self, windows: Windows, batch_tokens: int, progress: Progress = silent) -> Encoded:
        lengths = windows.lengths + len(self._begin) + len(self._end)
        starts = windows.starts
        vectors = torch.zeros(len(lengths), self._ref.dimensions)
        for batch in batches(lengths, batch_tokens, self._limit):
            width = padded(int(lengths[batch[0]]), self._limit)
            rows = [
                np.concatenate([self._begin, windows.ids[starts[i] : starts[i] + windows.lengths[i]], self._end]) for i in batch
            ]
            ids, mask = pad(rows, width, self._pad_id, self._left)
            with self._lock:
                vectors[torch.from_numpy(batch)] = self._forward(ids, mask)
            progress(_documents(windows, batch))
        return Encoded(_merge(vectors, windows, self._ref.dimensions))

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """float32 [rows, dimensions] of input_ids and attention_mask [rows, width]."""
        device = self._model.device
        features = {"input_ids": ids.to(device), "attention_mask": mask.to(device), **self._features}
        found = self._model(features)["sentence_embedding"].float()[:, : self._ref.dimensions]
        return torch.nn.functional.normalize(found, dim=1).cpu()


class WholeEncoder:
    """Any other sentence-transformers model, by its own `encode`: slower, never refused."""

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        self._model = model
        self._ref = ref
        self._lock = threading.Lock()
        if model.max_seq_length is not None:
            model.max_seq_length = min(ref.max_length, model.max_seq_length)

    def tokenise(self, texts: Sequence[str]) -> list[str]:
        return [clean(text) for text in texts]

    def compute(self, texts: list[str], batch_tokens: int, progress: Progress = silent) -> Encoded:
        with self._lock:
            found = self._model.encode(
                texts,
                batch_size=max(1, batch_tokens // self._ref.max_length),
                prompt=self._ref.prompt or None,
                truncate_dim=self._ref.dimensions,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
        progress(len(texts))
        vectors = found.float().cpu() if len(texts) else torch.zeros(0, self._ref.dimensions)
        each = np.arange(len(texts))
        return Encoded(_merge(vectors, Windows(np.zeros(0, np.int32), each, each, len(texts)), self._ref.dimensions))


def special_tokens(tokenizer: PreTrainedTokenizerFast) -> tuple[np.ndarray, np.ndarray] | None:
    """The ids a tokenizer puts before and after every text, or None if it does something else."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    full = tokenizer.encode("a", add_special_tokens=True)
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return np.array(full[:at], np.int32), np.array(full[at + len(bare) :], np.int32)
    return None


def _cut(ids: np.ndarray, lengths: np.ndarray, room: int, prompt: np.ndarray | None = None) -> Windows:
    """Windows of at most `room` tokens; each after a document's first begins with the prompt again."""
    prompt = np.zeros(0, np.int32) if prompt is None else prompt
    step = room - len(prompt)
    more = np.maximum(lengths - room, 0)
    counts = 1 + -(-more // step)
    if not len(prompt):
        owners = np.repeat(np.arange(len(lengths)), counts)
        number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return Windows(ids, np.minimum(lengths[owners] - number * room, room), owners, len(lengths))
    pieces, sizes, owners_list = [], [], []
    start = 0
    for document, length in enumerate(lengths):
        whole = ids[start : start + length]
        start += length
        for first in [0, *range(room, int(length), step)]:
            piece = whole[:room] if first == 0 else np.concatenate([prompt, whole[first : first + step]])
            pieces.append(piece)
            sizes.append(len(piece))
            owners_list.append(document)
    joined = np.concatenate(pieces) if pieces else ids
    return Windows(joined, np.array(sizes, np.int64), np.array(owners_list, np.int64), len(lengths))


def _runs(lengths: np.ndarray, budget: int) -> list[tuple[int, int]]:
    """Runs [first, last) of consecutive windows of about `budget` tokens."""
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends, np.arange(budget, int(ends[-1]) + 1, budget)) + 1 if len(ends) else np.zeros(0, int)
    edges = np.unique(np.concatenate([[0], cuts, [len(lengths)]]))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _documents(windows: Windows, batch: np.ndarray) -> int:
    """How many documents' last windows are in a batch."""
    following = np.append(windows.owners[1:], -1)
    return int((windows.owners[batch] != following[batch]).sum())


def _rest(modules: list[torch.nn.Module], features: dict[str, torch.Tensor]) -> torch.Tensor:
    for module in modules:
        features = module(features)
    return features["sentence_embedding"]


def _merge(vectors: torch.Tensor, windows: Windows, dimensions: int) -> np.ndarray:
    """float32 [documents, dimensions] of unit length: truncated, and the mean over a document's windows.

    A text without any token gets the same direction as any other such text, so that every row has unit length.
    """
    vectors = torch.nn.functional.normalize(vectors[:, :dimensions], dim=1)
    if len(windows.owners) != windows.documents:
        summed = torch.zeros(windows.documents, dimensions)
        vectors = summed.index_add_(0, torch.from_numpy(windows.owners), vectors)
        vectors = torch.nn.functional.normalize(vectors, dim=1)
    vectors[(vectors == 0).all(dim=1)] = dimensions**-0.5
    return vectors.numpy()
