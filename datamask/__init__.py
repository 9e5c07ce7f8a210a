"""datamask: curate pre-training text by mask learning (DATAMASK, arXiv 2512.24265), with a certificate.

from datamask import select

chosen = select(features, quality, select_ratio=0.1, lamb=0.5)
chosen.selected, chosen.objective, chosen.upper_bound

from datamask import Release, curate, refresh

release = curate("dumps/*.parquet", "out/mine", select={"lamb": 0.7})
release.dataset(), release.decisions(), release.certificate
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datamask.version import __version__

if TYPE_CHECKING:
    from datamask.api import Release
    from datamask.selection.arrays import select
    from datamask.selection.problem.problem import Selection
    from datamask.study.worth import find_worth

__all__ = ["Release", "Selection", "__version__", "curate", "find_worth", "forget", "refresh", "select"]


def __getattr__(name: str) -> Any:
    if name in ("select", "Selection"):  # imported on first use: they bring torch
        import datamask.selection

        return getattr(datamask.selection, name)
    if name == "find_worth":
        from datamask.study.worth import find_worth

        return find_worth
    if name == "Release":
        from datamask.api import Release

        return Release
    if name in ("curate", "forget", "refresh"):  # of the layer above
        from datamask.layers import from_layer_above

        return from_layer_above("flows.functions", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
