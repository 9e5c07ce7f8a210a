"""A release holds what it held when benchmarks/golden.json was recorded: see benchmarks/golden.py."""

from __future__ import annotations

from pathlib import Path

import golden
import pytest

from tests import real

QUICK = ("default",)  # the others take as long again each: benchmarks/golden.py and `make test-slow` run them


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One output folder for all configurations, so that the corpus is embedded once."""
    return tmp_path_factory.mktemp("golden") / "out"


@pytest.mark.skipif(not (real.FOLDER / "real-extra.jsonl.gz").exists(), reason=real.ABSENT)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in golden.CONFIGURATIONS]
)
def test_a_release_of_2000_documents_holds_the_recorded_bytes(name: str, output: Path, prefect_server: None) -> None:
    recorded = golden.recorded()
    if recorded["processor"] != golden.processor():
        pytest.skip(f"recorded on {recorded['processor']}; this is {golden.processor()}, and floats may differ")
    assert golden.measure("small", output, [name])[name] == recorded["small"][name], (
        "bytes of the release changed: if that was meant, say so in the commit and run benchmarks/golden.py --record"
    )
