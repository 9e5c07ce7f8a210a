"""Vector and score from one forward pass, for a classifier trained on a frozen encoder.

FineWeb-Edu's classifier is snowflake-arctic-embed-m with a regression head, its encoder frozen in training
(model card of HuggingFaceFW/fineweb-edu-classifier), so its last hidden states are the encoder's own.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from datamask.encoders.encode import run_modules
from datamask.encoders.models import TransformerEncoder
from datamask.errors import ModelError
from datamask.models.encoder_ref import EncoderRef
from datamask.models.load import loading


class FusedEncoder(TransformerEncoder):
    """A transformer encoder whose body also feeds the head of a sequence classifier.

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
