"""Diversity metrics: how unlike one another the selected documents are. Larger is more diverse.

A metric is a class (see `base.Metric`). Those built in are listed in `datamask.extensions`; one of your own is named as
every extension is: by an entry point of the group datamask.metrics, or as module:Class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask import extensions

if TYPE_CHECKING:
    from datamask.selection.metrics.base import Metric


def metric_class(name: str) -> type[Metric]:
    """The class of a canonical name.

    :raises ConfigError: unknown name, or a metric of the user's that cannot be imported or lacks `value`.
    """
    return extensions.require("metric", name).load()
