"""What each group lost: exact counts against plain Python, the rule of the warnings, and what they say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from datamask.duck import connect
from datamask.release.merge import LENGTH, NONE, length_bins
from datamask.report import losses
from datamask.report.formatting import sentence
from datamask.report.statistics import wilson
from datamask.report.tally import (
    GroupCounts,
    SignalSums,
    Tally,
    counted,
    measures,
    signals_of,
    summed,
)

OUTCOMES = ["selected", "not_selected", "filter:near_duplicate", "filter:where", "quarantine:empty_text"]
NO_FILTERS: dict = {"filter": {"where": None}}


def tallied(rows: list[tuple[str | None, str, int]], shards: int = 1, column: str = "language") -> GroupCounts:
    """Counts of (value, outcome, tokens) rows, in so many shards; a shard of Nones lacks the column."""
    with connect("100MB") as connection:
        tally, counts = Tally(connection, [column]), []
        for part in np.array_split(np.arange(len(rows)), shards):
            some = [rows[n] for n in part]
            values = pa.array([row[0] for row in some], pa.string())
            groups = pa.table({column: values}) if values.null_count < len(values) else pa.table({})
            outcome = pa.array([row[1] for row in some], pa.string())
            counts.append(counted([column], outcome, pa.array([row[2] for row in some], pa.int64()), groups))
        tally.take(summed(counts[:2]))
        for more in counts[2:]:
            tally.take(more)
        return tally.table(column)


def made(**groups: dict[str, int]) -> GroupCounts:
    """tallied by outcome: made(am={"filter:near_duplicate": 320, "not_selected": 11})."""
    return tallied(
        [(name, outcome, 1) for name, some in groups.items() for outcome, n in some.items() for _ in range(n)]
    )


ROWS = st.lists(
    st.tuples(st.sampled_from([None, "", "en", "am", "ti"]), st.sampled_from(OUTCOMES), st.integers(0, 9)), min_size=1
)


@given(ROWS, st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_counts_are_exact_and_add_up(rows, shards):
    found = tallied(rows, shards)
    expected = Counter((value or NONE, outcome) for value, outcome, _ in rows)
    counted = {
        (value, outcome): int(found.documents[g, o])
        for g, value in enumerate(found.values)
        for o, outcome in enumerate(found.outcomes)
        if found.documents[g, o]
    }
    assert counted == expected
    assert found.whole() == found.count().sum() == len(rows)
    assert found.number == len({value or NONE for value, _, _ in rows})
    table = losses.outcome_table(found)
    shown = [*table["rows"], *([table["rest"]] if table["rest"] else [])]
    for row in shown:
        assert row["documents"] == row["selected"] + row["not_selected"] + sum(row["lost"].values())
    assert sum(row["documents"] for row in shown) == table["all"]["documents"] == len(rows)


def test_four_hundred_languages_show_the_worst_and_sum_the_rest():
    rows = [
        (f"l{n:03}", "filter:where" if n == 123 or m == 0 and n < 9 else "selected", 5)
        for n in range(400)
        for m in range(25)
    ]
    table = losses.outcome_table(tallied(rows, 3))
    assert table["rows"][0]["value"] == "l123" and len(table["rows"]) == losses.SHOWN and table["values"] == 400
    assert table["rest"]["value"] == "380 others" and table["rest"]["documents"] == 380 * 25
    (warning,) = losses.loss_warnings("language", tallied(rows), NO_FILTERS)
    assert [group["value"] for group in warning["groups"]] == ["l123"]


def test_a_language_that_falls_as_a_whole_is_named_with_counts_filter_and_remedy():
    groups = made(
        am={"filter:near_duplicate": 320, "not_selected": 11},
        en={"filter:near_duplicate": 300, "not_selected": 6000, "selected": 700},
        xx={"filter:near_duplicate": 2, "not_selected": 1},
    )
    (warning,) = losses.loss_warnings("language", groups, NO_FILTERS)
    assert [group["value"] for group in warning["groups"]] == ["am"]
    text = sentence(warning, "out/real")
    assert "am (320 of 331)" in text and "near_duplicate" in text and "duplicates.jaccard" in text
    assert "datamask explain out/real --filter near_duplicate --only language=am --sample 20" in text
    assert losses.outcome_table(groups)["rows"][0]["value"] == "am"  # and not xx, two of three


@pytest.mark.parametrize(
    ("column", "value", "only"),
    [
        (LENGTH, "64 to 255 tokens", "--only 'length=64 to 255 tokens'"),
        ("source", NONE, "--only 'source=(none)'"),
        ("source", "x" * 90, f"--only source={'x' * 90}"),
        ("source", "a\x1b[2Jb", ""),
    ],
)
def test_a_warning_names_the_command_that_lists_its_group(column, value, only):
    groups = made(**{value: {"filter:where": 320, "not_selected": 11}, "b": {"not_selected": 6000, "selected": 700}})
    (warning,) = losses.loss_warnings(column, groups, NO_FILTERS)
    assert f"--filter where {only} --sample 20".replace("  ", " ") in sentence(warning)
    groups = made(**{value: {"not_selected": 320}, "b": {"not_selected": 2000, "selected": 4000}})
    (warning,) = losses.selection_warnings(column, groups)
    assert f"--filter not_selected --sample 20 {only}".strip() + ";" in sentence(warning)


@pytest.mark.parametrize(
    ("lost", "of", "warned"),
    [(2, 3, False), (19, 19, False), (20, 20, True), (30, 100, True), (12, 100, False), (5, 100, False)],
)
def test_the_rule_of_a_warning(lost, of, warned):
    groups = made(
        small={"filter:where": lost, "selected": of - lost} if of > lost else {"filter:where": lost},
        rest={"filter:where": 500, "selected": 9500},
    )
    assert bool(losses.loss_warnings("language", groups, NO_FILTERS)) == warned


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=20)
def test_chance_alone_is_hardly_ever_warned_about(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(20, 400, 60)
    groups = made(
        **{
            f"g{n}": {"filter:where": int(k), "selected": int(s - k)}
            for n, (s, k) in enumerate(zip(sizes, generator.binomial(sizes, 0.2), strict=True))
        }
    )
    assert not losses.loss_warnings("language", groups, NO_FILTERS)


def test_a_filters_own_purpose_is_no_warning():
    groups = made(am={"filter:language": 300}, en={"selected": 3000})
    assert not losses.loss_warnings("language", groups, NO_FILTERS)
    assert losses.loss_warnings("source", groups, NO_FILTERS)
    where = made(am={"filter:where": 300}, en={"selected": 3000})
    assert not losses.loss_warnings("language", where, {"filter": {"where": "language = 'en'"}})
    assert not losses.loss_warnings("source", made(a={"filter:forgotten": 300}, b={"selected": 3000}), NO_FILTERS)
    assert losses.loss_warnings("language", where, {"filter": {"where": "score > 0.5"}})


def test_a_corpus_of_one_group_and_one_that_a_filter_takes_most_of():
    groups = made(en={"filter:near_duplicate": 398, "selected": 2})
    assert not losses.loss_warnings("language", groups, NO_FILTERS)
    (warning,) = losses.filter_warnings(groups)
    assert "takes 398 of all 400 documents" in warning["text"]


def test_what_the_selection_passes_over():
    groups = made(page={"selected": 3, "not_selected": 1568}, rest={"selected": 1000, "not_selected": 9000})
    (warning,) = losses.selection_warnings("source", groups)
    assert "page (3 of 1,571)" in warning["text"] and "select.quotas" in warning["remedy"]
    assert not losses.selection_warnings(
        "source", made(a={"selected": 5, "not_selected": 95}, b={"selected": 10, "not_selected": 90})
    )


def test_what_two_columns_say_is_told_once():
    groups = made(page={"selected": 3, "not_selected": 1568}, rest={"selected": 1000, "not_selected": 9000})
    others = made(web={"selected": 3, "not_selected": 1569}, rest={"selected": 1000, "not_selected": 8999})
    found = [losses.selection_warnings(column, groups)[0] for column in ("source", "domain")]
    (told,) = losses.told_once(found)
    assert told["text"].endswith(" By domain it is page.") and told["column"] == "source"
    (told,) = losses.told_once([told, *losses.selection_warnings("dump", others)])
    assert told["text"].endswith(" By domain it is page. By dump it is web (3 of 1,572).")
    taken = made(web={"filter:contained": 900, "selected": 900}, rest={"selected": 9000})
    assert len(losses.told_once([told, *losses.loss_warnings("dump", taken, NO_FILTERS)])) == 2


def test_a_maximum_for_a_value_that_no_document_has_is_told_with_the_nearest():
    groups = made(wiki_2007={"selected": 30}, arxiv={"not_selected": 10})
    asked = {"select": {"quotas": [{"column": "source", "maximum": {"wiki_207": 0.1, "arxiv": 0.2}}]}}
    (warning,) = losses.in_order(losses.quota_warnings("source", groups, asked))
    assert "source wiki_207, so" in warning["text"] and 'did you mean "wiki_2007"?' in warning["text"]
    assert "wiki_2007, arxiv" in sentence(warning)
    asked["select"]["quotas"][0]["maximum"] = {"arxiv": 0.2}
    assert not losses.quota_warnings("source", groups, asked)
    assert not losses.quota_warnings("source", made(**{NONE: {"selected": 9}}), asked), "no document has the column"
    asked["select"]["quotas"][0]["maximum"] = {"": 0.2}
    assert not losses.quota_warnings("source", made(**{NONE: {"selected": 9}}, a={"selected": 1}), asked)


@pytest.mark.parametrize(("candidates", "warned"), [(256, True), (128, True), (68, True), (25, False)])
def test_a_source_of_which_nothing_was_chosen_is_named(candidates, warned):
    sources = {f"s{n}": {"selected": 100, "not_selected": 900} for n in range(15)}
    found = losses.selection_warnings("source", made(gone={"not_selected": candidates}, **sources))
    assert [group["value"] for warning in found for group in warning["groups"]] == ["gone"] * warned
    assert all(f"gone (0 of {candidates})" in warning["text"] for warning in found)


def test_junk_that_the_choice_holds_more_of():
    (rule,) = measures("mine.short_lines")
    more = SignalSums("mine.short_lines", rule, 10_000, 1000, 900, 190, 900)
    same = SignalSums("mine.short_lines", rule, 10_000, 1000, 900, 95, 900)
    values = SignalSums("mine.ads", None, 10_000, 1000, 100.0, 40.0, 50.0)
    rows = losses.signal_rows([same, more, values])
    assert [(row["signal"], row["junk"]) for row in rows] == [
        ("mine.ads", True), ("mine.short_lines", True), ("mine.short_lines", False),
    ]  # fmt: skip
    (warning,) = losses.junk_warnings(rows)
    assert "19 % against 9.0 %" in warning["text"] and "mine.ads 0.04 against 0.01" in warning["text"]
    assert losses.junk_warnings(losses.signal_rows([same])) == []


def test_signals_are_known_by_rule_or_by_name():
    assert measures("s.stop_words") == []  # English alone
    assert [rule.name for rule in measures("s.words")] == ["gopher_few_words", "gopher_many_words"]
    assert measures("s.html_share") == [None] and measures("s.upper") == [None] and measures("s.known_words") == []


def test_signal_sums_against_numpy():
    generator = np.random.default_rng(0)
    values = generator.random(200).astype(np.float32)
    values[::7] = np.nan
    candidates, there = generator.random(200) < 0.8, np.isfinite(values)
    selected = candidates & (generator.random(200) < 0.3)
    with connect("100MB") as connection:
        tally = Tally(connection, [])
        for part in (slice(0, 90), slice(90, 200)):
            table = pa.table({"m.short_lines": values[part], "m.mojibake": values[part], "m": values[part]})
            tally.take_signals(signals_of(table, candidates[part], selected[part]))
        rule, plain = tally.signals()
    assert rule.candidates == plain.candidates == (there & candidates).sum()
    assert rule.selected_sum == (values[selected & there] > np.float32(0.67)).sum()
    assert plain.candidates_sum == pytest.approx(np.nansum(values[candidates].astype(float)))


@given(st.integers(0, 300), st.integers(0, 300))
def test_wilson_is_scipys(first, second):
    count, of = sorted((first, second))
    low, high = wilson(count, of)
    if not of:
        assert (low, high) == (0, 1)
        return
    interval = stats.binomtest(count, of).proportion_ci(method="wilson")
    assert float(low) == pytest.approx(interval.low, abs=1e-4) and float(high) == pytest.approx(interval.high, abs=1e-4)


def test_lengths_are_in_bins_of_their_own_names():
    names = length_bins(pa.array([0, 63, 64, 255, 99_999, None])).to_pylist()
    assert names == ["0 to 63 tokens"] * 2 + ["64 to 255 tokens"] * 2 + ["16,384 tokens and more", "0 to 63 tokens"]
    assert LENGTH in Tally(connect("100MB").__enter__(), []).columns


def test_pairs_that_share_little_are_warned_about():
    unlike = {"documents": 3215, "checked": {"pairs": 200, "unlike": 120, "kind": "semantic", "median": 0.1}}
    (warning,) = losses.pair_warnings(unlike)
    assert "of 200 pairs drawn at random 120 share less than a fifth" in warning["text"]
    assert warning["cause"] == "near_duplicate" and "duplicates.jaccard" in warning["remedy"]
    near = losses.pair_warnings({**unlike, "checked": {**unlike["checked"], "kind": "near"}})[0]
    assert near["look"][1] == "near_duplicate"
    assert losses.pair_warnings({"documents": 5, "checked": {"pairs": 200, "unlike": 22}}) == []
    assert losses.pair_warnings({"documents": 0, "groups": 0}) == []


def test_vectors_that_are_all_but_one_are_warned_about():
    (warning,) = losses.vector_warnings({"documents": 300, "mean_cosine": 0.9999}, "minilm")
    assert "The encoder minilm hardly tells documents apart" in warning["text"] and "1.000" in warning["text"]
    assert "encoder.model" in warning["remedy"]
    assert losses.in_order([warning]) == [warning]
    assert losses.vector_warnings({"documents": 300, "mean_cosine": 0.9}, "e5") == []  # as of anisotropic encoders
    assert losses.vector_warnings({"documents": 5, "mean_cosine": 1.0}, "minilm") == []
    assert losses.vector_warnings({"documents": 300}, "none") == []  # no vectors were made
