from __future__ import annotations

import pytest
from fuzz_inputs import fuzz

KINDS = {
    "parquet": 120,
    "lines": 120,
    "dialects": 60,
    "types": 40,
    "names": 60,
    "folder": 80,
    "config": 150,
    "filter": 60,
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "examples"), KINDS.items())
def test_mutated_inputs_are_read_or_refused_with_a_message(kind: str, examples: int) -> None:
    """A first look: `python benchmarks/fuzz_inputs.py --examples 10000` is the whole of it."""
    found = fuzz(kind, examples, 0)
    assert not found["defects"]
    assert sum(found["outcomes"].values()) == examples and found["outcomes"]["read"]
