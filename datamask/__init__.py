"""datamask: curate pre-training text by mask learning (DATAMASK, arXiv 2512.24265), with a certificate.

from datamask import select

chosen = select(features, quality, select_ratio=0.1, lamb=0.5)
chosen.selected, chosen.objective, chosen.upper_bound

from datamask import Release, curate, refresh

release = curate("dumps/*.parquet", "out/mine", select={"lamb": 0.7})
release.dataset(), release.decisions(), release.certificate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from datamask.version import __version__

if TYPE_CHECKING:
    from datamask.api import Release
    from datamask.selection.arrays import select
    from datamask.selection.problem.problem import Selection
    from datamask.study.worth import find_worth

__all__ = ["Release", "Selection", "__version__", "curate", "find_worth", "forget", "refresh", "select"]


# Imported on first use, for they bring torch or parquet.
_HOMES = {
    "Release": "api",
    "Selection": "selection.problem.problem",
    "find_worth": "study.worth",
    "select": "selection.arrays",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"datamask.{_HOMES[name]}"), name)
    if name in ("curate", "forget", "refresh"):  # of the layer above
        from datamask.layers import from_layer_above

        return from_layer_above("flows.functions", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
