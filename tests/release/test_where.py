"""A condition is one boolean expression over a document's own columns, whatever the user or an attacker writes."""

import datetime
import string

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datamask.duck import connect
from datamask.errors import ConfigError
from datamask.filter.where import ALLOWED, MAX_LENGTH, check_expression

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("token_count", pa.int64()),
        ("language", pa.string()),
        ("date", pa.string()),
        ("url", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("meta", pa.struct([("source", pa.struct([("name", pa.string())])), ("n", pa.int32())])),
        ("raw", pa.string()),
        ("rules", pa.float32()),
        ("rules.words", pa.float32()),
        ("Odd \"name' --", pa.int64()),
        ("vector", pa.list_(pa.float16(), 4)),
        ("when", pa.timestamp("us")),
    ]
)
ROWS = [
    {"text": "a river of stone", "token_count": 4, "language": "en", "date": "2020-05-01", "url": "https://x.org/spam",
     "tags": ["a", "b"], "meta": {"source": {"name": "wiki"}, "n": 1}, "raw": '{"k": [1, 2]}', "rules": 0.5,
     "rules.words": 4.0, "Odd \"name' --": 7, "vector": [0, 1, 0, 0], "when": datetime.datetime(2020, 5, 1)},
    {"text": "北京 naïve 🎭", "token_count": 60, "language": "zh", "date": None, "url": None, "tags": [], "meta": None,
     "raw": None, "rules": 0.9, "rules.words": 3.0, "Odd \"name' --": None, "vector": None, "when": None},
    {"text": "It's 100% \"quoted\"\n-- not a comment /* nor this */ ; drop table x", "token_count": None,
     "language": None, "date": "bad", "url": "https://y.org", "tags": None, "meta": {"source": None, "n": None},
     "raw": "not json", "rules": None, "rules.words": None, "Odd \"name' --": 0, "vector": None, "when": None},
]  # fmt: skip
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


def kept(expression: str) -> list[int]:
    condition = check_expression(expression, SCHEMA)
    with connect("100MB") as connection:
        return np.flatnonzero(condition.keeps(connection, TABLE)).tolist()


@pytest.mark.parametrize(
    "expression, rows",
    [
        ("token_count > 5", [1]),
        ("TOKEN_COUNT > 5 or Language = 'en'", [0, 1]),
        ("token_count > 50 and coalesce(url, '') not like '%spam%'", [1]),
        ("rules.words < rules * 10", [0, 1]),
        ('"rules.words" = 4', [0]),
        ("meta.source.name = 'wiki'", [0]),
        ("meta['source']['name'] = 'wiki'", [0]),
        ("'b' in tags or list_contains(tags, 'zzz')", [0]),
        ("list_filter(tags, lambda t: t = language or t = 'a') = ['a']", [0]),
        ("len([t for t in tags if t = 'a']) = 1", [0]),
        ("raw->>'$.k[0]' = '1'", "raises at run time"),
        ("try(json_extract(raw, '$.k[1]')::int) = 2", [0]),
        ("json_valid(raw)", [0]),
        ("try_cast(date as date) >= date '2020-01-01'", [0]),
        ('"when" < timestamp \'2021-01-01\'', [0]),
        ("\"Odd \"\"name' --\" = 7", [0]),
        ("case when language = 'zh' then true when language is null then null else false end", [1]),
        ("token_count between 1 and 100", [0, 1]),
        ("language in ('en', 'zh') is not false", [0, 1, 2]),
        ("language is distinct from 'en'", [1, 2]),
        ("text similar to '.*river.*' or text ~ '北京'", [0, 1]),
        ("text ilike '%RIVER%' and not (text glob 'b*')", [0]),
        ("text = $$It's 100% \"quoted\"\n-- not a comment /* nor this */ ; drop table x$$", [2]),
        ("length(text) > 10 -- a remark", [0, 2]),
        ("/* a remark */ text[1:1] = 'a'", [0]),
        ("date_diff('day', try_cast(date as date), date '2020-05-03') = 2", [0]),
        ("extract(year from \"when\") = 2020", [0]),
        ("\"when\" + interval 1 day > timestamp '2020-05-01 12:00:00'", [0]),
        ("true", [0, 1, 2]),
        ("1 = 2", []),
        ("true ;;".rstrip("; "), [0, 1, 2]),
    ],
)  # fmt: skip
def test_conditions_mean_what_they_say(expression, rows):
    if rows == "raises at run time":
        with pytest.raises(ConfigError, match="cannot be computed"):
            kept(expression)
    else:
        assert kept(expression) == rows


def test_only_the_columns_named_are_asked_for():
    assert check_expression("token_count > 5 and rules.words > 1", SCHEMA).columns == ("token_count", "rules.words")
    assert check_expression("list_filter(tags, lambda text: text = 'a') = []", SCHEMA).columns == ("tags",)


# what an attacker may try: each must be refused with a message, and touch nothing
ATTACKS = [
    # reading files and the network
    "(select count(*) from read_text('/etc/passwd')) > 0",
    "exists(select * from '/etc/passwd')",
    "text in (select content from read_text('/etc/passwd'))",
    "text = any(select content from glob('/etc/*'))",
    "read_text('/etc/passwd') is not null",
    "read_blob('/etc/passwd') is not null",
    "read_csv('/etc/passwd') is not null",
    "read_parquet('secret.parquet') is not null",
    "read_json_auto('https://evil.example/x') is not null",
    "glob('/etc/*') is not null",
    "sniff_csv('/etc/passwd') is not null",
    "parquet_metadata('x') is not null",
    "list_filter(tags, lambda t: (select true))[1] = 'a'",
    "array(select content from read_text('/etc/passwd')) = []",
    "[x for x in (select [1])] = []",
    "case when true then (select true) end",
    "coalesce((select true from '/etc/passwd'), true)",
    "cast((select 'true') as boolean)",
    "token_count between 1 and (select 5)",
    "from '/etc/passwd'",
    "from read_text('/etc/passwd') select true",
    "table x",
    "values (true)",
    "pivot x on y",
    "describe x",
    "show tables",
    "summarize x",
    # more than one expression or statement
    "true; drop table documents",
    "true); drop table documents; select (true",
    "true); copy (select 1) to '/tmp/attack'; select (true",
    "true); attach '/tmp/attack.db'; select (true",
    "true); install httpfs; load httpfs; select (true",
    "true); set memory_limit='64GB'; select (true",
    "true); pragma enable_external_access; select (true",
    "true) from read_text('/etc/passwd') where (true",
    "true) union all select (true",
    "true) union select content = '' from read_text('/etc/passwd') where (true",
    "true) except select (false",
    "true), (false",
    "true) as a, (true",
    "true) order by (random()",
    "true) limit (1",
    "true) group by (1",
    "true) group by all having (true",
    "true) using sample (1",
    "true) window w as (order by 1) qualify (true",
    "true) where (true",
    "true --\n) from read_text('/etc/passwd') where (true",
    "true /* ) */ ) from x where (true",
    "with x as (select 1) select true",
    "explain select true",
    "create table x as select 1",
    "begin",
    "call pragma_version()",
    "execute x",
    "/* unfinished",
    "'unfinished",
    "$$unfinished",
    # settings, session, catalogue, time, chance
    "current_setting('memory_limit') is not null",
    "getvariable('x') is null",
    "set_config('a', 'b', false) is null",
    "current_database() is not null",
    "current_schema() is not null",
    "current_schemas(true) is not null",
    "current_user is not null",
    "session_user = 'x'",
    "current_query() is not null",
    "txid_current() > 0",
    "version() is not null",
    "pg_typeof(text) is null",
    "pg_sleep(10) is null",
    "sleep_ms(10000) is null",
    "has_table_privilege('x', 'y')",
    "obj_description(1, 'x') is null",
    "inet_client_addr() is null",
    "now() > timestamp '2020-01-01'",
    "today() > date '2020-01-01'",
    "current_date > date '2020-01-01'",
    "current_timestamp is not null",
    "localtimestamp is not null",
    "get_current_timestamp() is not null",
    "age(\"when\") > interval 1 day",
    "random() < 0.5",
    "setseed(0.5) is null",
    "uuid() is not null",
    "gen_random_uuid() is not null",
    "nextval('s') > 0",
    "currval('s') > 0",
    "write_log('x') is null",
    "error('x') is null",
    "getenv('HOME') is not null",
    "which_secret('x', 's3') is not null",
    "json_execute_serialized_sql('x') is not null",
    "json_serialize_sql('select 1') is not null",
    "json_deserialize_sql('x') is not null",
    "query('select 1') is not null",
    "query_table('x') is not null",
    "system.main.length(text) > 0",
    "main.length(text) > 0",
    "text.read_text() is null",
    '"read_text"(\'/etc/passwd\') is null',
    "\"READ_TEXT\"('/etc/passwd') is null",
    # more than one document at a time
    "count(*) > 0",
    "sum(token_count) > 1",
    "any_value(text) = ''",
    "row_number() over () < 10",
    "sum(token_count) over (order by url) < 1000",
    "token_count > (select avg(token_count) from documents)",
    "rank() over w < 2",
    "grouping(text) = 0",
    "unnest(tags) = 'a'",
    "regexp_split_to_table(text, ' ') = 'a'",
    "* is not null",
    "columns(*) is not null",
    "columns('t.*') > 0",
    "documents.* is null",
    "#1 > 0",
    "? = 1",
    "$1 = 1",
    "$name = 1",
    "default",
    "length(distinct text) > 1",
    "length(text order by url) > 1",
    "length(text) filter (where true) > 1",
    "rowid > 1",
    "documents.rowid > 1",
    # memory and time
    "repeat(text, 1000000000) = ''",
    "lpad('x', 2000000000, 'y') = ''",
    "range(100000000000) = []",
    "generate_series(1, 100000000000) = []",
    "list_resize([1], 100000000000) = []",
    "bar(1, 0, 2, 2000000000) = ''",
    "printf('%2000000000d', 1) = ''",
    "format('{:2000000000}', 1) = ''",
    # not a condition
    "",
    "   \n\t ",
    "-- only a remark",
    "()",
    "1",
    "null",
    "text",
    "token_count + 1",
    "token_count >",
    "token_count > 5 language = 'en'",
    "(true",
    "true)",
    "tokencount > 5",
    "meta.nothing = 1",
    "vector is not null",
    "text > date '2020-01-01' + 5 + 'x'",
    "lenght(text) > 5",
    "a\x00b = 1",
    "\ud800 = 1",
    "token_count > 5\x00; drop table x",
    "(" * 5000 + "true" + ")" * 5000,
    "not " * 5000 + "true",
    "true " * MAX_LENGTH,
]  # fmt: skip


@pytest.mark.parametrize("expression", ATTACKS, ids=range(len(ATTACKS)))
def test_attacks_are_refused_with_a_message(expression):
    with pytest.raises(ConfigError) as caught:
        check_expression(expression, SCHEMA)
    message = str(caught.value)
    assert message.startswith("filter.where") and "\n" not in message and len(message) < 4000


@pytest.mark.parametrize(
    "expression, says",
    [
        ("tokn_count > 5", 'unknown column tokn_count; did you mean "token_count"? (valid: text, token_count'),
        ("lang = 'en'", "unknown column lang; the corpus's lang is read as language (valid: text, "),
        ('"r\n_text"(text) is null', "function r _text is not allowed"),
        ("lenght(text) > 5", 'function lenght is not allowed; did you mean "length"'),
        ("text in (select 1)", "may not contain a subquery"),
        ("row_number() over () < 10", "may not contain a window function"),
        ("token_count", "is int64, not a condition; compare it"),
        ("vector is null", "column vector has type fixed_size_list<item: halffloat>[4], which a condition cannot read"),
        ("token_count > and 5", "not a SQL expression: syntax error at or near"),
        ("meta.nope = 1", "meta has no field nope (valid: source, n)"),
        ("meta.source.nam = 'x'", 'meta.source has no field nam; did you mean "name"? (valid: name)'),
        ("text.x = 1", "text has no field x (it is string)"),
        ("text in ()", "filter.where: () holds no value; name some, such as: language in ('en', 'de')"),
        ("token_count > 5 and text not in ()", "() holds no value; name some"),
        ("-- nothing", "filter.where is empty; null means no condition"),
    ],
)  # fmt: skip
def test_messages_say_what_and_what_is_valid(expression, says):
    with pytest.raises(ConfigError) as caught:
        check_expression(expression, SCHEMA)
    assert says in str(caught.value)


def test_what_cannot_be_computed_is_named():
    with pytest.raises(ConfigError, match="cannot be computed.*try_cast"):
        kept("cast(text as integer) > 5")


def test_the_connection_itself_reaches_nothing(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with connect("100MB", str(tmp_path / "work")) as connection:
        for statement in (
            f"SELECT * FROM read_text('{tmp_path}/secret.txt')",
            f"COPY (SELECT 1) TO '{tmp_path}/written.csv'",
            f"ATTACH '{tmp_path}/other.db'",
            f"EXPORT DATABASE '{tmp_path}/dump'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET memory_limit = '64GB'",
            "SET enable_external_access = true",
            "RESET lock_configuration",
            "PRAGMA temp_directory='/tmp'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(statement).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.txt", "work"]


def test_what_one_use_of_a_database_in_memory_leaves_no_other_sees():
    for _ in range(3):
        with connect("99MB") as connection:
            connection.register("seen", TABLE.select(["text"]))
            with connect("99MB") as another:
                another.execute("CREATE TABLE kept AS SELECT 1")  # nor is it there in the next turn
                with pytest.raises(duckdb.Error):
                    another.execute("SELECT * FROM seen")
            with pytest.raises(duckdb.Error):
                connection.execute("SET memory_limit = '64GB'")


def test_every_allowed_function_depends_on_its_arguments_alone():
    with connect("100MB") as connection:
        rows = connection.execute(
            "SELECT function_name, list(DISTINCT coalesce(stability, 'CONSISTENT')), list(DISTINCT function_type) "
            "FROM duckdb_functions() GROUP BY ALL"
        ).fetchall()
    known = {name.lower(): (stability, kinds) for name, stability, kinds in rows}
    for name in ALLOWED - {"!=", "<>", "<", "<=", ">", ">=", "="}:
        assert name in known, name
        stability, kinds = known[name]
        assert stability == ["CONSISTENT"], name
        assert "macro" in kinds or "scalar" in kinds, name


# expressions from a small grammar, and their values in Python: what runs is SQL written anew from the parse tree
LEAVES = st.sampled_from(["token_count", "rules", "3", "0.5", "-2", "null", "1e3"])
NUMBERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda x: f"abs({x})"),
        st.tuples(inner, inner).map(lambda t: f"coalesce({t[0]}, {t[1]})"),
    ),
    max_leaves=6,
)
BOOLEANS = st.recursive(
    st.one_of(
        st.tuples(NUMBERS, st.sampled_from(["<", "<=", "=", "<>", ">=", "is distinct from"]), NUMBERS).map(" ".join),
        st.sampled_from(["language = 'en'", "language in ('en', 'fr')", "text like '%o%'", "url is null", "true"]),
        st.just("tags = ['a', 'b']"),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda x: f"not ({x})"),
        st.tuples(inner, inner, inner).map(lambda t: f"case when {t[0]} then {t[1]} else {t[2]} end"),
    ),
    max_leaves=6,
)  # fmt: skip


@hypothesis_settings(deadline=None, max_examples=40)
@given(BOOLEANS)
def test_the_sql_written_anew_means_the_same(expression):
    with duckdb.cursor() as plain:  # of the module's own database
        plain.register("documents", TABLE.select(["text", "token_count", "language", "url", "tags", "rules"]))
        expected = [row[0] for row in plain.execute(f"SELECT coalesce({expression}, false) FROM documents").fetchall()]
    assert kept(expression) == np.flatnonzero(expected).tolist()


WORDS = [
    *"select from token_count text ( ) , ' \" ; -- /* */ * read_text lambda : -> [ ] { } . and or not = > $$".split(),
    *"$1 ? case".split(),
    *"when end :: int union over filter where 1 null é cast as in exists list_filter".split(),
    "\n",
    "\x00",
]


@hypothesis_settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(string.printable, max_size=5)), max_size=25).map(" ".join))
def test_whatever_is_typed_gives_a_condition_or_one_message(expression):
    try:
        condition = check_expression(expression, SCHEMA)
    except ConfigError as error:
        assert str(error).startswith("filter.where")
    else:
        assert set(condition.columns) <= set(SCHEMA.names)
