"""The user's condition: one SQL expression over a document's columns and scores that reads nothing else.

    condition = check_expression("token_count > 50 and url not like '%spam%'", schema)
    kept = condition.keeps(connection, table)      # bool array, one value a row

DuckDB parses it; the parse tree is checked node by node against what is allowed (no subqueries, no table, window or
aggregate functions, only functions whose value depends on their arguments alone); what runs is SQL written anew from
the checked tree, on a connection that can reach no file and change no setting (`duck.connect`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from datamask.corpus.columns import nearest_column
from datamask.duck import connect, first_line, tables
from datamask.errors import ConfigError, nearest

MAX_LENGTH = 100_000  # characters of an expression

# By family, DuckDB's names. All are CONSISTENT scalar functions or macros over such; none makes a value much larger
# than its arguments (repeat, lpad, format, range, list_reduce …), reads the clock, the session or a file.
# Operators stand at the end.
ALLOWED = frozenset(
    """
    array_slice ascii bit_length chr char_length character_length concat concat_ws contains damerau_levenshtein
    ends_with formatreadablesize hamming instr jaccard jaro_similarity jaro_winkler_similarity lcase left
    left_grapheme len length length_grapheme levenshtein lower ltrim md5 mismatches nfc_normalize octet_length ord
    parse_dirname parse_dirpath parse_filename parse_path position prefix regexp_escape regexp_extract
    regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array replace reverse right
    right_grapheme rtrim sha1 sha256 split split_part starts_with str_split str_split_regex string_split
    string_split_regex string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix
    translate trim ucase unicode upper url_decode url_encode like_escape not_like_escape ilike_escape not_ilike_escape

    abs acos asin atan atan2 bit_count cbrt ceil ceiling cos cot degrees even exp fdiv floor fmod gcd greatest hash
    isfinite isinf isnan lcm least ln log log10 log2 mod nextafter pi pow power radians round round_even sign signbit
    sin sqrt tan trunc xor add subtract multiply divide

    century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth
    dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian last_day make_date
    make_time make_timestamp microsecond millennium millisecond minute month monthname nanosecond quarter second
    strftime strptime time_bucket timezone to_centuries to_days to_decades to_hours to_microseconds to_millennia
    to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years try_strptime week
    weekday weekofyear year yearweek

    array_contains array_extract array_has array_has_all array_has_any array_length array_position array_to_string
    cardinality element_at flatten list_aggregate list_any_value list_apply list_avg list_bool_and list_bool_or
    list_contains list_cosine_distance list_cosine_similarity list_count list_distance list_distinct list_dot_product
    list_element list_extract list_filter list_first list_has list_has_all list_has_any list_indexof
    list_inner_product list_intersect list_last list_max list_median list_min list_mode list_position list_product
    list_reverse list_slice list_sort list_sum list_transform list_unique list_value list_var_pop
    list_stddev_pop map map_contains map_entries map_extract map_extract_value map_keys map_values row struct_extract
    struct_extract_at struct_pack struct_contains struct_keys union_extract union_tag

    json_array_length json_contains json_exists json_extract json_extract_path json_extract_path_text
    json_extract_string json_keys json_type json_valid json_value

    if nullif typeof

    + - * / // % ** ^ & | ~ << >> || && @ @> <@ <-> <=> ^@ ~~ !~~ ~~* !~~* ~~~ ->> = != <> < <= > >=
    """.split()  # noqa: SIM905
)

# classes of DuckDB's parse tree; SUBQUERY, WINDOW, STAR, PARAMETER, POSITIONAL_REFERENCE, DEFAULT … are not among them
_CLASSES = {
    "COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "FUNCTION", "CASE", "CAST", "BETWEEN", "LAMBDA",
    "COLLATE", "TYPE",
}  # fmt: skip
_WHAT = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "* or COLUMNS(…)",
    "PARAMETER": "a parameter (? or $name)",
    "POSITIONAL_REFERENCE": "a column by position (#1)",
}


@dataclass(frozen=True)
class Condition:
    """A checked condition."""

    sql: str  # written from the checked tree; the columns are called _0, _1, …
    columns: tuple[str, ...]  # the columns it names, in that order

    def keeps(self, connection: duckdb.DuckDBPyConnection, table: pa.Table) -> np.ndarray:
        """True for the rows of `table` for which the condition is true; false and unknown (null) are false.

        :raises ConfigError: a value cannot be computed (a failing cast, a number too large).
        """
        query = f"SELECT coalesce({self.sql}, false) AS kept FROM documents"
        try:
            return run_query(connection, query, self.renamed(table))["kept"].to_numpy()
        except duckdb.Error as error:
            raise ConfigError(
                f"filter.where cannot be computed: {self.explain(error)}; try_cast(… as …) is null where a cast fails"
            ) from error

    def renamed(self, table: pa.Table) -> pa.Table:
        """The columns of `table` that the condition names, as its SQL calls them."""
        if not self.columns:  # a constant condition still has a value for each row
            return pa.table({"_": pa.nulls(table.num_rows, pa.int8())})
        return table.select(self.columns).rename_columns([f"_{n}" for n in range(len(self.columns))])

    def explain(self, error: Exception) -> str:
        """DuckDB's message with our columns' names."""
        named = {f"_{n}": name for n, name in enumerate(self.columns)}
        return re.sub(r"\b_\d+\b", lambda found: named.get(found[0], found[0]), first_line(error))


def run_query(connection: duckdb.DuckDBPyConnection, sql: str, documents: pa.Table) -> pa.Table:
    """The result of `sql` over an Arrow table called `documents`."""
    with tables(connection, documents=documents):
        return connection.sql(sql).to_arrow_table()


def check_expression(expression: str, schema: pa.Schema, scorers: Collection[str] = ()) -> Condition:
    """The condition of an expression over columns of `schema`.

    :param scorers: names that any signals may follow (rules.words): float columns that `schema` does not have yet.
    :raises ConfigError: it is not one boolean expression over these columns; names what is not allowed, and the valid.
    """
    try:
        with connect("100MB") as connection:
            tree = _parse(connection, expression)
            rewriter = _Rewriter(schema, scorers)
            rewriter.visit(tree["statements"][0]["node"]["select_list"][0], frozenset())
            [(sql,)] = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
            condition = Condition("(" + sql.removeprefix("SELECT ") + ")", tuple(rewriter.used))
            _bind(connection, condition, rewriter.schema)
            return condition
    except ConfigError as error:  # a quoted name may hold line breaks; a message is one line
        raise ConfigError(" ".join(str(error).split())) from None


def _parse(connection: duckdb.DuckDBPyConnection, expression: str) -> dict[str, Any]:
    if not expression.strip():
        raise ConfigError("filter.where is empty; null means no condition")
    if len(expression) > MAX_LENGTH:
        raise ConfigError(f"filter.where has {len(expression)} characters, the most is {MAX_LENGTH}")
    if found := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", expression):
        raise ConfigError(f"filter.where: character {found.start() + 1} is a control character ({found[0]!r})")
    before = "SELECT (\n"
    try:
        [(parsed,)] = connection.execute("SELECT json_serialize_sql(?)", [f"{before}{expression}\n)"]).fetchall()
        tree: dict[str, Any] = json.loads(parsed)
    except (duckdb.Error, RecursionError) as error:
        raise ConfigError(f"filter.where is not a SQL expression: {first_line(error)}") from error
    if tree["error"]:
        message = " ".join(tree["error_message"].split())
        place = int(tree.get("position") or 0) - len(before.encode())
        near = expression.encode()[max(place - 20, 0) :][:60].decode(errors="ignore")
        near = " ".join(near.split())
        raise ConfigError(f"filter.where is not a SQL expression: {message}" + (f" (… {near} …)" if place >= 0 else ""))
    statements = tree["statements"]
    node = statements[0]["node"]
    plain = {"type", "select_list", "from_table", "aggregate_handling"}
    if (
        len(statements) != 1
        or node["type"] != "SELECT_NODE"
        or len(node["select_list"]) != 1
        or node["from_table"]["type"] != "EMPTY"
        or any(value not in ([], {}, None, {"map": []}) for name, value in node.items() if name not in plain)
    ):
        raise ConfigError("filter.where must be one expression, such as: token_count > 50 and language = 'en'")
    if _is_nothing(node["select_list"][0]):  # nothing but comments
        raise ConfigError("filter.where is empty; null means no condition")
    return tree


def _is_nothing(node: dict[str, Any]) -> bool:
    """Whether a node stands for (), which DuckDB reads as a row without fields."""
    return node.get("function_name", "").lower() == "row" and not node.get("arguments", node.get("children"))


class _Rewriter:
    """Walks a parse tree: refuses what is not allowed, and puts _0, _1, … for the columns."""

    def __init__(self, schema: pa.Schema, scorers: Collection[str]) -> None:
        self.schema = schema
        self.scorers = {name.lower() for name in scorers}
        self.used: list[str] = []

    def visit(self, node: Any, parameters: frozenset[str]) -> None:
        """Iterative, as trees can be deep; `parameters` are the names of enclosing lambdas."""
        pending = [(node, parameters)]
        while pending:
            node, parameters = pending.pop()
            if isinstance(node, list):
                pending += [(item, parameters) for item in reversed(node)]
            elif isinstance(node, dict):
                if "class" in node:
                    parameters = self._check(node, parameters)
                skipped = "lhs" if self._is_lambda(node) else None
                pending += [(value, parameters) for name, value in reversed(node.items()) if name != skipped]

    def _is_lambda(self, node: dict[str, Any]) -> bool:
        return node.get("class") == "LAMBDA" and node.get("syntax_type") == "LAMBDA_KEYWORD"

    def _check(self, node: dict[str, Any], parameters: frozenset[str]) -> frozenset[str]:
        kind = node["class"]
        if kind not in _CLASSES or node["type"] == "GROUPING_FUNCTION":
            what = _WHAT.get(kind, node["type"].lower().replace("_", " "))
            raise ConfigError(f"filter.where may not contain {what}: it must look at one document alone")
        if kind == "FUNCTION":
            self._check_function(node)
        elif kind == "COLUMN_REF":
            self._name(node, parameters)
        elif self._is_lambda(node):
            return parameters | {name.lower() for name in _lambda_names(node["lhs"])}
        return parameters

    def _check_function(self, node: dict[str, Any]) -> None:
        path = node.get("qualified_name", {}).get("path", [node["function_name"]])
        name = node["function_name"].lower()
        if len(path) > 1 or node.get("schema") or node.get("catalog"):
            raise ConfigError(f"filter.where: call functions as f(x), not {'.'.join(path)}(…)")
        if _is_nothing(node):
            raise ConfigError("filter.where: () holds no value; name some, such as: language in ('en', 'de')")
        if name not in ALLOWED:
            named = sorted(f for f in ALLOWED if f[0].isalpha())
            raise ConfigError(
                f"filter.where: function {name} is not allowed{nearest(name, named)} (allowed: {', '.join(named)})",
                setting="filter.where",
                valid=named,
            )
        orders = (node.get("order_bys") or {}).get("orders")
        if node.get("distinct") or node.get("filter") or orders:
            raise ConfigError(f"filter.where: {name}(…) takes plain arguments, no DISTINCT, ORDER BY or FILTER")

    def _name(self, node: dict[str, Any], parameters: frozenset[str]) -> None:
        names = node["column_names"]
        if names[0].lower() in parameters:
            return
        name = ".".join(names)
        if self._find(name) is None and len(names) > 1 and names[0].lower() in self.scorers:
            self.schema = self.schema.append(pa.field(name, pa.float32()))
        for length in range(len(names), 0, -1):  # a column whose name has dots, else a field of a struct
            found = self._find(".".join(names[:length]))
            if found is not None:
                if found not in self.used:
                    self.used.append(found)
                self._check_fields(found, names[length:])
                node["column_names"] = [f"_{self.used.index(found)}", *names[length:]]
                return
        raise ConfigError(
            f"filter.where: unknown column {name}{nearest_column(name, self.schema.names)} "
            f"(valid: {', '.join(self.schema.names)})",
            setting="filter.where",
            valid=self.schema.names,
        )

    def _check_fields(self, column: str, fields: list[str]) -> None:
        type_ = self.schema.field(column).type
        place = column
        for field in fields:
            there = [f.name for f in type_.fields] if pa.types.is_struct(type_) else []
            same = [name for name in there if name.lower() == field.lower()]
            if not same:
                raise ConfigError(
                    f"filter.where: {place} has no field {field}{nearest(field, there)} "
                    + (f"(valid: {', '.join(there)})" if there else f"(it is {type_})")
                )
            type_, place = type_.field(same[0]).type, f"{place}.{same[0]}"

    def _find(self, name: str) -> str | None:
        if name in self.schema.names:
            return name
        same = [column for column in self.schema.names if column.lower() == name.lower()]
        return same[0] if len(same) == 1 else None


def _lambda_names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield from node["column_names"]
        else:
            for value in node.values():
                yield from _lambda_names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _lambda_names(value)


def _bind(connection: duckdb.DuckDBPyConnection, condition: Condition, schema: pa.Schema) -> None:
    empty = condition.renamed(schema.empty_table())
    for name, field in zip(condition.columns, empty.schema, strict=False):
        try:
            run_query(connection, f'SELECT "{field.name}" FROM documents', empty.select([field.name]))
        except duckdb.Error as error:
            raise ConfigError(
                f"filter.where: column {name} has type {field.type}, which a condition cannot read"
            ) from error
    try:
        result = run_query(connection, f"SELECT {condition.sql} FROM documents", empty)
    except (duckdb.Error, pa.ArrowException) as error:
        raise ConfigError(f"filter.where: {condition.explain(error)}") from error
    if not pa.types.is_boolean(result.schema.types[0]):
        kind = result.schema.types[0]
        raise ConfigError(f"filter.where is {kind}, not a condition; compare it, e.g. token_count > 50")
