"""Diversity metrics: how unlike one another the selected documents are. Larger is more diverse.

A metric is a class (see `base.Metric`). The paper's three are built in; a package adds its own by an entry point:

    [project.entry-points."datamask.metrics"]
    my-metric = "my_package:MyMetric"
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from datamask.errors import ConfigError, nearest

if TYPE_CHECKING:
    from datamask.selection.metrics.base import Metric

GROUP = "datamask.metrics"
BUILT_IN = {
    "coverage": "coverage:EmbeddingCoverage",  # of the parts that `select.coverage.atoms` names
    "pairwise": "pairwise:Pairwise",
    "disf": "disf:DiSF",
    "facility": "facility:FacilityLocation",
    "coverage-embedding": "coverage:EmbeddingCoverage",
    "coverage-ngrams": "coverage:NgramCoverage",
    "coverage-target": "coverage:TargetCoverage",
    "vendi": "spectral:Vendi",
    "logdet": "spectral:LogDeterminant",
}


@cache
def _registered() -> dict[str, EntryPoint]:
    return {entry.name.lower(): entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """Canonical (lower-case) names of all metrics, built in first."""
    return [*BUILT_IN, *(name for name in sorted(_registered()) if name not in BUILT_IN)]


def metric_class(name: str) -> type[Metric]:
    """The class of a canonical name.

    :raises ConfigError: unknown name, or a registered metric that cannot be imported or lacks `value`.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(import_module(f"{__name__}.{module}"), attribute)
    if name not in _registered():
        raise ConfigError(f"unknown metric {name!r}{nearest(name, names())}; valid: {', '.join(names())}")
    try:
        found = _registered()[name].load()
    except Exception as error:
        raise ConfigError(f"metric {name!r} ({_registered()[name].value}) cannot be loaded: {error}") from error
    if not callable(getattr(found, "value", None)):
        raise ConfigError(f"metric {name!r} ({_registered()[name].value}) has no method value(masks)")
    return found
