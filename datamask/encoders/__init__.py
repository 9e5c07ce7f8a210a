"""Embed: documents to vectors of unit length, by an encoder fitted on the corpus or any sentence-transformers model.

encoder = prepare_encoder(shards, config, work)
output = embed_shard(files, encoder, config, work)
counts = load_tokenizer(encoder).count(["some text"])
"""

from datamask.encoders.choose import prepare_encoder, prepare_tokenizer
from datamask.encoders.embed import SCORE, embed_shard
from datamask.models.encoder_ref import EncoderRef
from datamask.models.tokens import TokenCounter, load_tokenizer

__all__ = [
    "SCORE",
    "EncoderRef",
    "TokenCounter",
    "embed_shard",
    "load_tokenizer",
    "prepare_encoder",
    "prepare_tokenizer",
]
