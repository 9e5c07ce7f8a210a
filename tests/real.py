"""Where the real corpus lies, for the tests that measure on it: in DATAMASK_REAL, or beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("DATAMASK_REAL") or Path(__file__).resolve().parents[2] / "shared" / "data" / "real")
ABSENT = f"the real corpus is not in {FOLDER}; DATAMASK_REAL says where it is"
