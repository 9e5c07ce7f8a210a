"""What is known of built-in metrics and the default solver without loading them is what their classes say."""

import pytest

from datamask import extensions
from datamask.selection.metrics import metric_class
from datamask.selection.solvers import COVERAGE, RELAXATION, solver_class


@pytest.mark.parametrize("name", extensions.BUILT_IN["metric"])
def test_no_built_in_metric_reads_columns(name: str) -> None:
    assert not getattr(metric_class(name), "columns", ())


def test_the_default_solver_maximises_every_coverage() -> None:
    solver = solver_class("relaxation")
    assert solver.holds == RELAXATION
    assert all(any(hasattr(metric_class(name), need) for need in solver.requires) for name in COVERAGE)
    assert not solver.agree_in or len({getattr(metric_class(name), solver.agree_in, None) for name in COVERAGE}) == 1
