"""What each group lost: groups beside the pool, worst first; and a warning where a group loses far more than the rest.

A warning is data: it stands at the top of the page, on the terminal, in the card, the manifest and Prefect's UI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc, betaln, ndtr

from datamask.errors import nearest, several, some
from datamask.filter.forgotten import REASON as FORGOTTEN
from datamask.release.differences import excerpt
from datamask.release.explain import SETTINGS
from datamask.release.merge import LENGTH, NONE
from datamask.report.statistics import wilson
from datamask.report.tally import GroupCounts, SignalSums

LEAST = 20  # documents of a group that can be warned about
TIMES = 2.0  # what the rest loses, that a group may lose
SHARE = 0.1  # of a group: below it no filter's take is worth a warning at the top
PASSED_OVER = 4.0  # times less of a group than of the rest is chosen
JUNKIER = 1.5  # times the candidates' share of a junk signal
UNLIKE_PAIRS = 0.1  # of the pairs drawn, that may share little
ALIKE = 0.99  # mean cosine of two documents' vectors, from which their encoder tells documents hardly apart
ALPHA = 0.01  # chance that any of a column's groups is named for nothing (Bonferroni's bound)
NOTHING = 0.05  # the same, for groups of which nothing is chosen
SHOWN = 20  # rows of a table; the rest is summed
NAMED = 5  # groups a warning names
BESIDE = 2  # of another column, in the same warning
LOOK_AT_CHOSEN = ["--filter", "selected", "--sample", "20"]  # for `datamask explain`
TYPED = 200  # characters of a group's value that a command is shown with

ORDER = ("language", "source", "label", "domain", "dump")  # of tables and warnings; then the others, then lengths

Rows = list[dict[str, Any]]
Integers = npt.NDArray[np.int64]


def by_column(column: str) -> tuple[int, str]:
    known = [*ORDER, column] if column != LENGTH else [*ORDER, "", column]
    return known.index(column), column


def is_grouping(groups: GroupCounts, filled: float) -> bool:
    """A column that at least this share of the rows have, with a value that is worth a line."""
    named = [place for place, value in enumerate(groups.values) if value != NONE]
    size = groups.count()
    none = int(size.sum() - size[named].sum())
    return (
        bool(named) and groups.whole() - none >= filled * groups.whole() and size[named].max() >= min(LEAST, size.max())
    )


def outcome_table(groups: GroupCounts) -> dict[str, Any]:
    """The groups of a column beside the pool: SHOWN of them, the rest summed.

    Worst first: by the least share that filters take of a group (the Wilson interval's lower end, so that two of three
    do not come before 320 of 331), then by the share of it that is chosen. Groups of fewer than LEAST come last.
    """
    filters = [name for name in groups.outcomes if name.startswith("filter:")]
    low, _ = wilson(groups.count("filter:"), groups.count() - groups.count("quarantine:"))
    chosen = groups.count("selected") / np.maximum(groups.count(), 1)
    few = groups.count() < LEAST  # of so few, nothing can be said
    order = np.lexsort((np.array(groups.values), chosen, -low.round(6), few))
    total = _row("all", groups, groups.total, int(groups.whole()), None)
    rows = [
        _row(excerpt(groups.values[g], 60), groups, groups.documents[g], groups.whole(), total) for g in order[:SHOWN]
    ]
    rest = groups.total - groups.documents[order[:SHOWN]].sum(axis=0)
    others = groups.number - len(rows)
    return {
        "causes": [*filters, *(name for name in groups.outcomes if name.startswith("quarantine:"))],
        "rows": rows,
        "rest": _row(several(others, "other"), groups, rest, groups.whole(), total) if others else None,
        "all": total,
        "values": groups.number,
    }


def _row(
    value: str, groups: GroupCounts, counts: Integers, rows: int, total: Mapping[str, Any] | None
) -> dict[str, Any]:
    by_outcome = dict(zip(groups.outcomes, map(int, counts), strict=True))
    documents, selected = int(counts.sum()), by_outcome.get("selected", 0)
    judged = documents - sum(n for name, n in by_outcome.items() if name.startswith("quarantine:"))
    taken = sum(n for name, n in by_outcome.items() if name.startswith("filter:"))
    low, high = wilson(np.array([taken]), np.array([judged]))
    share = documents / max(rows, 1)
    of_chosen = selected / max(total["selected"], 1) if total else 1.0
    return {
        "value": value,
        "documents": documents,
        "share": share,
        "lost": {name: n for name, n in by_outcome.items() if ":" in name},
        "loss": taken / max(judged, 1),
        "loss_low": float(low[0]),
        "loss_high": float(high[0]),
        "not_selected": by_outcome.get("not_selected", 0),
        "selected": selected,
        "share_selected": of_chosen,
        "ratio": of_chosen / share if share else None,
    }


# ---------------------------------------------------------------- warnings


def loss_warnings(column: str, groups: GroupCounts, settings: Mapping[str, Any]) -> Rows:
    """A warning for each filter that takes far more of some groups of `column` than of the rest.

    A group is named when it has at least LEAST documents (quarantined ones not counted), the filter takes at least
    SHARE of it and more than TIMES what it takes of the other groups together, and that is no accident: the exact
    one-sided binomial test of "at most TIMES the rest's share" (Clopper & Pearson, Biometrika 1934) has a p-value
    below ALPHA over the number of groups tested. What the rest loses is estimated by Laplace's rule, (k+1)/(n+2), so
    that no loss among few documents is not taken for certainty. A group of 3 that loses 2 is never named.
    """
    judged = groups.count() - groups.count("quarantine:")
    whole = groups.whole() - groups.whole("quarantine:")
    tested = max(int((judged >= LEAST).sum()), 1)
    found: Rows = []
    for cause in groups.outcomes:
        if not cause.startswith("filter:") or _meant(cause, column, settings):
            continue
        taken, all_taken = groups.count(cause), groups.whole(cause)
        others = whole - judged
        rest = (all_taken - taken + 1) / (others + 2)
        limit = np.minimum(1.0, TIMES * rest)
        share = taken / np.maximum(judged, 1)
        chance = bdtrc(taken - 1, judged, limit)
        hit = (judged >= LEAST) & (others > 0) & (share >= SHARE) & (share > limit) & (chance * tested < ALPHA)
        if not hit.any():
            continue
        low, high = wilson(taken, judged)
        worst = _worst_first(hit, taken - rest * judged)
        named = _named(groups, worst, documents=judged, lost=taken, share=share, low=low, high=high)
        documents = int(taken[hit].sum())
        others_lost = (all_taken - documents) / max(whole - int(judged[hit].sum()), 1)
        name = cause.removeprefix("filter:")
        taken_of = f"{column} {_some(named, 'lost', NAMED, len(named))}"
        text = f"Filter {name} takes far more of {taken_of} than of the others ({_percent(others_lost)})."
        told = _group_warning("loss", name, text, column, named, documents=documents, rest=others_lost)
        found.append(told | {"look": ["--filter", name, *_only(column, groups.values[worst[0]]), "--sample", "20"]})
    return found


def _worst_first(hit: npt.NDArray[np.bool_], excess: npt.NDArray[np.float64]) -> list[int]:
    """The groups that are hit, by how many documents more than expected they miss."""
    return sorted(map(int, np.flatnonzero(hit)), key=lambda g: (-float(excess[g]), g))


def _named(groups: GroupCounts, places: Sequence[int], **numbers: npt.NDArray[Any]) -> Rows:
    """The groups at these places, each with its number of each of these, (G,)."""
    return [
        {"value": excerpt(groups.values[g], 60), **{name: values[g].item() for name, values in numbers.items()}}
        for g in places
    ]


def _group_warning(kind: str, cause: str, text: str, column: str, named: Rows, **others: Any) -> dict[str, Any]:
    told = _warning(kind, cause, text, **others)
    return told | {"column": column, "groups": named[: 4 * NAMED], "number": len(named)}


def _only(column: str, value: str) -> list[str]:
    """What lists documents of a group alone; nothing where its value can be neither shown nor typed."""
    return ["--only", f"{column}={value}"] if value.isprintable() and len(value) <= TYPED else []


def _warning(kind: str, cause: str, text: str, **others: Any) -> dict[str, Any]:
    """A warning as data: what `others` do not say is as of a filter and no group."""
    return {
        "kind": kind,
        "column": None,
        "cause": cause,
        "groups": [],
        "number": 0,
        "documents": 0,
        "rest": None,
        "text": text,
        "remedy": REMEDIES.get(cause, f"if they should stay, change the setting behind the filter {cause}"),
        "look": ["--filter", cause, "--sample", "20"],
    } | others


def filter_warnings(groups: GroupCounts) -> Rows:
    """A warning for each filter that takes more than half of all documents."""
    judged = groups.whole() - groups.whole("quarantine:")
    found: Rows = []
    for outcome in groups.outcomes:
        taken, cause = groups.whole(outcome), outcome.removeprefix("filter:")
        if outcome != cause and judged >= LEAST and taken > judged / 2:
            text = f"Filter {cause} takes {taken:,} of all {judged:,} documents ({_percent(taken / judged)})."
            found.append(_warning("filter", cause, text, documents=taken))
    return found


def selection_warnings(column: str, groups: GroupCounts) -> Rows:
    """A warning for groups of which far less is chosen than of the rest, though no filter took them.

    By the same rule as `loss_warnings`, turned round: at least LEAST candidates, less than 1/PASSED_OVER of the share
    that is chosen of the others, binomial test with Bonferroni's bound; or nothing at all, where as little is no
    accident of a choice by the others' share.
    """
    chosen = groups.count("selected")
    candidates = chosen + groups.count("not_selected")
    whole, all_chosen = groups.whole("selected", "not_selected"), groups.whole("selected")
    others = whole - candidates
    limit = (all_chosen - chosen) / np.maximum(others, 1) / PASSED_OVER
    tested = max(int((candidates >= LEAST).sum()), 1)
    chance = bdtr(chosen, candidates, limit)
    # of none at all a curator wants to know though so few could be missed by chance once in some columns
    nothing = (chosen == 0) & (bdtr(0, candidates, PASSED_OVER * limit) * tested < NOTHING)
    passed_over = (chosen < limit * candidates) & (chance * tested < ALPHA)
    hit = (candidates >= LEAST) & (others > 0) & (passed_over | nothing)
    if not hit.any():
        return []
    expected = PASSED_OVER * limit * candidates
    worst = _worst_first(hit, expected - chosen)
    numbers = {"documents": candidates, "lost": candidates - chosen, "selected": chosen}
    named = _named(groups, worst, **numbers, share=chosen / np.maximum(candidates, 1))
    rest = (all_chosen - int(chosen[hit].sum())) / max(whole - int(candidates[hit].sum()), 1)
    taken_of = f"{column} {_some(named, 'selected', NAMED, len(named))}"
    text = f"The selection takes far less of {taken_of} than of the others ({_percent(rest)})."
    remedy = (
        f"if it should have its part, give {column} a quota (select.quotas)"
        if column != LENGTH
        else "if they should have their part, bound the mean length (select.length_tolerance)"
    )
    documents = int(sum(max(0.0, expected[g] - chosen[g]) for g in np.flatnonzero(hit)))
    told = _group_warning("selection", "not_selected", text, column, named, documents=documents, rest=rest)
    told["look"] += _only(column, groups.values[worst[0]])
    return [told | {"remedy": remedy + "; if that is what you want, nothing is wrong"}]


def signal_rows(sums: Sequence[SignalSums]) -> Rows:
    """Junk signals of what is chosen beside the candidates', worst first.

    `junk` where the chosen hold more than JUNKIER times the candidates' share and that is no accident of a uniform
    choice of this size without replacement: Fisher's exact (hypergeometric) test where documents break a rule or not,
    else the normal approximation with the finite population's correction (Cochran, Sampling Techniques, 1977,
    section 2.6); p below ALPHA over the number of signals. At least LEAST chosen documents break the rule.
    """
    rows: Rows = []
    for s in sums:
        pool, chosen = s.candidates_sum / max(s.candidates, 1), s.selected_sum / max(s.selected, 1)
        enough = s.selected >= LEAST and s.selected < s.candidates and pool > 0
        chance = 1.0
        if enough and s.rule:
            enough = s.selected_sum >= LEAST
            chance = _hypergeometric(round(s.selected_sum), s.candidates, round(s.candidates_sum), s.selected)
        elif enough:
            variance = max(s.squares / s.candidates - pool**2, 0.0) / s.selected * (1 - s.selected / s.candidates)
            chance = ndtr((pool - chosen) / max(variance**0.5, 1e-12))
        rows.append(
            {
                "signal": s.signal,
                "rule": s.rule.name if s.rule else None,
                "bound": s.rule.bound if s.rule else "most",
                "threshold": s.rule.threshold if s.rule else None,
                "source": s.rule.source if s.rule else None,
                "candidates": pool,
                "selected": chosen,
                "ratio": chosen / pool if pool > 0 else None,
                "documents": round(s.selected_sum) if s.rule else None,
                "junk": bool(enough and chosen > JUNKIER * pool and chance * len(sums) < ALPHA),
            }
        )
    return sorted(rows, key=lambda row: (not row["junk"], -(row["ratio"] or 0.0), row["signal"], row["rule"] or ""))


def _hypergeometric(least: int, total: int, marked: int, drawn: int) -> float:
    """The chance of at least so many marked among those drawn without replacement."""
    found = np.arange(least, min(marked, drawn) + 1)
    ways = _log_binomial(marked, found) + _log_binomial(total - marked, drawn - found) - _log_binomial(total, drawn)
    return float(np.exp(ways).sum())


def _log_binomial(of: int, taken: Integers | int) -> npt.NDArray[np.float64]:
    return -np.log1p(of) - betaln(of + 1 - taken, 1 + taken)


def junk_warnings(rows: Rows) -> Rows:
    """One warning for all signals of which the chosen hold more than the candidates."""
    worse = [row for row in rows if row["junk"]]
    if not worse:
        return []
    named = "; ".join(
        f"{row['rule'] or row['signal']} {_amount(row, 'selected')} against {_amount(row, 'candidates')}"
        for row in worse[:NAMED]
    )
    more = f"; and {several(len(worse) - NAMED, 'more signal')}" if len(worse) > NAMED else ""
    text = f"What is chosen holds more of a junk signal than what it was chosen from: {named}{more}."
    told = _warning("junk", worse[0]["rule"] or worse[0]["signal"], text, documents=worse[0]["documents"])
    remedy = "raise select.lamb, give a scorer that sees it more weight, or filter by it"
    return [told | {"number": len(worse), "remedy": remedy, "look": LOOK_AT_CHOSEN}]


def _amount(row: Mapping[str, Any], which: str) -> str:
    return _percent(row[which]) if row["rule"] else f"{row[which]:.3g}"


def pair_warnings(duplicates: Mapping[str, Any]) -> Rows:
    """A warning where over a tenth of the pairs drawn at random share less than a fifth of their words."""
    checked = duplicates.get("checked") or {"pairs": 0, "unlike": 0}
    low = float(wilson(checked["unlike"], checked["pairs"])[0])
    cause = "near_duplicate"
    if checked["pairs"] < LEAST or low <= UNLIKE_PAIRS:
        return []
    text = (
        f"Filter {cause} drops documents that are no copies: of {checked['pairs']:,} pairs drawn at random "
        f"{checked['unlike']:,} share less than a fifth of their words."
    )
    number, documents = checked["unlike"], round(low * duplicates["documents"])
    return [_warning("pairs", cause, text, number=number, documents=documents)]


def vector_warnings(pool: Mapping[str, Any], encoder: str) -> Rows:
    """A warning where the pool's vectors are all but one, as of an encoder that did not learn or always fails.

    :param pool: the row of the report's table of arms.
    """
    cosine = pool.get("mean_cosine") or 0.0
    if pool["documents"] < LEAST or cosine < ALIKE:
        return []
    text = (
        f"The encoder {encoder} hardly tells documents apart: the vectors of two have a mean cosine of {cosine:.3f}, "
        "so what reads vectors (topics, metrics other than coverage of words) chooses by chance."
    )
    remedy = "choose another encoder.model, or compute the vectors again"
    told = _warning("vectors", "encoder", text, documents=pool["documents"])
    return [told | {"remedy": remedy, "look": LOOK_AT_CHOSEN}]


def quota_warnings(column: str, groups: GroupCounts, settings: Mapping[str, Any]) -> Rows:
    """A warning where select.quotas has a maximum for values that no document has, as an error of typing makes it."""
    quotas = [quota for quota in settings["select"]["quotas"] if quota["column"] == column]
    absent = [value for quota in quotas for value in quota["maximum"] if (value or NONE) not in groups.values]
    if not absent or set(groups.values) <= {NONE} or groups.number > len(groups.values):
        return []
    there = [excerpt(value, 60) for value in groups.values]
    text = f"No document has {column} {some(absent, NAMED)}, so a maximum of select.quotas bounds nothing"
    remedy = f"values that documents have: {some(there, SHOWN)}"
    told = {"column": column, "remedy": remedy, "look": LOOK_AT_CHOSEN}
    return [_warning("quota", "quotas", text + (nearest(absent[0], there) or "."), **told)]


def told_once(warnings: Rows) -> Rows:
    """One of each kind and cause, as the groups of several columns hold the same documents: the first names the others'
    worst groups, or their values alone where the numbers are its own."""
    kept: dict[object, dict[str, Any]] = {}
    for number, warning in enumerate(warnings):
        groups, counted = warning["groups"], "selected" if warning["kind"] == "selection" else "lost"
        key = warning["kind"], warning["cause"], None if groups else number
        if first := kept.get(key):
            said = _some(groups, counted, BESIDE, warning["number"])
            if [_numbers(group) for group in groups] == [_numbers(group) for group in first["groups"]]:
                said = some([group["value"] for group in groups], NAMED)
            warning = first | {"text": f"{first['text']} By {warning['column']} it is {said}."}
        kept[key] = warning
    return [*kept.values()]


def _numbers(group: Mapping[str, Any]) -> tuple[int, int]:
    return group["documents"], group["lost"]


def in_order(warnings: Rows) -> Rows:
    """Quotas of nothing, vectors that are one, filters that take most, groups that lose, pairs that are none, junk,
    groups passed over; then by size."""
    kinds = ("quota", "vectors", "filter", "loss", "pairs", "junk", "selection")
    return sorted(
        warnings,
        key=lambda w: (kinds.index(w["kind"]), -(w["documents"] or 0), by_column(w["column"] or ""), w["cause"]),
    )


def _some(named: Rows, key: str, shown: int, number: int) -> str:
    """ "am (320 of 331), ti (287 of 289) and 3 more"."""
    first = ", ".join(f"{group['value']} ({group[key]:,} of {group['documents']:,})" for group in named[:shown])
    return first + (f" and {number - shown:,} more" if number > shown else "")


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


REMEDIES = {
    "near_duplicate": f"if they are no copies, raise {SETTINGS['near_duplicate']}",
    "contained": f"if they should stay, raise {SETTINGS['contained']}",
    "exact_duplicate": f"if they should stay, set {SETTINGS['exact_duplicate']} to false",
    "language": f"if they should stay, add them to {SETTINGS['language']}",
    "min_tokens": f"if they should stay, lower {SETTINGS['min_tokens']}",
    "max_tokens": f"if they should stay, raise {SETTINGS['max_tokens']}",
    "where": f"if they should stay, loosen {SETTINGS['where']}",
    "target_leak": f"if they should stay, set {SETTINGS['target_leak']} to true",
}


def _meant(cause: str, column: str, settings: Mapping[str, Any]) -> bool:
    """The filter's very purpose: languages by language, lengths by length, a condition that names the column, and what
    was to be forgotten."""
    name, filters = cause.removeprefix("filter:"), settings.get("filter", {})
    if name == "where":
        return column in str(filters.get("where") or "")
    own = {("language", "language"), ("min_tokens", LENGTH), ("max_tokens", LENGTH)}
    return name == FORGOTTEN or (name, column) in own
