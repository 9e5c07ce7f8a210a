"""The judge that trains: a small Llama on each choice, alike in everything but the choice, and what targets cost it.

    judge = Network(Size.small(), pool_texts)
    read = judge.read(cut(texts, 4_600_000), targets)
    read["arc_easy"].bits_per_byte, judge.trained[-1]     # and what each rate and seed gave

All choices have the same bytes, the same tokenizer (byte-level BPE, trained on the pool), and for each seed the same
initialisation and the same order of batches. Each is trained at three learning rates, one of them very small, since
ranks of choices at one fixed rate turn over at another (arXiv 2512.24503); a choice is judged by its best rate, as
somebody would tune for it, and every rate is kept. The weights of the last five checkpoints, a fiftieth of the run
apart, are averaged. Costs are bits a byte, so that they compare with the coder's and do not depend on the vocabulary.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from datamask.errors import InputError
from datamask.report.proxy import END, ProxySettings, batches, build_model, deterministic, loss_of, train_tokenizer
from datamask.study.coder import Coded
from datamask.study.targets import BETWEEN, Target

CHECKPOINTS = 5
TOKENIZER_BYTES = 4_000_000


@dataclass(frozen=True)
class Size:
    """How large the model is and how it is trained."""

    name: str
    model: ProxySettings
    rates: tuple[float, ...] = (4e-3, 1e-3, 1e-4)
    passes: float = 1.0  # over the choice
    seeds: int = 1
    evaluated: int = 64  # sequences at a time

    @staticmethod
    def tiny() -> Size:
        """0.2 M parameters, 30,000 tokens a second on one core: for a look, and for tests."""
        return Size("tiny", ProxySettings(vocabulary=1024, width=64, layers=2, heads=2, context=128, batch=8))

    @staticmethod
    def small() -> Size:
        """1.1 M parameters, 15 tokens a parameter at nine passes over 4.6 MB; for two cores and an hour."""
        return Size(
            "small", ProxySettings(vocabulary=2048, width=128, layers=4, heads=4, context=128, batch=16), passes=4
        )

    @staticmethod
    def large() -> Size:
        """26 M parameters, four seeds, for a GPU."""
        model = ProxySettings(vocabulary=16_384, width=512, layers=6, heads=8, context=512, batch=32)
        return Size("large", model, rates=(2e-3, 5e-4, 5e-5), passes=2, seeds=4)


SIZES = {"tiny": Size.tiny, "small": Size.small, "large": Size.large}


@dataclass(frozen=True)
class Trained:
    """What one choice gave: bits a byte, the mean of the targets, by rate and seed."""

    parameters: int
    tokens: int  # trained on, each rate and seed
    seconds: float
    by_rate: dict[float, tuple[float, ...]]  # rate -> a number for each seed
    best: float  # the rate it is judged by


class Network:
    """A judge: see the module."""

    kind = "network"

    def __init__(self, size: Size, pool: Sequence[bytes], device: str = "auto", seed: int = 0) -> None:
        """
        :param pool: texts the tokenizer is trained on, in an order that does not favour an arm; at most
            TOKENIZER_BYTES of them are read.
        :raises InputError: the pool holds no text.
        """
        self.name = f"network, {size.name}"
        self.size = replace(size, model=replace(size.model, device=device))
        self.seed = seed
        held, some = 0, []
        for row in np.random.default_rng([seed, 61]).permutation(len(pool)).tolist():
            if held >= TOKENIZER_BYTES:
                break
            some.append(pool[row].decode("utf-8", "replace"))
            held += len(pool[row])
        if not held:
            raise InputError("the pool holds no text to train a tokenizer on")
        self.tokenizer = train_tokenizer(some, size.model.vocabulary)
        self.trained: list[Trained] = []

    def notes(self) -> str:
        """What was trained, and by which rate the choices were judged."""
        if not self.trained:
            return ""
        rates = [trained.best for trained in self.trained]
        best = ", ".join(f"{rate:g} ({rates.count(rate)} choices)" for rate in sorted(set(rates)))
        spread = [np.std(each.by_rate[each.best], ddof=1) for each in self.trained if self.size.seeds > 1]
        seeds = f"; SD of a seed {np.sqrt(np.mean(np.square(spread))):.4f}" if spread else ""
        first = self.trained[0]
        return f"{first.parameters / 1e6:.1f} M parameters, {first.tokens:,} tokens; best rates {best}{seeds}"

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, Coded]:
        """Each target's cost after training on `choice`, the mean of the seeds at the choice's best rate.

        :raises InputError: the choice is shorter than one batch.
        """
        started = time.perf_counter()
        blocks = self._blocks(choice)
        by_rate: dict[float, list[dict[str, Coded]]] = {}
        model = None
        for rate in self.size.rates:
            for seed in range(self.size.seeds):
                model = self._train(blocks, rate, self.seed + seed)
                by_rate.setdefault(rate, []).append({target.name: self._cost(model, target) for target in targets})
        told = {rate: tuple(_mean(read) for read in reads) for rate, reads in by_rate.items()}
        best = min(told, key=lambda rate: float(np.mean(told[rate])))
        assert model is not None
        self.trained.append(
            Trained(
                parameters=sum(p.numel() for p in model.parameters()),
                tokens=self._steps(len(blocks)) * self.size.model.batch * self.size.model.context,
                seconds=time.perf_counter() - started,
                by_rate=told,
                best=best,
            )
        )
        return {target.name: _average([read[target.name] for read in by_rate[best]]) for target in targets}

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

    def _steps(self, blocks: int) -> int:
        return max(CHECKPOINTS, round(self.size.passes * blocks / self.size.model.batch))

    def _train(self, blocks: torch.Tensor, rate: float, seed: int) -> Any:
        """A model trained at a rate: AdamW, 5 % warm-up, cosine to a tenth; its last checkpoints averaged."""
        model = build_model(self.size.model, seed)
        device = next(model.parameters()).device
        decayed = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)
        steps = self._steps(len(blocks))
        warm, apart = max(1, steps // 20), max(1, steps // 50)

        def share(step: int) -> float:
            if step < warm:
                return (step + 1) / warm
            return 0.1 + 0.45 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
        averaged: list[torch.Tensor] = []
        model.train()
        with deterministic():
            for step, rows in enumerate(batches(len(blocks), self.size.model.batch, steps, seed), 1):
                loss = loss_of(model, blocks[rows].to(device)).mean()
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                if (left := steps - step) % apart == 0 and left < CHECKPOINTS * apart:
                    averaged = _add(averaged, [p.detach() for p in model.parameters()])
        with torch.no_grad():
            for parameter, total in zip(model.parameters(), averaged, strict=True):
                parameter.copy_(total / CHECKPOINTS)
        return model.eval()

    def _cost(self, model: Any, target: Target) -> Coded:
        """Bits of each item: after END, in windows of the model's context; a longer item's later windows start anew."""
        context, end = self.size.model.context, self.tokenizer.token_to_id(END)
        rows, weights, owners, answers = [], [], [], []
        for number, item in enumerate(target.items):
            given = self.tokenizer.encode(item.given.decode("utf-8", "replace")).ids
            answer = self.tokenizer.encode(item.answer.decode("utf-8", "replace")).ids
            tokens = [*given, *answer]
            for start in range(0, len(tokens), context):
                before = end if start == 0 else tokens[start - 1]
                window = [before, *tokens[start : start + context]]
                real = len(window) - 1
                rows.append(window + [end] * (context - real))
                weights.append([1.0] * real + [0.0] * (context - real))
                answers.append([float(start + place >= len(given)) for place in range(context)])
                owners.append(number)
        costs = self._losses(model, torch.tensor(rows)) * np.array(weights) / np.log(2)
        bits = np.bincount(owners, weights=costs.sum(axis=1), minlength=len(target.items))
        answer_bits = np.bincount(owners, weights=(costs * np.array(answers)).sum(axis=1), minlength=len(target.items))
        return Coded(
            target=target.name,
            bits=bits.astype(np.float64),
            bytes=np.array([len(item.whole) for item in target.items]),
            answer_bits=answer_bits.astype(np.float64),
            answer_bytes=np.array([len(item.answer) for item in target.items]),
        )

    def _losses(self, model: Any, rows: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
        device = next(model.parameters()).device
        with torch.inference_mode():
            found = [loss_of(model, part.to(device)).cpu() for part in rows.split(self.size.evaluated)]
        return torch.cat(found).double().numpy()


def _add(totals: list[torch.Tensor], values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [a + b for a, b in zip(totals, values, strict=True)] if totals else [value.clone() for value in values]


def _mean(read: dict[str, Coded]) -> float:
    return float(np.mean([coded.bits_per_byte for coded in read.values()]))


def _average(reads: Sequence[Coded]) -> Coded:
    return replace(
        copy.copy(reads[0]),
        bits=np.mean([read.bits for read in reads], axis=0),
        answer_bits=np.mean([read.answer_bits for read in reads], axis=0),
    )
