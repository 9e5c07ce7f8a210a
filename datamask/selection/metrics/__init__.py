"""Diversity metrics: how unlike one another the selected documents are. Larger is more diverse.

A metric is a class (see `base.Metric`). Those built in are listed in `datamask.extensions`; one of your own is named as
every extension is: by an entry point of the group datamask.metrics, or as module:Class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask import extensions
from datamask.errors import ConfigError

if TYPE_CHECKING:
    from datamask.config import ResolvedSelect
    from datamask.selection.metrics.base import Metric


def metric_class(name: str) -> type[Metric]:
    """The class of a canonical name.

    :raises ConfigError: unknown name, or a metric of the user's that cannot be imported or lacks `value`.
    """
    return extensions.require("metric", name).load()


def metric_columns(name: str) -> tuple[str, ...]:
    """The columns of the corpus that a metric reads: what its class declares as `columns`, or none.

    :raises ConfigError: see `metric_class`; or `columns` is something else than names.
    """
    if name in extensions.BUILT_IN["metric"]:
        return ()  # none reads any, and they need not be loaded to be asked
    declared = getattr(metric_class(name), "columns", ())
    if isinstance(declared, str) or not all(isinstance(column, str) for column in declared):
        raise ConfigError(f"metric {name!r} declares columns {declared!r}; valid: a tuple of names, e.g. ('domain',)")
    return tuple(declared)


def pool_columns(settings: ResolvedSelect) -> tuple[str, ...]:
    """The columns that a pool must have as `groups`: those of the quotas, then those that the metrics read.

    :raises ConfigError: see `metric_columns`.
    """
    of_quotas = [quota.column for quota in settings.quotas]
    return tuple(dict.fromkeys([*of_quotas, *(column for name in settings.metrics for column in metric_columns(name))]))
