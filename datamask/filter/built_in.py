"""The filters that are built in, a class each, as one of your own is (`examples/own_filter.py`).

A filter has a name, which is the reason of a document that falls, and `columns`, what it reads; `keep(documents)` says
of each document whether it stays. Exact duplicates look at all shards: `exact_duplicates.ExactDuplicates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import extensions
from datamask.config import Config, OwnFilter
from datamask.errors import ConfigError
from datamask.filter import contamination
from datamask.filter.exact_duplicates import ExactDuplicates
from datamask.filter.resolve import REASONS
from datamask.filter.where import Condition


class Filter(Protocol):
    """What every filter has."""

    name: str
    columns: tuple[str, ...]  # of the corpus, or a score, or one of `filters.LIGHT`

    def keep(self, documents: pa.Table) -> np.ndarray:
        """documents: `columns` and others, n rows -> (n,) bool, true for what stays."""
        ...


class Where:
    """A condition in SQL, `filter.where`."""

    name = "where"

    def __init__(self, condition: Condition, connection: duckdb.DuckDBPyConnection | None) -> None:
        """:param connection: None: nothing is asked of it."""
        self.columns, self._condition, self._connection = condition.columns, condition, connection

    def keep(self, documents: pa.Table) -> np.ndarray:
        assert self._connection is not None
        return self._condition.keeps(self._connection, documents)


class Languages:
    """`filter.languages`: the only ones that stay."""

    name = "language"
    columns: tuple[str, ...] = ("language",)

    def __init__(self, languages: Sequence[str]) -> None:
        self._languages = pa.array(languages, pa.string())

    def keep(self, documents: pa.Table) -> np.ndarray:
        return np.asarray(pc.is_in(documents["language"], value_set=self._languages))


class Tokens:
    """`filter.min_tokens`, the least that stays, or `filter.max_tokens`, the most."""

    columns: tuple[str, ...] = ("token_count",)

    def __init__(self, name: str, bound: int) -> None:
        self.name, self._bound = name, bound

    def keep(self, documents: pa.Table) -> np.ndarray:
        count = np.asarray(documents["token_count"])
        return count >= self._bound if self.name == "min_tokens" else count <= self._bound


class Contaminated:
    """`filter.decontaminate`: no document stays that holds a test item."""

    name = "contaminated"
    columns: tuple[str, ...] = ("chunk_id",)

    def __init__(self, held: Mapping[int, str]) -> None:
        """:param held: what each contaminated document of a shard holds, by chunk_id."""
        self._held = held

    def keep(self, documents: pa.Table) -> np.ndarray:
        return ~np.isin(np.asarray(documents["chunk_id"]), list(self._held))


class Own:
    """A filter of the user's, `filter.own`, checked where it is constructed and where it answers."""

    def __init__(self, settings: OwnFilter) -> None:
        """:raises ConfigError: it cannot be loaded, or not be constructed with its options."""
        self.name = settings.label
        self._filter = extensions.require("filter", settings.use).make(settings.options)
        what = f"filter.own: {self.name}"
        self.columns: tuple[str, ...] = tuple(extensions.declared_names(self._filter, what, "columns", ("text",)))

    def keep(self, documents: pa.Table) -> np.ndarray:
        """:raises ConfigError: it raises, or gives something else than a truth value for each document."""
        with extensions.named_in_errors(f"filter.own: {self.name}"):
            answer = self._filter.keep(documents.select(list(self.columns)))
            kept = np.asarray(answer)
        if kept.shape != (documents.num_rows,) or kept.dtype != bool:
            gave = f"an array of shape {kept.shape} and type {kept.dtype}" if kept.ndim else type(answer).__name__
            raise ConfigError(
                f"filter.own: {self.name} gave {gave} for "
                f"{documents.num_rows} documents; keep(documents) returns a bool for each: true for what stays"
            )
        return kept


TOKENS = ("min_tokens", "max_tokens")
BUILT_IN = (*(each.name for each in (Where, Languages, Contaminated, ExactDuplicates)), *TOKENS)
# what decisions and `datamask explain` call otherwise
TAKEN = (*BUILT_IN, *REASONS.values(), "selected", "not_selected")


def filters_of(
    config: Config,
    condition: Condition | None,
    connection: duckdb.DuckDBPyConnection | None = None,
    held: Mapping[int, str] | None = None,
) -> list[Filter]:
    """The filters that the settings ask for, in the order in which they are asked: the first that takes a document
    names it. Exact duplicates come after them.

    :param condition: of `filter.where`, checked against the corpus.
    :param connection: that conditions are computed by. :param held: see `Contaminated`.
    :raises ConfigError: a filter of the user's cannot be loaded, or two have the same name.
    """
    settings = config.filter
    found: list[Filter] = [Where(condition, connection)] if condition else []
    found += [Languages(settings.languages)] if settings.languages else []
    for own in map(Own, settings.own):
        if own.name in (*TAKEN, *(other.name for other in found)):
            raise ConfigError(f"filter.own: two filters are called {own.name}; name one: {{use: …, name: …}}")
        found.append(own)
    found += [Tokens(name, bound) for name in TOKENS if (bound := getattr(settings, name)) is not None]
    found += [Contaminated(held or {})] if contamination.wanted(config) else []
    return found
