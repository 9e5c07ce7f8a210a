"""Texts to batches for a transformer, by token budget over windows sorted by length: each text is tokenised once,
there is little padding, and no batch outgrows memory.

    batcher = Batcher(tokenizer, max_length=512)
    windows = batcher.windows(texts)
    for rows, input_ids, attention_mask in batcher.batches(windows, batch_tokens=16_384):
        logits[rows] = model(input_ids, attention_mask=attention_mask).logits
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from datamask.errors import ModelError
from datamask.models.tokens import NO_TOKENS, DocumentTokenizer, TokenWindows

ROUND_TO = 8  # batches are padded to a multiple of so many tokens: kinder to the matrix kernels


class Batcher:
    """Windows and batches for one tokenizer and one greatest length.

    :param max_length: tokens of a window, special tokens and prompt included
    :param prompt: put before every text, and before every window of it
    :param around: token ids before and after every window; None: the tokenizer's special tokens
    :raises ModelError: the prompt leaves no room for the text.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        max_length: int,
        prompt: str = "",
        around: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        special = around or special_tokens(tokenizer)
        assert special is not None, "checked by special_tokens before"
        self._begin, self._end = special
        self._tokenizer = DocumentTokenizer(tokenizer.backend_tokenizer)
        self._limit = max_length
        self._room = max_length - len(self._begin) - len(self._end)
        self._prompt = prompt
        self._prompt_ids = self._tokenizer.all([prompt.rstrip()])[0] if prompt else NO_TOKENS
        self._pad_id = tokenizer.pad_token_id or 0
        self._left = tokenizer.padding_side == "left"
        if self._room <= len(self._prompt_ids):
            raise ModelError(
                f"the prompt {prompt!r} and the special tokens fill the window of {max_length} tokens; "
                f"raise encoder.max_length or shorten encoder.prompt"
            )

    def windows(self, texts: Sequence[str], long_documents: str = "first") -> TokenWindows:
        """The first window of each text, or all of them ("mean")."""
        return self._tokenizer.windows(texts, self._room, long_documents, self._prompt, self._prompt_ids)

    def batches(self, windows: TokenWindows, budget: int) -> Iterator[tuple[np.ndarray, torch.Tensor, torch.Tensor]]:
        """Window numbers int64 [rows], and their input_ids and attention_mask, both int64 [rows, width]; the longest
        windows first, rows · width within `budget` unless a window alone exceeds it."""
        lengths = windows.lengths + len(self._begin) + len(self._end)
        starts = windows.starts
        ends = starts + windows.lengths
        for rows, width in plan_batches(lengths, budget, self._limit):
            ids = np.full((len(rows), width), self._pad_id, np.int64)
            mask = np.zeros((len(rows), width), np.int64)
            for i, row in enumerate(rows):
                place = slice(width - lengths[row], width) if self._left else slice(0, lengths[row])
                ids[i, place] = np.concatenate([self._begin, windows.ids[starts[row] : ends[row]], self._end])
                mask[i, place] = 1
            yield rows, torch.from_numpy(ids), torch.from_numpy(mask)


def plan_batches(lengths: np.ndarray, budget: int, limit: int) -> Iterator[tuple[np.ndarray, int]]:
    """Window numbers, longest first, and the width they are padded to: all windows once, within `budget` tokens each.

    :param lengths: int64 [windows], tokens of each
    :param limit: greatest width (the model's positions)
    """
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        longest = int(lengths[order[first]])
        width = max(longest, min(-(-longest // ROUND_TO) * ROUND_TO, limit), 1)
        last = first + max(1, budget // width)
        yield order[first:last], width
        first = last


# model types whose positions begin after the padding id
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "longformer", "mpnet"}


def window_limit(asked: int, tokenizer: Any, config: Any) -> int:
    """The greatest number of tokens of a window: what is asked for, the tokenizer and the model allow."""
    positions = getattr(config, "max_position_embeddings", None) or asked
    offset = (getattr(config, "pad_token_id", None) or 0) + 1 if config.model_type in _OFFSET_POSITIONS else 0
    return int(min(asked, tokenizer.model_max_length or asked, positions - offset))


def name_padding(tokenizer: Any, config: Any) -> None:
    """Gives a tokenizer without a padding token one that it has: what is padded is masked, so any will do.

    Libraries refuse to batch without one, and a classifier asks its model's configuration for it.
    """
    if tokenizer.pad_token is None:
        spare = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
        tokenizer.pad_token = spare
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id


def special_tokens(tokenizer: PreTrainedTokenizerFast) -> tuple[np.ndarray, np.ndarray] | None:
    """The ids a tokenizer puts before and after every text, or None if it does something else."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    full = tokenizer.encode("a", add_special_tokens=True)
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return np.array(full[:at], np.int32), np.array(full[at + len(bare) :], np.int32)
    return None
