"""What tests of several rooms of the selection share."""

from __future__ import annotations

import numpy as np
import pytest

from datamask import maps, storage
from datamask.selection import groups


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a round hands on lies in memory, under the name of its file: of small problems files are half the time.

    As with files, what is written and what is read are copies, and what was handed on under a name before is found.
    """
    held: dict[str, dict[str, np.ndarray]] = {}

    def write(url: str, **arrays: np.ndarray) -> None:
        held[url] = {name: np.array(array) for name, array in arrays.items()}

    def read(url: str, *names: str) -> list[np.ndarray]:
        return [held[url][name].copy() for name in names]

    def handed(folder: str, name: str) -> maps.Handed | None:
        url = storage.join(folder, f"{name}.npz")
        return maps.Handed(url) if url in held else None

    monkeypatch.setattr(maps, "write_arrays", write)
    monkeypatch.setattr(maps, "read_arrays", read)
    monkeypatch.setattr(groups, "handed", handed)
