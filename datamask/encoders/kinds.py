"""Which encoder runs a loaded model of sentence-transformers."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer
from transformers import PreTrainedTokenizerFast

from datamask.encoders.encode import Encoder, StaticEncoder
from datamask.encoders.fused import FusedEncoder
from datamask.encoders.models import TransformerEncoder, WholeEncoder
from datamask.errors import ModelError
from datamask.models.batching import special_tokens
from datamask.models.encoder_ref import EncoderRef
from datamask.models.tokens import DocumentTokenizer


def encoder_of(model: SentenceTransformer, ref: EncoderRef) -> Encoder:
    """The encoder that runs a loaded model.

    :raises ModelError: the settings ask for what it cannot do.
    """
    first = model[0]
    plain = isinstance(first, Transformer) and "message" not in first.modality_config
    plain = (
        plain and isinstance(first.tokenizer, PreTrainedTokenizerFast) and special_tokens(first.tokenizer) is not None
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
