"""Each document's nearest neighbours by cosine, the input of facility location."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from datamask.selection.problem.pool import Pool

TILE = 2048  # documents compared with the whole pool at a time
EXACT_PRODUCTS = 1 << 27  # a pool with at most so many multiplications is compared in float64 throughout
BF16_FROM = 20_000  # in pools of more documents, neighbours are found in bfloat16; their cosines are then float64
# |x̃·ỹ − x·y| ≤ (2·2⁻⁹ + 2⁻¹⁸)·Σ|x_a y_a| ≤ 2⁻⁸ for unit vectors rounded to bfloat16, and 2⁻⁹ for the rounded result
BF16_ERROR = 2**-8 + 2**-9 + 2**-17


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The m nearest neighbours of every document, itself included, most similar first.

    index: (N, m) int64 row numbers; similarity: (N, m) float64 cosines; floor: (N,) float64, an upper bound on the
    cosine to any document outside the m.
    """

    index: torch.Tensor
    similarity: torch.Tensor
    floor: torch.Tensor


def nearest(pool: Pool, count: int) -> Neighbours:
    """The `count` nearest neighbours of every document, by comparing all pairs: O(N²·d) time, memory of one tile."""
    total = len(pool)
    count = min(count, total)
    low, exact_already = total > BF16_FROM, total * total * pool.dimensions <= EXACT_PRODUCTS
    dtype = torch.float64 if exact_already else torch.bfloat16 if low else torch.float32
    wide = torch.float64 if exact_already else torch.float32
    every = torch.cat([rows.to(dtype) for _, rows in pool.blocks(dtype=wide)])
    error = BF16_ERROR if low else torch.finfo(dtype).eps * (pool.dimensions + 8)  # of a product of unit rows
    index = torch.empty(total, count, dtype=torch.int64)
    similarity = torch.empty(total, count, dtype=torch.float64)
    floor = torch.full((total,), -1.0, dtype=torch.float64)
    for start in range(0, total, TILE):
        part = slice(start, min(start + TILE, total))
        found = (every[part] @ every.T).topk(count, dim=1)
        if exact_already:
            exact = found.values
        else:
            rows = pool.rows(part, torch.float64)
            near = zip(rows, found.indices, strict=True)
            exact = torch.stack([pool.rows(index, torch.float64) @ row for row, index in near])
        if count < total:
            floor[part] = found.values[:, -1].double().cpu() + error
        order = exact.argsort(dim=1, descending=True, stable=True)
        index[part] = found.indices.gather(1, order).cpu()
        similarity[part] = exact.gather(1, order).cpu()
    return Neighbours(index, similarity, floor)
