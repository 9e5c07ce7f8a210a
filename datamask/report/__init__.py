"""Look and decide: the report page, the sweep over λ, the ablation.

Read in this order: `statistics`, `embedding_sample` (what is read), `findings` and `examples` (what is computed),
`charts`, `themes` and `page` (what is drawn), `report` (the stage). Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datamask.report.findings import StageTime
    from datamask.report.report import Report, write_report

_HOMES = {"StageTime": "findings", "Report": "report", "write_report": "report"}
__all__ = ["Report", "StageTime", "write_report"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
