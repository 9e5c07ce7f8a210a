"""Instances found by benchmarks/fuzz_select.py: spans that are rounding, budgets that one document fills."""

from __future__ import annotations

import numpy as np
import pytest

from datamask import select
from datamask.errors import DatamaskError


def test_a_span_that_is_rounding_is_none() -> None:
    """Four documents of a cone so narrow that DiSF's values differ in what float64 cannot tell: calibrated by 4e8, the
    objective would be wrong in its fifth digit."""
    rows = np.array(
        [[0.9846047, -0.17476873], [0.984616, -0.17475389], [0.98460793, -0.17477082], [0.9846037, -0.17476664]],
        dtype=np.float32,
    )
    quality = np.array([0.78146521, 0.46423336, 0.72094301, 0.62315491])
    found = select(rows, quality, algorithm="DiSF", lamb=0.5, budget_documents=1)
    assert found.scales["disf"]["scale"] == 0
    assert found.selected.tolist() == [True, False, False, False]


def test_a_cone_of_real_width_keeps_its_diversity() -> None:
    generator = np.random.default_rng(0)
    rows, common = generator.standard_normal((200, 64)), generator.standard_normal(64)
    rows = (0.03 * rows / 8 + common / np.linalg.norm(common)).astype(np.float32)  # .999 of the norm is common
    found = select(rows, generator.random(200), algorithm="DiSF", lamb=0.5, budget_documents=20)
    assert found.scales["disf"]["scale"] > 0
    assert found.terms["disf"] > 0.3


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF"])
def test_a_budget_that_one_document_fills(algorithm: str) -> None:
    """One token, and a quota that the other document of one token breaks."""
    generator = np.random.default_rng(1)
    half = np.array(["y", "x", "x", "y", "y", "y"])
    asked = {"algorithm": algorithm, "lamb": 0.0, "budget_tokens": 1, "calibrate": False}
    found = select(
        generator.standard_normal((6, 20)),
        generator.random(6),
        tokens=np.array([3, 1, 2, 1, 2, 2]),
        groups={"half": half},
        quotas=[{"column": "half", "maximum": {"x": 0.4}}],
        **asked,
    )
    assert np.flatnonzero(found.selected).tolist() == [3]
    with pytest.raises(DatamaskError, match="not one document|within"):
        select(
            generator.standard_normal((6, 20)),
            generator.random(6),
            tokens=np.array([3, 1, 2, 2, 2, 2]),
            groups={"half": half},
            quotas=[{"column": "half", "maximum": {"x": 0.4}}],
            **asked,
        )
