"""What can be told of a configuration before anything is embedded or scored: minutes rather than hours after the start.

It stands above the rooms of the stages, since it asks each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from datamask import extensions
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.read import INDEX_COLUMNS, check_columns, corpus_schema
from datamask.errors import ConfigError, nearest
from datamask.filter.filters import check_filters
from datamask.release.personal import PersonalRules
from datamask.selection.metrics import pool_columns


def check_settings(shards: Sequence[Shard], config: Config) -> None:
    """Whether settings fit the (converted) shards, and whether what they name can be imported.

    :raises ConfigError: see `filter_corpus`; a column that a quota or a metric reads is in no file; a scorer or a
        metric of the user's own cannot be imported.
    :raises InputError: see `corpus.read.check_columns`.
    :raises MissingExtraError: a package that the settings need is not installed.
    """
    check_columns(shards, config)
    PersonalRules.of(config.release)
    check_filters(shards, config)
    for scorer in config.quality.scorers:
        if own := extensions.find("scorer", scorer.kind):
            own.load()
    _check_pool_columns(corpus_schema(shards, config).names, config)


def _check_pool_columns(names: Sequence[str], config: Config) -> None:
    """:raises ConfigError: a quota or a metric reads a column that no file has."""
    quotas = [quota.column for quota in config.selection.quotas]
    for column in pool_columns(config.selection):
        if column not in (*names, *INDEX_COLUMNS):
            who = "select.quotas" if column in quotas else "select.algorithm, whose metric reads it"
            raise ConfigError(
                f"{who}: no file of the corpus has a column {column!r}"
                f"{nearest(column, names)} (columns: {', '.join(names)})"
            )
