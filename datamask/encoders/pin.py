"""Which model exactly: the commit of a hub model, the content of a folder, and what the model itself asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from datamask import extensions, storage
from datamask.config import Config
from datamask.config import EncoderSettings as Settings
from datamask.corpus.plan import Shard
from datamask.corpus.read import shard_schema
from datamask.devices import pick_device, pick_dtype
from datamask.errors import ModelError, nearest
from datamask.models.encoder_ref import VERSION, EncoderRef
from datamask.models.load import loading
from datamask.models.locate import locate


def pin_model(settings: Settings, work: str) -> EncoderRef:
    """The reference of a sentence-transformers model, found in a folder, the cache or the hub, and loaded once.

    :raises ModelError: it is missing, cannot be loaded, or is smaller than `settings.dimensions`.
    """
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device) if settings.backend == "torch" else "float32"
    path, revision, content = locate(settings.model, settings.revision)
    head = locate(settings.quality_head, None) if settings.quality_head else None
    chosen: dict[str, Any] = {
        "name": settings.model,
        "path": path,
        "revision": revision,
        "dimensions": settings.dimensions,
        "max_length": settings.max_length,
        "long_documents": settings.long_documents,
        "dtype": dtype,
        "backend": settings.backend,
        "trust_remote_code": settings.trust_remote_code,
        "quality_head": head[0] if head else None,
        "quality_head_revision": head[1] if head else None,
    }
    key = storage.key("model", VERSION, content, head[2] if head else None, settings.prompt, chosen)
    record = storage.join(work, "encoder", f"{key}.json")
    if storage.exists(record):
        return EncoderRef.from_dict(storage.read_json(record))

    from datamask.encoders.load import load_encoder
    from datamask.encoders.models import load_model

    ref = EncoderRef(kind="model", fingerprint=key, prompt=settings.prompt, **chosen)
    model = load_model(ref, device)
    if not settings.prompt:
        ref = replace(ref, prompt=own_prompt(model))
    with loading("encoder", ref.path, ref.revision):  # what it cannot do it says now, not when shards are embedded
        encoder = load_encoder(ref, settings.device, model)
        encoder.compute(encoder.tokenise(["a text", "a long text " * ref.max_length]), settings.batch_tokens)
    storage.write_json(record, ref.as_dict())
    return ref


def own_prompt(model: Any) -> str:
    """The prompt a model asks for before a document, by sentence-transformers' own rule (`encode_document`)."""
    prompts = model.prompts or {}
    for name in ("document", "passage", "corpus", model.default_prompt_name):
        if name and prompts.get(name):
            return str(prompts[name])
    return ""


def pin_column(shards: Sequence[Shard], config: Config) -> EncoderRef:
    """The reference of embeddings that the corpus brings.

    :raises ModelError: a shard has no such column.
    """
    settings = config.encoder
    for shard in shards:
        names = shard_schema(shard, config).names
        if settings.column not in names:
            raise ModelError(
                f"encoder.model is column, but shard {shard.name} has no column {settings.column}"
                f"{nearest(settings.column, names)} (encoder.column; there are: {', '.join(names)})"
            )
    return EncoderRef(
        kind="column",
        name=settings.column,
        path="",
        revision=None,
        fingerprint=storage.key("column", VERSION, settings.column, settings.dimensions),
        dimensions=settings.dimensions,
        max_length=settings.max_length,
        long_documents=settings.long_documents,
    )


def pin_own(own: extensions.Extension, settings: Settings) -> EncoderRef:
    """The reference of an encoder of the user's own, tried on one text.

    :raises ConfigError: it cannot be loaded. :raises ModelError: its vectors are smaller than `settings.dimensions`.
    """
    from datamask.encoders.own import OwnEncoder, own_key

    options = json.dumps(settings.options, sort_keys=True)
    ref = EncoderRef(
        kind="own",
        name=settings.model,
        path="",
        revision=None,
        fingerprint=own_key(own, options, settings.dimensions),
        dimensions=settings.dimensions,
        max_length=settings.max_length,
        long_documents=settings.long_documents,
        options=options,
    )
    OwnEncoder(ref).compute(["a text to see what the vectors are like"], settings.batch_tokens)
    return ref
