"""Filters against a row-by-row oracle; exact duplicates keep the least altered, whatever the order of the shards."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datamask import storage
from datamask.checks import check_settings
from datamask.duck import connect, insert
from datamask.errors import ConfigError, ConservationError
from datamask.filter import filters
from datamask.filter.filters import filter_corpus
from datamask.filter.signatures import sign_shard
from tests.release.made import SCORES, documents, make_corpus, make_masks, make_shard, settings

CONDITIONS = {  # as SQL, and as Python over a row
    None: lambda row: True,
    "token_count > 20": lambda row: row["token_count"] > 20,
    "language = 'en' or rules < 0.5": lambda row: row["language"] == "en" or row["rules"] < 0.5,
    "text like '%stone%' and meta.n % 2 = 0": lambda row: "stone" in row["text"] and row["meta"]["n"] % 2 == 0,
    "rules.words > 10 and dump is not null": lambda row: row["rules.words"] > 10 and row["dump"] is not None,
    "id like 'doc-%' and chunk_id < 50 and characters > 3": lambda row: (
        row["id"].startswith("doc-") and row["chunk_id"] < 50 and row["characters"] > 3
    ),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    files = [replace(f, signatures=sign_shard(f.shard, settings(), str(folder / "work"))) for f in make_corpus(folder)]
    rows = []
    for f in files:
        table = storage.read_table(f.shard.parts[0].path).to_pylist()
        scores = {row["chunk_id"]: row for row in storage.read_table(f.scores.path).to_pylist()}
        signed = storage.read_table(f.signatures.path).to_pylist()
        for row in storage.read_table(f.index.path).to_pylist():
            if row["reason"] is None:
                of = {"shard": f.shard.name, "wear": signed[row["chunk_id"]]["wear"]}
                rows.append(table[row["chunk_id"]] | row | scores[row["chunk_id"]] | of)
    return folder, files, rows


def test_a_new_shard_is_looked_at_alone(corpus, tmp_path, monkeypatch):
    _, files, _ = corpus
    monkeypatch.setattr(filters, "groups", lambda ordered: [(place,) for place in range(len(ordered))])
    looked = []
    shard_codes = filters._shard_codes
    monkeypatch.setattr(filters, "_shard_codes", lambda f, *rest: looked.append(f.shard.name) or shard_codes(f, *rest))
    config, work = settings(filter={"where": "token_count > 20"}), str(tmp_path / "work")
    filter_corpus(files[1:], config, work)
    assert looked == [f.shard.name for f in files[1:]]
    looked.clear()
    found = filter_corpus(files, config, work)
    assert looked == [files[0].shard.name]
    for one, other in zip(found, filter_corpus(files, config, str(tmp_path / "anew")), strict=True):
        assert Path(one.path).read_bytes() == Path(other.path).read_bytes()
    looked.clear()
    filter_corpus(files, settings(filter={"where": "token_count > 21"}), work)
    assert len(looked) == len(files)


def oracle(rows, where, languages, least, most, duplicates):
    reasons = {}
    for row in rows:
        place = row["shard"], row["chunk_id"]
        if not CONDITIONS[where](row):
            reasons[place] = "where"
        elif languages and row["language"] not in languages:
            reasons[place] = "language"
        elif least is not None and row["token_count"] < least:
            reasons[place] = "min_tokens"
        elif most is not None and row["token_count"] > most:
            reasons[place] = "max_tokens"
        else:
            reasons[place] = None
    if duplicates:
        best = {}
        for row in rows:
            place = row["shard"], row["chunk_id"]
            if reasons[place] is None:
                rank = (row["wear"], *place)
                best[row["text_hash"]] = min(best.get(row["text_hash"], rank), rank)
        for row in rows:
            place = row["shard"], row["chunk_id"]
            if reasons[place] is None and best[row["text_hash"]][1:] != place:
                reasons[place] = "exact_duplicate"
    return reasons


def found_reasons(files, outputs):
    found = {}
    for f, output in zip(files, outputs, strict=True):
        table = storage.read_table(output.path)
        for row in table.to_pylist():
            found[f.shard.name, row["chunk_id"]] = row["reason"]
        reasons = [r for r in table["reason"].to_pylist() if r]
        filtered = {name: reasons.count(name) for name in set(reasons)}
        assert output.facts == {"rows": len(table), "passed": len(table) - len(reasons), "filtered": filtered}
    return found


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    where=st.sampled_from(list(CONDITIONS)),
    languages=st.sampled_from([[], ["en"], ["en", "zh"], ["xx"]]),
    least=st.sampled_from([None, 0, 10, 10_000]),
    most=st.sampled_from([None, 1, 30]),
    duplicates=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_every_row_has_the_oracles_reason(corpus, where, languages, least, most, duplicates, order):
    folder, files, rows = corpus
    config = settings(
        filter={
            "where": where,
            "languages": languages,
            "min_tokens": least,
            "max_tokens": most,
            "exact_duplicates": duplicates,
        }
    )
    shuffled = list(files)
    order.shuffle(shuffled)
    outputs = filter_corpus(shuffled, config, str(folder / f"work-{order.random()}"))
    assert found_reasons(shuffled, outputs) == oracle(rows, where, languages, least, most, duplicates)


@pytest.mark.parametrize("name", ["text_hash", "wear", "characters"])
def test_a_condition_reads_the_corpuss_own_column_of_a_name_that_we_use_too(tmp_path, name):
    table = documents(60)
    table = table.append_column(name, [[f"of row {row}" for row in range(60)]])
    files = [make_shard(tmp_path, "s0", table)]
    files = [replace(f, signatures=sign_shard(f.shard, settings(), str(tmp_path / "work"))) for f in files]
    config = settings(filter={"where": f"{name} = 'of row 2' or {name} like '%3'"})
    [output] = filter_corpus(files, config, str(tmp_path / "work"))
    reasons = {row["chunk_id"]: row["reason"] for row in storage.read_table(output.path).to_pylist()}
    kept = [row for row, reason in reasons.items() if reason != "where"]
    assert kept == [row for row in reasons if row == 2 or row % 10 == 3] and len(kept) > 3


def test_the_second_time_is_cached_and_the_order_does_not_matter(corpus, tmp_path):
    _, files, _ = corpus
    work = str(tmp_path)
    first = filter_corpus(files, settings(), work)
    assert not any(output.cached for output in first)
    shuffled = random.Random(1).sample(files, len(files))
    again = filter_corpus(shuffled, settings(filter={"memory_limit": "200MB"}), work)
    assert all(output.cached for output in again)
    assert {output.path for output in again} == {output.path for output in first}
    Path(first[0].path).write_bytes(b"torn")
    mended = filter_corpus(files, settings(), work)
    assert [output.path for output in mended] == [output.path for output in first]
    assert [output.cached for output in mended] == [False, True, True]


def test_a_new_shard_leaves_the_others_files_as_they_were(tmp_path):
    files = make_corpus(tmp_path)
    work = str(tmp_path / "out/work")
    before = {f.shard.name: o.key for f, o in zip(files, filter_corpus(files, settings(), work), strict=True)}
    fresh = pa.table({"text": [f"never seen {n}" for n in range(30)], "id": [f"n{n}" for n in range(30)]})
    more = [*files, make_shard(tmp_path, "a-new", fresh)]
    after = {f.shard.name: o.key for f, o in zip(more, filter_corpus(more, settings(), work), strict=True)}
    assert {name: after[name] for name in before} == before


def test_nothing_is_left_in_the_temporary_folder(tmp_path):
    files = make_corpus(tmp_path)
    work = tmp_path / "out/work"
    filter_corpus(files, settings(filter={"where": "token_count > 1"}), str(work))
    assert not list((work / "tmp").iterdir())
    abandoned = work / "tmp" / "duckdb-dead"
    abandoned.mkdir()
    (work / "tmp" / "duckdb-dead.lock").touch()
    filter_corpus(files, settings(filter={"where": "token_count > 2"}), str(work))
    assert not list((work / "tmp").iterdir())


def test_filters_after_the_selection_look_only_at_what_it_selected(tmp_path):
    files = [make_masks(f, tmp_path, share=0.5, filters=False) for f in make_corpus(tmp_path)]
    config = settings(filter={"order": "after", "min_tokens": 10})
    outputs = filter_corpus(files, config, str(tmp_path / "out/work"))
    kept_hashes, selected_hashes = [], set()
    for f, output in zip(files, outputs, strict=True):
        hashes = {r["chunk_id"]: r["text_hash"] for r in storage.read_table(f.index.path).to_pylist()}
        tokens = {r["chunk_id"]: r["token_count"] for r in storage.read_table(f.index.path).to_pylist()}
        selected = {r["chunk_id"]: r["selected"] for r in storage.read_table(f.masks.path).to_pylist()}
        for row in storage.read_table(output.path).to_pylist():
            if not selected[row["chunk_id"]]:
                assert row["reason"] is None
            elif row["reason"] is None:
                kept_hashes.append(hashes[row["chunk_id"]])
            if selected[row["chunk_id"]] and tokens[row["chunk_id"]] >= 10:
                selected_hashes.add(hashes[row["chunk_id"]])
    assert len(kept_hashes) == len(set(kept_hashes)) and set(kept_hashes) == selected_hashes


def test_a_copy_without_a_score_goes_last(tmp_path):
    table = pa.table({"text": ["same"] * 3, "id": ["a", "b", "c"]})
    f = make_shard(tmp_path, "s", table)
    scores = pa.table([[0, 1, 2], [float("nan"), 0.1, 0.1], [1.0] * 3, [float("nan"), 0.1, 0.1]], schema=SCORES)
    f = replace(f, scores=storage.write_output(str(tmp_path / "scores.parquet"), "k", SCORES, [scores]))
    [output] = filter_corpus([f], settings(), str(tmp_path / "work"))
    assert storage.read_table(output.path)["reason"].to_pylist() == ["exact_duplicate", None, "exact_duplicate"]


def test_a_filter_on_a_column_there_is_not_says_which_there_are(tmp_path):
    f = make_shard(tmp_path, "s", pa.table({"text": ["a", "b"], "tongue": ["en", "fr"]}))
    with pytest.raises(
        ConfigError, match=r"no column language.*\(columns: text, tongue\).*corpus.columns.language=NAME"
    ):
        filter_corpus([f], settings(filter={"languages": ["en"]}), str(tmp_path))
    with pytest.raises(ConfigError, match="unknown column langage"):
        filter_corpus([f], settings(filter={"where": "langage = 'en'"}), str(tmp_path))
    with pytest.raises(ConfigError, match="filter.order is after, but the selection has not run yet"):
        filter_corpus([f], settings(filter={"order": "after"}), str(tmp_path))


def test_a_shard_that_lost_rows_is_refused(tmp_path):
    f = make_shard(tmp_path, "s", documents(40))
    short = storage.read_table(f.scores.path).slice(1)
    f = replace(f, scores=storage.write_output(str(tmp_path / "scores.parquet"), "k", SCORES, [short]))
    with pytest.raises(ConservationError, match="shard s: 37 documents in its index, 36 in its scores"):
        filter_corpus([f], settings(), str(tmp_path))


@pytest.mark.parametrize("limit", ["lots", "-1GB", "1 parsec", "1GB; drop table x", "", "GB", "1e9"])
def test_a_memory_limit_that_is_no_size_is_refused(limit):
    with pytest.raises(ConfigError, match=r"filter\.memory_limit = .*: should be a size, such as 1GB or 500MB"):
        settings(filter={"memory_limit": limit})


def test_too_little_memory_is_one_message(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"filter\.memory_limit = 1KB is too little.*raise it"),
        connect("1KB", str(tmp_path)) as connection,
    ):
        connection.execute("CREATE TABLE numbers (number BIGINT)")
        insert(connection, "numbers", pa.table({"number": list(range(100_000))}))
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    "where, says",
    [
        ("rules.words > 3 and rules > 0.2 and quality_score > 0 and meta.n > 1", None),
        ("tokn_count > 5", "unknown column tokn_count"),
        ("rule.words > 3", "unknown column rule.words"),
        ("token_count >", "not a SQL expression"),
        ("rules.words", "not a condition"),
    ],
)
def test_filters_are_checked_before_anything_is_scored(corpus, where, says):
    _, files, _ = corpus
    config = settings(filter={"where": where}, quality={"scorers": [{"name": "rules"}]})
    shards = [f.shard for f in files]
    if says is None:
        check_settings(shards, config)
    else:
        with pytest.raises(ConfigError, match=says):
            check_settings(shards, config)


def test_a_quota_of_a_column_that_no_file_has_is_told_before_anything_is_scored(corpus):
    _, files, _ = corpus
    shards = [f.shard for f in files]
    check_settings(shards, settings(select={"quotas": [{"column": "language", "as_pool": 0.1}]}))
    with pytest.raises(ConfigError, match=r"quotas: no file of the corpus has a column 'langage'; did you mean \"lang"):
        check_settings(shards, settings(select={"quotas": [{"column": "langage", "as_pool": 0.1}]}))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (("language",), None),
        (("langage",), "whose metric reads it: no file of the corpus has a column 'langage'; did you mean"),
        ("language", "declares columns 'language'; valid: a tuple of names"),
    ],
)
def test_a_column_of_a_metric_that_no_file_has_is_told_before_anything_is_scored(corpus, tmp_path, columns, says):
    _, files, _ = corpus
    metric = f"class Mine:\n    columns = {columns!r}\n    def value(self, masks): ...\n"
    (tmp_path / "mine.py").write_text(metric)
    config = settings(select={"algorithm": f"{tmp_path}/mine.py:Mine"})
    if says is None:
        check_settings([f.shard for f in files], config)
    else:
        with pytest.raises(ConfigError, match=says):
            check_settings([f.shard for f in files], config)


class Stone:
    """Keeps what does not speak of a stone."""

    columns = ("text",)

    def keep(self, documents):
        return np.array(["stone" not in text for text in documents["text"].to_pylist()])


def test_a_filter_of_ones_own_is_asked_after_conditions_and_languages_and_before_lengths(corpus, tmp_path):
    folder, files, rows = corpus
    own = {"where": "chunk_id % 3 > 0", "languages": ["en"], "min_tokens": 20, "own": [f"{__name__}:Stone"]}
    found = filter_corpus(files, settings(filter=own), str(tmp_path / "work"))
    reasons = {}
    for shard, output in zip(files, found, strict=True):
        for row in storage.read_table(output.path).to_pylist():
            reasons[shard.shard.name, row["chunk_id"]] = row["reason"]
    expected, seen = {}, set()
    for row in sorted(rows, key=lambda row: (row["wear"], row["shard"], row["chunk_id"])):
        took = [
            name
            for name, fell in (
                ("where", row["chunk_id"] % 3 == 0),
                ("language", row["language"] != "en"),
                ("Stone", "stone" in row["text"]),
                ("min_tokens", row["token_count"] < 20),
                ("exact_duplicate", row["text_hash"] in seen),
            )
            if fell
        ]
        expected[row["shard"], row["chunk_id"]] = took[0] if took else None
        if not took:
            seen.add(row["text_hash"])
    assert reasons == expected and {"where", "language", "Stone", "min_tokens"} <= set(reasons.values())
