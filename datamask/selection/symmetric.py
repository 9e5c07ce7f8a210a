"""Products with symmetric matrices, of which only the blocks that say the whole are computed."""

from __future__ import annotations

import torch

BLOCK = 192  # columns that are multiplied at a time


def triangle(z: torch.Tensor) -> list[tuple[slice, slice]]:
    """Which blocks of a symmetric (d, d) matrix say the whole: its block rows, each from the diagonal on to the right.

    On a GPU, and where d is small, one block: many small products take longer there than what they leave out.
    """
    d = z.shape[1]
    size = BLOCK if z.device.type == "cpu" and d >= 2 * BLOCK else d
    return [(slice(start, min(start + size, d)), slice(start, d)) for start in range(0, d, size)]


def gram_of(weighted: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """weightedᵀ z (d, d), which is symmetric as `weighted` is z (n, d) with each row times a number."""
    found = z.new_empty(z.shape[1], z.shape[1])
    for part, later in triangle(z):
        block = weighted[:, part].T @ z[:, later]
        found[part, later] = block
        found[later, part] = block.T
    return found
