"""The judge that trains: a small Llama on each choice, alike in everything but the choice, and what targets cost it.

    judge = Network(SIZES["small"], pool_texts, before=other_texts)
    read = judge.read(cut_texts(texts, 4_600_000), targets)
    read["arc_easy"].bits_per_byte, judge.trained[-1]     # and what each rate and seed gave

All choices have the same bytes, the same tokenizer (byte-level BPE, trained on the pool), and for each seed the same
start and the same order of batches. Small sizes start from a model that has read random documents which no arm can
choose (`before`), at a constant rate; the choice is what it reads last, while the rate falls linearly to nothing: data
are judged so by annealing on them (Llama 3, arXiv 2407.21783, section 3.1.3; Blakeney et al., arXiv 2406.03476). It
falls from a fifth of the rate before: from the whole of it, too much of the start is unlearned to see words shuffled
(docs/judge.md). A
small network that starts from noise spends most of its tokens on learning to look back, sooner or later by chance, and
that chance is the judge's noise. What such a judge says is what a choice adds to random text. `large` starts from
noise, and is trained at three rates, one of them very small, since ranks of choices at one fixed rate turn over at
another (arXiv 2512.24503); a choice is judged by its best rate, as somebody would tune for it, and every rate is kept.
The weights of the last five checkpoints, a fiftieth of the run apart, are averaged. Costs are bits a byte, so that
they compare with the coder's and do not depend on the vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from datamask.devices import pick_device
from datamask.errors import InputError
from datamask.study.coder import CodedItems, mean_bits
from datamask.study.targets import BETWEEN, Target, first_rows

END = "<|end|>"
CHECKPOINTS = 5
TOKENIZER_BYTES = 4_000_000
EVALUATED = 64  # sequences whose losses are computed together
ENOUGH = 0.1  # of the text before: from less a start says little
NARROW = 96  # up to this width float32 is the faster on a CPU: 37,000 tokens a second against 28,000 at width 64


@dataclass(frozen=True)
class ProxySettings:
    vocabulary: int
    width: int
    layers: int
    heads: int
    context: int
    batch: int  # sequences of `context` tokens
    device: str = "auto"


@dataclass(frozen=True)
class Size:
    """How large the model is and how it is trained."""

    name: str
    model: ProxySettings
    rates: tuple[float, ...] = (1e-3,)
    passes: float = 1.0  # over the choice
    before: int = 0  # bytes of random text that it has read before every choice; 0: it starts from noise
    start_rate: float = 5e-3  # at which it reads them
    seeds: int = 1


# 0.16 M parameters, 35,000 tokens a second on one core: half a minute a choice of 2.3 MB.
TINY = ProxySettings(vocabulary=1024, width=64, layers=2, heads=1, context=128, batch=8)
# 0.85 M parameters, 12,000 tokens a second on one core: two minutes and a half a choice of 4.6 MB.
SMALL = ProxySettings(vocabulary=2048, width=128, layers=3, heads=2, context=128, batch=8)
# 26 M parameters, four seeds, for a GPU.
LARGE = ProxySettings(vocabulary=16_384, width=512, layers=6, heads=8, context=512, batch=32)
SIZES = {
    "tiny": Size("tiny", TINY, before=8_000_000),
    "small": Size("small", SMALL, rates=(6e-4,), before=16_000_000, start_rate=3e-3),
    "large": Size("large", LARGE, rates=(2e-3, 5e-4, 5e-5), passes=2, seeds=4),
}


@dataclass(frozen=True)
class Trained:
    """What one choice gave: bits a byte, the mean of the targets, by rate and seed."""

    tokens: int  # trained on, each rate and seed
    by_rate: dict[float, tuple[float, ...]]  # rate -> a number for each seed
    best: float  # the rate it is judged by


class Network:
    kind = "network"

    def __init__(
        self, size: Size, pool: Sequence[bytes], device: str = "auto", seed: int = 0, before: Sequence[bytes] = ()
    ) -> None:
        """
        :param pool: texts the tokenizer is trained on, in an order that does not favour an arm; at most
            TOKENIZER_BYTES of them are read.
        :param before: texts in no arm's reach, of which it reads the size's `before` bytes first; fewer where there
            are fewer.
        :raises InputError: the pool holds no text.
        """
        self.name = f"network, {size.name}"
        self.size = replace(size, model=replace(size.model, device=device))
        self.seed = seed
        order = np.random.default_rng([seed, 61]).permutation(len(pool))
        rows = first_rows(order, list(map(len, pool)), TOKENIZER_BYTES)
        some = [pool[row].decode("utf-8", "replace") for row in rows]
        if not any(some):
            raise InputError("the pool holds no text to train a tokenizer on")
        self.tokenizer = train_tokenizer(some, size.model.vocabulary)
        self.trained: list[Trained] = []
        self._before = before
        self.parameters, self.epochs = 0, size.passes  # those of the network it trained last, 0 before
        self.starts: dict[int, dict[str, torch.Tensor]] = {}  # seed -> the weights every choice starts from

    def notes(self) -> str:
        if not self.trained:
            return ""
        rates = [trained.best for trained in self.trained]
        best = ", ".join(f"{rate:g} ({rates.count(rate)} choices)" for rate in sorted(set(rates)))
        spread = [np.std(each.by_rate[each.best], ddof=1) for each in self.trained if self.size.seeds > 1]
        seeds = f"; SD of a seed {np.sqrt(np.mean(np.square(spread))):.4f}" if spread else ""
        first = self.trained[0]
        read = sum(map(len, self._before))
        after = f" after {min(self.size.before, read):,} bytes of other text" if self._warm else " from noise"
        return f"{first.tokens:,} tokens{after}; best rates {best}{seeds}"

    @property
    def _warm(self) -> bool:
        """Whether there is text enough to start from; with less it starts from noise, as its notes show."""
        return bool(self.size.before) and sum(map(len, self._before)) >= self.size.before * ENOUGH

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, CodedItems]:
        """Each target's cost after training on `choice`, the mean of the seeds at the choice's best rate.

        :raises InputError: the choice is shorter than one batch.
        """
        blocks = self._blocks(choice)
        steps = max(CHECKPOINTS, round(self.size.passes * len(blocks) / self.size.model.batch))
        by_rate: dict[float, list[dict[str, CodedItems]]] = {}
        model = None
        for rate in self.size.rates:
            for seed in range(self.size.seeds):
                own = self.seed + seed
                model = self._run(self._start(own), blocks, rate, steps, own, falls=True).eval()
                by_rate.setdefault(rate, []).append({target.name: self._cost(model, target) for target in targets})
        told = {rate: tuple(mean_bits(read) for read in reads) for rate, reads in by_rate.items()}
        best = min(told, key=lambda rate: float(np.mean(told[rate])))
        assert model is not None
        self.parameters = sum(p.numel() for p in model.parameters())
        self.trained.append(
            Trained(tokens=steps * self.size.model.batch * self.size.model.context, by_rate=told, best=best)
        )
        found = {}
        for target in targets:
            reads = [read[target.name] for read in by_rate[best]]
            means = {name: np.mean([getattr(read, name) for read in reads], axis=0) for name in ("bits", "answer_bits")}
            found[target.name] = replace(reads[0], **means)
        return found

    def _blocks(self, choice: bytes) -> torch.Tensor:
        """(blocks, context + 1) int64: the documents end to end, each after END."""
        end, length = self.tokenizer.token_to_id(END), self.size.model.context + 1
        documents = choice.decode("utf-8", "replace").split(BETWEEN.decode())
        stream = [token for found in self.tokenizer.encode_batch(documents) for token in (end, *found.ids)]
        count = len(stream) // length
        if count < self.size.model.batch:
            raise InputError(
                f"a choice of {len(choice):,} bytes is less than one batch of the network; choose more bytes"
            )
        return torch.tensor(stream[: count * length], dtype=torch.long).reshape(count, length)

    def _start(self, seed: int) -> Any:
        """The model that every choice of this seed starts from."""
        model = build_model(self.size.model, seed)
        if not self._warm:
            return model
        if seed not in self.starts:
            order = np.random.default_rng([self.seed, 83]).permutation(len(self._before)).tolist()
            text = b"".join(BETWEEN + self._before[row] for row in order)[: self.size.before]
            blocks = self._blocks(text)
            steps = max(1, len(blocks) // self.size.model.batch)
            trained = self._run(model, blocks, self.size.start_rate, steps, seed, falls=False)
            self.starts[seed] = {name: value.clone() for name, value in trained.state_dict().items()}
        model.load_state_dict(self.starts[seed])
        return model

    def _run(self, model: Any, blocks: torch.Tensor, rate: float, steps: int, seed: int, falls: bool) -> Any:
        """AdamW, 5 % warm-up, a constant rate, or one that falls linearly to 0 (arXiv 2502.15938) with averaging."""
        device = next(model.parameters()).device
        decayed = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)
        warm, apart = max(1, steps // 20), max(1, steps // 50)

        def share(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            return 1 - (step - warm) / max(1, steps - warm) if falls else 1.0

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
        totals = [torch.zeros_like(parameter) for parameter in model.parameters()] if falls else []
        model.train()
        with deterministic():
            for step, rows in enumerate(batches(len(blocks), self.size.model.batch, steps, seed), 1):
                loss = loss_of(model, blocks[rows].to(device)).mean()
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                if falls and (left := steps - step) % apart == 0 and left < CHECKPOINTS * apart:
                    for total, parameter in zip(totals, model.parameters(), strict=True):
                        total += parameter.detach()
        with torch.no_grad():
            for parameter, total in zip(model.parameters() if falls else (), totals, strict=True):
                parameter.copy_(total / CHECKPOINTS)
        return model

    def _cost(self, model: Any, target: Target) -> CodedItems:
        """Bits of each item: after END, in windows of the model's context; a longer item's later windows start anew."""
        context, end = self.size.model.context, self.tokenizer.token_to_id(END) or 0
        windows, owners, answers = [], [], []
        for number, item in enumerate(target.items):
            given = self.tokenizer.encode(item.given.decode("utf-8", "replace")).ids
            answer = self.tokenizer.encode(item.answer.decode("utf-8", "replace")).ids
            tokens = [*given, *answer]
            for start in range(0, len(tokens), context):
                windows.append([end if start == 0 else tokens[start - 1], *tokens[start : start + context]])
                answers.append(max(0, len(given) - start))  # the window's tokens from here on are the answer's
                owners.append(number)
        costs = self._losses(model, windows, end)
        count = len(target.items)
        bits = np.bincount(owners, weights=[cost.sum() for cost in costs], minlength=count)
        of_answers = [cost[place:].sum() for cost, place in zip(costs, answers, strict=True)]
        return CodedItems(
            target=target.name,
            bits=bits.astype(np.float64),
            bytes=np.array([len(item.whole) for item in target.items]),
            answer_bits=np.bincount(owners, weights=of_answers, minlength=count).astype(np.float64),
            answer_bytes=np.array([len(item.answer) for item in target.items]),
        )

    def _losses(self, model: Any, windows: Sequence[list[int]], end: int) -> list[npt.NDArray[np.float64]]:
        """Bits of each window's tokens but its first; windows alike in length go together: little is padding."""
        device = next(model.parameters()).device
        found: list[npt.NDArray[np.float64]] = [np.zeros(0)] * len(windows)
        order = sorted(range(len(windows)), key=lambda place: len(windows[place]))
        for start in range(0, len(order), EVALUATED):
            places = order[start : start + EVALUATED]
            longest = len(windows[places[-1]])
            rows = torch.tensor([windows[place] + [end] * (longest - len(windows[place])) for place in places])
            with torch.inference_mode():
                costs = loss_of(model, rows.to(device)).cpu().double().numpy() / np.log(2)
            for place, cost in zip(places, costs, strict=True):
                found[place] = cost[: len(windows[place]) - 1]
        return found


# ---------------------------------------------------------------- the model, what it reads, its losses


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
