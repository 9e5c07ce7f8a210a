"""Models of sentence-transformers: loaded, and run by token budget where they are plain transformers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from datamask.encoders.encode import (
    Encoded,
    Encoder,
    StaticEncoder,
    finished,
    merge_scores,
    merge_vectors,
    run_modules,
)
from datamask.errors import ModelError
from datamask.models.batching import Batcher, name_padding, special_tokens, window_limit
from datamask.models.encoder_ref import EncoderRef
from datamask.models.load import loading
from datamask.models.tokens import NO_TOKENS, DocumentTokenizer, TokenWindows, clean_text
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


def encoder_of(model: SentenceTransformer, ref: EncoderRef) -> Encoder:
    """The encoder that runs a loaded model.

    :raises ModelError: the settings ask for what it cannot do.
    """
    first = model[0]
    plain = (
        isinstance(first, Transformer)
        and "message" not in first.modality_config
        and isinstance(first.tokenizer, PreTrainedTokenizerFast)
        and special_tokens(first.tokenizer) is not None
    )
    if ref.quality_head:
        if not plain or ref.backend != "torch":
            raise ModelError(
                f"encoder.quality_head needs a plain transformer on the torch backend, not {ref.name} on {ref.backend}"
            )
        return FusedEncoder(model, ref)
    if plain:
        return TransformerEncoder(model, ref)
    if isinstance(first, StaticEmbedding):
        return StaticEncoder(DocumentTokenizer(first.tokenizer), first.embedding.weight, list(model)[1:], ref)
    return WholeEncoder(model, ref)


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
        windows = TokenWindows(NO_TOKENS, each, each, len(tokenised))
        return Encoded(merge_vectors(found.float().cpu().reshape(len(tokenised), -1), windows, self._ref.dimensions))


# ---------------------------------------------------------------- vector and score from one forward pass


class FusedEncoder(TransformerEncoder):
    """A transformer encoder whose body also feeds the head of a sequence classifier trained on it, frozen.

    FineWeb-Edu's classifier is snowflake-arctic-embed-m with a regression head, its encoder frozen in training
    (model card of HuggingFaceFW/fineweb-edu-classifier), so its last hidden states are the encoder's own.

    The score is the logit of a regression head, or the probability of label 1 of a two-label classifier.

    :raises ModelError: the two bodies or tokenizers differ, so that one pass cannot stand for both.
    """

    def __init__(self, model: SentenceTransformer, ref: EncoderRef) -> None:
        super().__init__(model, ref)
        assert ref.quality_head is not None
        self._classifier = load_classifier(ref, str(model.device))
        body = model.transformers_model
        assert body is not None
        _same_body(body, self._classifier.base_model, ref)
        _same_tokenizer(model.tokenizer, ref)
        self._rest = list(model)[1:]
        self._hidden: torch.Tensor | None = None
        self._classifier.base_model.register_forward_hook(self._keep)
        model[0].model = self._classifier.base_model  # one copy of the weights

    def _keep(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self._hidden = output.last_hidden_state

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        logits = self._classifier(input_ids=ids, attention_mask=mask).logits.float()
        features = {"token_embeddings": self._hidden, "attention_mask": mask, **self._features}
        scores = logits[:, 0] if logits.shape[1] == 1 else torch.softmax(logits, dim=1)[:, 1]
        return run_modules(self._rest, features), scores


def load_classifier(ref: EncoderRef, device: str) -> Any:
    """The sequence classifier `ref.quality_head`, on `device`, in `ref.dtype`.

    :raises ModelError: it is missing, broken, or has more than two labels.
    """
    assert ref.quality_head is not None
    with loading("encoder.quality_head", ref.quality_head, ref.quality_head_revision):
        classifier = AutoModelForSequenceClassification.from_pretrained(
            ref.quality_head,
            revision=ref.quality_head_revision,
            trust_remote_code=ref.trust_remote_code,
            dtype=getattr(torch, ref.dtype),
        )
    if classifier.config.num_labels > 2:
        raise ModelError(
            f"encoder.quality_head {ref.quality_head} has {classifier.config.num_labels} labels; one output or "
            f"two labels are needed. Score with it apart: quality.scorers with kind: transformer and a label"
        )
    return classifier.to(device).eval()


def _same_body(encoder: torch.nn.Module, body: torch.nn.Module, ref: EncoderRef) -> None:
    """Checks that every weight but the pooler's, which only the classifier uses, is the same in both."""
    ours, theirs = encoder.state_dict(), body.state_dict()
    names = [name for name in {**ours, **theirs} if not name.startswith("pooler.")]
    for name in names:
        if name not in ours or name not in theirs or not torch.equal(ours[name], theirs[name]):
            raise ModelError(
                f"encoder.quality_head {ref.quality_head} was not trained on a frozen {ref.name}: {name} differs, so "
                f"one pass cannot give both. Score with it apart: quality.scorers with kind: transformer"
            )


def _same_tokenizer(tokenizer: Any, ref: EncoderRef) -> None:
    with loading("tokenizer of encoder.quality_head", str(ref.quality_head), ref.quality_head_revision):
        other = AutoTokenizer.from_pretrained(
            ref.quality_head, revision=ref.quality_head_revision, trust_remote_code=ref.trust_remote_code
        )
    probe = "Tokens of a Mixed-case text, naïve 漢字 😀 42."
    if other(probe)["input_ids"] != tokenizer(probe)["input_ids"]:
        raise ModelError(
            f"encoder.quality_head {ref.quality_head} has another tokenizer than {ref.name}; score with it apart"
        )
