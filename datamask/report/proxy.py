"""The proxy model: a small Llama trained on each arm's choice for the same tokens, judged on documents no arm saw.

What it shows: at this size and this many tokens, which choice teaches a model more about each domain of the pool. What
it does not show: what a model a thousand times larger, trained on far more of the choice, would learn, nor how it would
do on tasks. One tokenizer (byte-level BPE, trained on the pool), one initialisation and one number of tokens per seed;
an arm whose choice holds fewer tokens reads it again, in another order. The same twice on one machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from datamask.devices import pick_device

if TYPE_CHECKING:
    from datamask.report.embedded import Embedded

END = "<|end|>"
MEANS = (
    "all domains alike",
    "as in the pool",
    "against random",
)  # of the domains' losses; the last: same seed, less is better
READ = 500  # documents read and cut into tokens at a time
TOKENIZER_DOCUMENTS = 4_000
LONGEST = 20_000  # characters of a document that are read


@dataclass(frozen=True)
class ProxySettings:
    """Quick by default: 2.2 M parameters, about half a minute an arm on one core. `large()` is for a GPU."""

    tokens: int = 262_144  # trained on, per arm
    held_out: int = 24  # documents of each domain
    held_characters: int = 1500  # read of a held-out document
    vocabulary: int = 2048
    width: int = 192
    layers: int = 4
    heads: int = 3
    context: int = 128
    batch: int = 4  # sequences of `context` tokens
    rate: float = 2e-3  # AdamW, cosine to a tenth, 5 % warm-up
    device: str = "auto"

    @staticmethod
    def large(device: str = "auto") -> ProxySettings:
        """About 20 M parameters and 50 M tokens an arm."""
        return ProxySettings(
            tokens=50_000_000, held_out=100, vocabulary=16_384, width=384, layers=8, heads=6, context=1024, batch=32,
            rate=1e-3, held_characters=8000, device=device,
        )  # fmt: skip


def train_arms(
    corpus: Embedded,
    pool: Embedded,
    held_out: npt.NDArray[np.bool_],
    choices: Mapping[str, npt.NDArray[np.bool_]],
    settings: ProxySettings,
    seed: int,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, float]]:
    """Arm -> domain -> loss on the held-out documents, in nats a token; and MEANS of the domains.

    corpus: with the held-out documents, `held_out` (len(corpus),) bool; pool: without them, what `choices` mask.
    """
    from datamask.report.ablation import domains

    generator = np.random.default_rng([seed, 31])
    drawn = np.sort(generator.permutation(len(pool))[:TOKENIZER_DOCUMENTS])
    tokenizer = train_tokenizer(texts(pool, drawn), settings.vocabulary)
    names = domains(corpus)
    evaluation = {
        str(name): pack(
            tokenizer,
            texts(corpus, np.flatnonzero(held_out & (names == name)), settings.held_characters),
            settings.context,
        )
        for name in sorted(set(names[held_out]))
    }
    evaluation = {domain: held for domain, held in evaluation.items() if len(held)}
    pooled = np.array([np.count_nonzero(names[~held_out] == domain) for domain in evaluation], dtype=np.float64)
    found: dict[str, dict[str, float]] = {}
    for name, selected in choices.items():
        started = time.perf_counter()
        blocks, passes = choice_blocks(tokenizer, pool, selected, settings, seed)
        model = train(blocks, settings, seed)
        losses = {domain: evaluate(model, held, settings) for domain, held in evaluation.items()}
        means = (float(np.mean(list(losses.values()))), float(np.average(list(losses.values()), weights=pooled)))
        found[name] = {**losses, **dict(zip(MEANS, means, strict=False))}
        seconds = time.perf_counter() - started
        progress(f"seed {seed}  proxy {name}  loss {means[0]:.4f}  read {passes:.1f} times  {seconds:.1f} s")
    if "random" in found:
        base = found["random"][MEANS[0]]
        found = {name: {**losses, MEANS[2]: losses[MEANS[0]] - base} for name, losses in found.items()}
    return found


def choice_blocks(
    tokenizer: Tokenizer, pool: Embedded, selected: npt.NDArray[np.bool_], settings: ProxySettings, seed: int
) -> tuple[torch.Tensor, float]:
    """Blocks of the chosen documents, shuffled: as many as are trained on, or all; and how often each is read."""
    rows = np.random.default_rng([seed, 37]).permutation(np.flatnonzero(selected))
    wanted = steps_of(settings) * settings.batch
    parts: list[torch.Tensor] = []
    for start in range(0, len(rows), READ):
        parts.append(pack(tokenizer, texts(pool, rows[start : start + READ]), settings.context))
        if sum(map(len, parts)) >= wanted:
            break
    blocks = torch.cat(parts)[:wanted] if parts else torch.empty(0, settings.context + 1, dtype=torch.long)
    return blocks, wanted / max(len(blocks), 1)


def steps_of(settings: ProxySettings) -> int:
    """Optimiser steps: whole batches of `tokens`."""
    return max(1, settings.tokens // (settings.batch * settings.context))


def texts(corpus: Embedded, rows: npt.NDArray[np.intp], characters: int = LONGEST) -> list[str]:
    """The beginnings of the documents' texts, in the order of `rows`."""
    found = corpus.sample.columns(corpus.rows[rows], ["text"])
    return [(row.get("text") or "")[:characters] for row in found]


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


def pack(tokenizer: Tokenizer, documents: list[str], context: int) -> torch.Tensor:
    """(blocks, context + 1) int64: documents end to end, each closed by END; the last, short block is left out."""
    end = tokenizer.token_to_id(END)
    stream = [token for encoding in tokenizer.encode_batch(documents) for token in (*encoding.ids, end)]
    length = context + 1
    count = len(stream) // length
    return torch.tensor(stream[: count * length], dtype=torch.long).reshape(count, length)


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


def train(blocks: torch.Tensor, settings: ProxySettings, seed: int) -> Any:
    """A model trained on `settings.tokens` tokens, in whole batches; from the start again where there are fewer.

    :raises ValueError: there is not one block of text.
    """
    if not len(blocks):
        raise ValueError("the choice holds less text than one block")
    model = build_model(settings, seed)
    device = next(model.parameters()).device
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.95), fused=True)
    steps = steps_of(settings)
    warm = max(1, steps // 20)

    def rate(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.1 + 0.45 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    model.train()
    with _deterministic():
        for rows in _batches(len(blocks), settings.batch, steps, seed):
            batch = blocks[rows].to(device)
            loss = _loss(model, batch)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
    return model.eval()


@contextmanager
def _deterministic() -> Iterator[None]:
    """Kernels that give the same sums twice, on a GPU too; cuBLAS reads its setting when it is first used."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def evaluate(model: Any, blocks: torch.Tensor, settings: ProxySettings) -> float:
    """Mean loss in nats a token."""
    device = next(model.parameters()).device
    total = 0.0
    with torch.inference_mode():
        for batch in blocks.split(settings.batch):
            total += float(_loss(model, batch.to(device))) * len(batch)
    return total / len(blocks)


def _loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
    fast = batch.device.type == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=fast):
        logits = model(input_ids=batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


def _batches(count: int, batch: int, steps: int, seed: int) -> Iterator[torch.Tensor]:
    """Row numbers of `steps` batches: a new order each time all blocks were seen."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < batch:
            order = torch.cat([order, torch.randperm(count, generator=generator)])
        yield order[:batch]
        order = order[batch:]
