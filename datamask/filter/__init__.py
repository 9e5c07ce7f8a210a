"""Documents that are copies of others: near-duplicates, and texts contained in longer ones.

`shingles` (what texts are compared by), `signatures` (the stage that reads each shard once), `postings` and
`duplicate_candidates` (pairs worth reading), `verify_pairs` (reads them whole), `intact` (which copy is intact),
`resolve` (who stays), `alarm` (who loses too much), `duplicates` (all of it).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datamask.filter.duplicates import find_duplicates, wanted
    from datamask.filter.signatures import sign_shard

_HOMES = {"sign_shard": "signatures", "find_duplicates": "duplicates", "wanted": "duplicates"}
__all__ = ["find_duplicates", "sign_shard", "wanted"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
