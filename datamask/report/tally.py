"""Exact counts of what became of every row, by every grouping column; and of the scores' signals. Nothing is sampled.

    counts = counted(["language", "source"], outcome, tokens, groups)     # of a shard, anywhere
    tally = Tally(connection, ["language", "source"])                     # a connection of datamask.duck
    tally.take(counts)
    tally.table("language")                                               # GroupCounts: a row per value

The sums lie in DuckDB, which spills what does not fit; what is read back is bounded by `LARGEST` values a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from datamask.duck import insert
from datamask.quality.rules import RULES, Rule
from datamask.release.merge import LENGTH, as_strings, length_bins, with_none

LARGEST = 100_000  # values of a column that are looked at, the largest
# Signals that no published rule has a threshold for, and of which more is worse, by a word of their name.
JUNK = frozenset({
    "ad", "ads", "advert", "advertising", "bars", "boilerplate", "broken", "caps", "doubled", "duplicate",
    "duplicated", "entities", "fault", "gibberish", "html", "lorem", "markup", "mojibake", "navigation", "policy",
    "profanity", "repeated", "repetition", "replacement", "script", "sex", "shouts", "shuffled", "spam", "tags",
    "template", "upper", "uppercase",
})  # fmt: skip


@dataclass(frozen=True)
class GroupCounts:
    """A column's values, the largest first, with the documents of each outcome; and the sums over all values."""

    values: Sequence[str]  # G of them
    documents: npt.NDArray[np.int64]  # (G, outcomes)
    outcomes: Sequence[str]  # selected, not_selected, filter:<name>, quarantine:<reason>
    number: int  # of values there are, G or more
    total: npt.NDArray[np.int64]  # (outcomes,) documents of all values

    def count(self, *prefixes: str) -> npt.NDArray[np.int64]:
        """(G,) documents whose outcome begins with one of `prefixes`; the group's size without any."""
        return self.documents[:, self._places(prefixes)].sum(axis=1)

    def whole(self, *prefixes: str) -> int:
        """The same over all values."""
        return int(self.total[self._places(prefixes)].sum())

    def _places(self, prefixes: tuple[str, ...]) -> list[int]:
        return [place for place, name in enumerate(self.outcomes) if not prefixes or name.startswith(prefixes)]


@dataclass(frozen=True)
class SignalSums:
    """A signal, over candidates and selected: documents that break its rule, or the sum of its values."""

    signal: str  # <scorer>.<signal>
    rule: Rule | None  # None: the values themselves
    candidates: int  # documents that have a value
    selected: int
    candidates_sum: float  # of values, or of documents that break the rule
    selected_sum: float
    squares: float  # of the candidates' values


Signals = dict[tuple[str, Rule | None], npt.NDArray[np.float64]]  # the sums of SignalSums, in its order
COUNTS = pa.schema(
    [
        ("place", pa.int32()),  # of the column
        ("value", pa.string()),
        ("outcome", pa.string()),
        ("documents", pa.int64()),
    ]
)


def counted(columns: Sequence[str], outcome: pa.Array, tokens: pa.Array, groups: pa.Table) -> pa.Table:
    """COUNTS of a shard. outcome, tokens: (rows read,); groups: those of `columns` it has, of the same rows."""
    found = [COUNTS.empty_table()]
    for place, column in enumerate(with_length(columns)):
        if column == LENGTH:
            values = length_bins(tokens)
        elif column in groups.column_names:
            values = as_strings(groups[column])
        else:
            values = pa.repeat("", len(outcome))
        places, ones = pa.repeat(pa.scalar(place, pa.int32()), len(outcome)), pa.repeat(1, len(outcome))
        found.append(summed([pa.table([places, with_none(values), outcome, ones], schema=COUNTS)]))
    return pa.concat_tables(found)


def summed(counts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables([COUNTS.empty_table(), *counts])
    return rows.group_by(COUNTS.names[:3]).aggregate([("documents", "sum")]).rename_columns(COUNTS.names)


def with_length(columns: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(columns), LENGTH]


def signals_of(scores: pa.Table, candidates: npt.NDArray[np.bool_], selected: npt.NDArray[np.bool_]) -> Signals:
    """Sums of a shard's `<scorer>.<signal>` columns. candidates, selected: (rows,) what could be, what was chosen."""
    found: Signals = {}
    for name in scores.column_names:
        for rule in measures(name):
            values = scores[name].to_numpy().astype(np.float64)
            there = np.isfinite(values)
            if rule:
                edge = np.float32(rule.threshold)
                values = (values < edge if rule.bound == "least" else values > edge).astype(np.float64)
            pool, chosen = values[there & candidates], values[there & selected]
            found[name, rule] = np.array([len(pool), len(chosen), pool.sum(), chosen.sum(), np.square(pool).sum()])
    return found


class Tally:
    """The sums of what is counted shard by shard; see the module."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> None:
        self.columns = with_length(columns)
        self._connection = connection
        self._signals: Signals = {}
        connection.execute(
            "CREATE OR REPLACE TABLE tally (place INTEGER, value VARCHAR, outcome VARCHAR, documents BIGINT)"
        )

    def take(self, counts: pa.Table) -> None:
        insert(self._connection, "tally", counts)

    def table(self, column: str) -> GroupCounts:
        place = self.columns.index(column)
        run = self._connection.execute
        named = run(
            "SELECT outcome, sum(documents) FROM tally WHERE place = ? GROUP BY 1 ORDER BY 1", [place]
        ).fetchall()
        outcomes = [name for name, _ in named]
        counts = "".join(
            f", coalesce(sum(documents) FILTER (outcome = ?), 0)::BIGINT AS n{i}" for i in range(len(named))
        )
        found = run(
            f"SELECT value, count(*) OVER () AS number{counts} FROM tally WHERE place = ? GROUP BY value "
            "ORDER BY sum(documents) DESC, value LIMIT ?",
            [*outcomes, place, LARGEST],
        ).fetchnumpy()
        documents = [np.asarray(found[f"n{i}"], dtype=np.int64) for i in range(len(named))]
        return GroupCounts(
            [str(value) for value in found["value"]],
            np.stack(documents, axis=1) if documents else np.zeros((0, 0), dtype=np.int64),
            outcomes,
            int(np.asarray(found["number"])[:1].sum()),
            np.array([count for _, count in named], dtype=np.int64),
        )

    # ------------------------------------------------------------ signals

    def take_signals(self, sums: Signals) -> None:
        for name, values in sums.items():
            self._signals[name] = self._signals.get(name, 0.0) + values

    def signals(self) -> list[SignalSums]:
        return [
            SignalSums(name, rule, int(sums[0]), int(sums[1]), *sums[2:].tolist())
            for (name, rule), sums in self._signals.items()
        ]


def measures(column: str) -> list[Rule | None]:
    """How a `<scorer>.<signal>` column is counted: by the rules about it, else by its values if its name says junk."""
    signal = column.rpartition(".")[2]
    rules: list[Rule | None] = [rule for rule in RULES if rule.signal == signal]
    if rules:
        return [rule for rule in rules if rule and not rule.english]
    return [None] if JUNK & set(signal.lower().split("_")) else []
