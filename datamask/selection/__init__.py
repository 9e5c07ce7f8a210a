"""Which documents to keep: quality and diversity maximised together.

    from datamask import select
    chosen = select(features, quality, select_ratio=0.1, lamb=0.5, algorithm="DiSF")

Read in this order: `problem` (pool, budget, limits, objective, and the answer), `metrics` (what is maximised),
`solvers` (how), `arrays` (the call above), `driver`, `groups` and `cover` (shards that select jointly), `stage` (the
pipeline's stage functions). `paper` has the paper's own method and what the solver is compared with.
Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datamask.selection.arrays import select
    from datamask.selection.extension import extend_prices
    from datamask.selection.problem.problem import Selection
    from datamask.selection.stage import learn_prices, mask_shard

_HOMES = {
    "select": "arrays",
    "Selection": "problem.problem",
    "extend_prices": "extension",
    "learn_prices": "stage",
    "mask_shard": "stage",
}
__all__ = ["Selection", "extend_prices", "learn_prices", "mask_shard", "select"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
