"""Batches by token budget over windows sorted by length: little padding, and no batch that does not fit memory."""

from __future__ import annotations

import numpy as np
import torch

ROUND_TO = 8  # batches are padded to a multiple of so many tokens: kinder to the matrix kernels


def batches(lengths: np.ndarray, budget: int, limit: int | None = None) -> list[np.ndarray]:
    """Groups of window numbers, longest windows first, whose padded size is within `budget` tokens.

    :param lengths: int64 [windows], tokens of each
    :param budget: tokens of a batch, padding included; a window longer than it is a batch of its own
    :param limit: greatest number of tokens a window may be padded to (the model's positions)
    :returns: int64 arrays that together hold each of 0 … windows − 1 once
    """
    order = np.argsort(-lengths, kind="stable")
    found = []
    first = 0
    while first < len(order):
        width = padded(int(lengths[order[first]]), limit)
        last = min(first + max(1, budget // max(width, 1)), len(order))
        found.append(order[first:last])
        first = last
    return found


def padded(length: int, limit: int | None = None) -> int:
    """`length` rounded up to a multiple of ROUND_TO, but not past `limit`."""
    rounded = -(-max(length, 1) // ROUND_TO) * ROUND_TO
    return max(length, min(rounded, limit)) if limit else rounded


def pad(rows: list[np.ndarray], width: int, pad_id: int, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """input_ids and attention_mask, both int64 [rows, width]."""
    ids = np.full((len(rows), width), pad_id, np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, place] = row
        mask[i, place] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)
