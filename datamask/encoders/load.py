"""Encoders are loaded once in a process; the libraries for transformers only where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from datamask.devices import pick_device
from datamask.encoders.encode import Encoder, StaticEncoder
from datamask.encoders.own import OwnEncoder
from datamask.models.encoder_ref import EncoderRef
from datamask.models.load import MODELS, named_errors
from datamask.models.locate import local_folder
from datamask.models.tokens import DocumentTokenizer, load_tokenizer

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load_encoder(ref: EncoderRef, device: str = "auto", model: SentenceTransformer | None = None) -> Encoder:
    """The encoder of `ref`, loaded once per process; the libraries for transformers only where there is one.

    :param model: of `load_model`, where the caller has it already
    :raises ModelError: it is missing, broken, or its size does not fit `ref.dimensions`.
    """
    chosen = pick_device(device)

    def load() -> Encoder:
        if ref.kind == "static":
            return _load_static(ref, chosen)
        if ref.kind == "own":
            return OwnEncoder(ref)
        from datamask.encoders.models import encoder_of, load_model  # loads transformers

        return encoder_of(model or load_model(ref, chosen), ref)

    return MODELS.get((ref.fingerprint, chosen), load)


def _load_static(ref: EncoderRef, device: torch.device) -> Encoder:
    with named_errors("encoder", ref.path):
        folder = Path(local_folder(ref.path))
        weights = load_file(folder / "model.safetensors", str(device))["embedding.weight"]
        tokenizer = load_tokenizer(ref)
        assert isinstance(tokenizer, DocumentTokenizer)
        return StaticEncoder(tokenizer, weights, [], ref)
