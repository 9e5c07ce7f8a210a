"""A small Llama and what it is trained with: tokenizer, initialisation, batches, losses.

What the network among the judges is built from (`datamask.study.network`): transformers' classes with random weights, a
byte-level BPE, AdamW's batches in an order of their own. The same twice on one machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from datamask.devices import pick_device

END = "<|end|>"


@dataclass(frozen=True)
class ProxySettings:
    """A model's shape and its batches."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    context: int
    batch: int  # sequences of `context` tokens
    device: str = "auto"


def train_tokenizer(documents: list[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE, so that every text has a spelling."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def build_model(settings: ProxySettings, seed: int) -> Any:
    """A Llama with the seed's initialisation; the global random state is left as it was."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=settings.vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.width * 8 // 3 // 8 * 8,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        use_cache=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)
    return model.to(pick_device(settings.device))


@contextmanager
def deterministic() -> Iterator[None]:
    """Kernels that give the same sums twice, on a GPU too; cuBLAS reads its setting when it is first used."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


NARROW = 96  # up to this width float32 is the faster on a CPU: 37,000 tokens a second against 28,000 at width 64


def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """(sequences, context) nats of each next token of (sequences, context + 1) tokens."""
    wide = model.config.hidden_size > NARROW and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    fast = batch.device.type == "cuda" or wide
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=fast):
        logits = model(input_ids=batch[:, :-1]).logits
    flat = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
    return flat.view(len(batch), -1)


def batches(count: int, batch: int, steps: int, seed: int) -> Iterator[torch.Tensor]:
    """Row numbers of `steps` batches: a new order each time all blocks were seen."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < batch:
            order = torch.cat([order, torch.randperm(count, generator=generator)])
        yield order[:batch]
        order = order[batch:]
