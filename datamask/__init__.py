"""datamask: curate pre-training text by mask learning (DATAMASK, arXiv 2512.24265), with a certificate.

from datamask import select

chosen = select(features, quality, select_ratio=0.1, lamb=0.5)
chosen.selected, chosen.objective, chosen.upper_bound
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datamask.selection.api import select
    from datamask.selection.result import Selection

__version__ = "0.1.0"
__all__ = ["Selection", "__version__", "select"]


def __getattr__(name: str) -> Any:
    if name in ("select", "Selection"):  # imported on first use: they bring torch
        import datamask.selection

        return getattr(datamask.selection, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
