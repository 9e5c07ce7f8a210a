"""The page's sections: tables, charts and documents in the order a reader asks for them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML

from datamask.certificate_words import points
from datamask.errors import several
from datamask.release.personal import NAMES
from datamask.report import charts
from datamask.report.findings import OURS, PERCENTILES, Findings
from datamask.report.formatting import count, number, percent
from datamask.report.losses import by_column
from datamask.report.statistics import NEAR_DUPLICATE

Block = dict[str, Any]
EXPLAINED = 0.9  # share of the chosen that gains must explain for one to be shown beside the last document kept's
GAIN = "Gain: what the objective gains from a document, for its quality and for how unlike it is to what is chosen."


@dataclass(frozen=True)
class Figure:
    """A chart with what a reader needs beside it; its name is its own on the page."""

    name: str
    chart: charts.Chart
    label: str
    note: str = ""


@dataclass
class PageSection:
    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)


def make_sections(f: Findings) -> list[PageSection]:
    return [
        PageSection("selected", "What was selected from what", _selected(f)),
        PageSection("losses", "What each group lost", _losses(f)),
        PageSection("objective", "Objective and certificate", _objective(f)),
        PageSection("quality", "Quality", _quality(f)),
        PageSection("diversity", "Diversity", _diversity(f)),
        PageSection("length", "Length", _length(f)),
        PageSection("groups", "Where it comes from", _groups(f)),
        PageSection("topics", "Topics", _topics(f)),
        PageSection("map", "Map of the documents", _map(f)),
        PageSection("examples", "Where it disagrees with top-quality", _examples(f)),
        PageSection("duplicates", "Near-duplicates collapsed", _duplicates(f)),
        PageSection("signals", "Junk signals", _signals(f)),
        PageSection("personal", "Personal data", _personal(f)),
        PageSection("stages", "Time and cache", _stages(f)),
        PageSection("settings", "Settings", _settings(f)),
    ]


def chart_grid(*figures: Figure, note: str = "", wide: bool = False) -> Block:
    return {"kind": "charts", "figures": figures, "note": note, "wide": wide}


def table(head: list[str], rows: list[list[str]], mark: str | None = None, note: str = "", title: str = "") -> Block:
    """A block with a table. mark: the row to emphasise."""
    return {"kind": "table", "head": head, "rows": rows, "mark": mark, "note": note, "title": title}


def _selected(f: Findings) -> list[Block]:
    names = {"selected": "selected", "not_selected": "not selected"}
    read, tokens = max(f.total(), 1), max(f.total(unit="tokens"), 1)

    def order(row: dict[str, Any]) -> tuple[int, str]:
        kinds = ("selected", "not_selected", "filter:", "quarantine:")
        return next(i for i, kind in enumerate(kinds) if row["outcome"].startswith(kind)), row["outcome"]

    rows = [
        [
            names.get(row["outcome"], row["outcome"].replace(":", ": ").replace("_", " ")),
            count(row["documents"]),
            percent(row["documents"] / read),
            count(row["tokens"]),
            percent(row["tokens"] / tokens),
        ]
        for row in sorted(f.totals, key=order)
    ]
    rows.append(["all rows read", count(f.total()), "100 %", count(f.total(unit="tokens")), "100 %"])
    note = "Every row that was read is in exactly one of these lines: rows read = selected + not selected + filtered + quarantined."
    return [table(["outcome", "documents", "share", "tokens", "share"], rows, "selected", note), *_unread(f)]


def _unread(f: Findings) -> list[Block]:
    """The input's files that are in none of the lines above, and why."""
    titles = {"failed": "Not included, because they failed", "skipped": "Met in the input and not read"}
    blocks = []
    for kind, title in titles.items():
        if found := f.unread.get(kind):
            rows = [[file["path"], file["error"]] for file in found["files"]]
            note = "All of them are in manifest.json." if found["count"] > len(rows) else ""
            blocks.append(table(["file", "why"], rows, note=note, title=f"{title}: {several(found['count'], 'file')}"))
    return blocks


def _losses(f: Findings) -> list[Block]:
    """A table per grouping column: every group's part of the pool, what took its documents, its part of the choice."""
    blocks: list[Block] = []
    for column, found in sorted(f.outcomes.items(), key=lambda item: by_column(item[0])):
        head, rows = outcome_rows(column, found)
        blocks.append(table(head, rows, title=f"By {column}: {several(found['values'], 'value')}"))
    if blocks:
        note = (
            "Exact counts over all rows. Worst first: by the least share that the filters take of a group (the lower end of "
            "Wilson's 95 % interval, so that two of three do not come before 320 of 331), then by how little of it is selected. "
            "Choice/pool: 1 where a group's part of the choice is its part of the pool."
        )
        blocks.insert(0, {"kind": "text", "text": note})
    return blocks


def outcome_rows(column: str, found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a column's groups beside the pool; the last row is of all."""
    causes = [cause for cause in found["causes"] if found["all"]["lost"].get(cause)]
    names = [cause.partition(":")[2].replace("_", " ") for cause in causes]
    head = [column, "documents", "of the pool", *names, "not selected", "selected", "of the choice", "choice/pool"]
    shown = [*found["rows"], *([found["rest"]] if found["rest"] else []), found["all"]]
    rows = [
        [
            row["value"],
            count(row["documents"]),
            percent(row["share"]),
            *(_part(row["lost"].get(cause, 0), row["documents"]) for cause in causes),
            count(row["not_selected"]),
            _part(row["selected"], row["documents"]),
            percent(row["share_selected"]),
            number(row["ratio"], 2),
        ]
        for row in shown
    ]
    return head, rows


def _part(of: int, documents: int) -> str:
    return f"{count(of)} ({percent(of / documents, 0)})" if of else "–"


def _signals(f: Findings) -> list[Block]:
    if not f.signals:
        return []
    rows = []
    for row in f.signals:
        sign = {"least": "<", "most": ">"}[row["bound"]]
        what = (
            f"{row['rule']}: {row['signal']} {sign} {row['threshold']:g}" if row["rule"] else f"{row['signal']}: mean"
        )
        amount = (lambda value: percent(value, 2)) if row["rule"] else (lambda value: f"{value:.4g}")
        shown = [amount(row["candidates"]), amount(row["selected"]), number(row["ratio"], 2)]
        rows.append([("▲ " if row["junk"] else "") + what, *shown])
    note = (
        "Share of documents that break a published rule (or the mean of a signal that has none), by exact counts; worst first. "
        "▲: the choice holds over 1.5 times the candidates' share, and that is no accident."
    )
    return [table(["signal", "candidates", "selected", "selected/candidates"], rows, note=note)]


def _personal(f: Findings) -> list[Block]:
    if not f.personal:
        return []
    counts = dict(f.personal)
    documents, selected = counts.pop("documents"), max(f.total("selected"), 1)
    replaced = f.settings["release"]["personal"] == "replace"
    note = (
        f"{count(documents)} of {count(selected)} selected documents ({percent(documents / selected, 2)}) hold some; it was "
        f"{'replaced by what belongs to nobody' if replaced else 'left as it is'}. The column personal_data counts it by "
        "document. There may be more that no rule finds."
    )
    asked = f.settings["release"]["personal_kinds"]
    rows = [[NAMES[kind][1], count(found)] for kind, found in counts.items() if kind in asked]
    return [table(["kind", "found"], rows, note=note)]


def _objective(f: Findings) -> list[Block]:
    c = f.certificate
    blocks: list[Block] = []
    if c.get("objective") is not None:
        calibrated = "calibrated: 0 is a random choice of this size, 1 is the term's own best choice"
        scale = calibrated if f.settings["select"]["calibrate"] else "raw"
        rows = [["score (the objective)", number(c["objective"], 5)]]
        if c.get("upper_bound") is not None:
            rows += [["upper bound", number(c["upper_bound"], 5)], ["gap", points(c["gap"])]]
        rows += [[f"term: {name}", number(value, 5)] for name, value in (c.get("terms") or {}).items()]
        note = f"Terms are {scale}. The bound holds for every choice within the budget, found or not."
        if target := c.get("target"):
            note += (
                f" The choice explains the target ({', '.join(target['files'])}); {count(target['leaks'])} documents that hold "
                "a row of its words are left out of it."
            )
        blocks.append(table(["", "value"], rows, note=note))
    elif c.get("shards"):
        listed = list(c["shards"].items())[:40]
        rows = [[name, number(s.get("objective"), 4), number(s.get("upper_bound"), 4)] for name, s in listed]
        note = "Scope shard: each shard is its own problem. At most 40 are listed."
        blocks.append(table(["shard", "objective", "bound"], rows, note=note))
    history = history_rows(f)
    if len(history) > 1:
        last = history[-1]["objective"]
        if c.get("objective") is not None and abs(last - c["objective"]) > 1e-4:
            note = f"The steps weigh documents by fractions and end at {number(last, 5)}; the choice itself, of whole documents and after exchanges, scores {number(c['objective'], 5)}."
            blocks.append({"kind": "text", "text": note})
        blocks += _fractional(c)
        chart = charts.history(history, c.get("upper_bound"))
        note = "The line should flatten just under the dashed bound: at most what is left between them could be gained."
        blocks.append(chart_grid(Figure("history", chart, "Objective while it was optimised", note)))
    return blocks


def history_rows(f: Findings) -> list[dict[str, Any]]:
    """The optimisation's objective per step, thinned to 300 points; for shard scope, none."""
    rows = [
        {"step": step.get("step", place), "objective": step["objective"]}
        for place, step in enumerate(_steps(f.certificate))
        if step.get("objective") is not None
    ]
    return rows[:: max(1, len(rows) // 300)]


def _steps(certificate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of the history; a solver of the user's may have given plain objectives."""
    steps = certificate.get("history") or ()
    return [step if isinstance(step, Mapping) else {"objective": step} for step in steps]


def _fractional(certificate: Mapping[str, Any]) -> list[Block]:
    """How much of the gap is not the relaxation's: where documents cost something against themselves (DiSF), most."""
    best = max((step["relaxed"] for step in _steps(certificate) if "relaxed" in step), default=None)
    objective, bound = certificate.get("objective"), certificate.get("upper_bound")
    if best is None or objective is None or bound is None or best - objective <= max(bound - best, 1e-3 * abs(bound)):
        return []
    text = (
        f"Before they are rounded, the fractions themselves score {number(best, 5)}, {percent(max(0.0, bound - best) / abs(bound), 2)} below the bound; "
        "the rest of the gap lies between that and a choice of whole documents."
    )
    return [{"kind": "text", "text": text}]


def _quality(f: Findings) -> list[Block]:
    figures = []
    for scorer in dict.fromkeys(row["scorer"] for row in f.quality):
        own = [{k: v for k, v in row.items() if k != "scorer"} for row in f.quality if row["scorer"] == scorer]
        chart = charts.outline(own, scorer, root=True)
        note = "How many documents have which score. Square-root scale, so that small shares stay visible."
        figures.append(Figure(f"quality-{scorer}", chart, f"Distribution of the score {scorer}", note))
    head = ["scorer, choice", *(f"p{percentile}" for percentile in PERCENTILES)]
    rows = [[f"{row['scorer']}, {row['arm']}", *(number(row[key]) for key in head[1:])] for row in f.percentiles]
    correlated = [
        [f"{row['scorer']} and {row['with']}", "–" if row["value"] is None else f"{row['kind']} = {row['value']:.2f}"]
        for row in f.correlations
    ]
    note = "Percentiles: p25 is the score that a quarter of the documents lie below."
    other = "Spearman's ρ from −1 to 1 for numbers; η², the share of the score's variance that lies between groups, from 0 to 1."
    measures = table(["does the scorer measure something else?", ""], correlated, note=other)
    return [chart_grid(*figures), table(head, rows, note=note), measures]


def _diversity(f: Findings) -> list[Block]:
    groups, embedded = f.columns, f.embedded
    head = ["choice", "documents", "mean quality"]
    if embedded:
        head += ["Vendi score", "near by embedding", "nearest cosine (median)", "mean cosine"]
    head += [f"effective number: {column}" for column in groups]
    rows = [
        [
            arm["arm"],
            count(arm["documents"]),
            number(arm["mean_quality"]),
            *([number(arm["vendi"], 0), percent(arm["near_duplicates"])] if embedded else []),
            *([number(arm["nearest"]), number(arm["mean_cosine"], 4)] if embedded else []),
            *(number(arm["effective"][column], 1) for column in groups),
        ]
        for arm in f.arms
    ]
    note = (
        "All choices have the same size in the budget's unit. Of the same tokens shorter documents are more, and a Vendi "
        "score grows with their number. pool: a random sample of all documents; random: of those that could be chosen "
        "(after filters and duplicates); top-quality: the best-scored of those. Effective number of groups: exp of the "
        "entropy of their shares. "
    )
    if embedded:
        note += (
            "Vendi score: the effective number of directions the embeddings point in (exp of the entropy of their spectrum). "
            f"Near by embedding: documents with a cosine above {NEAR_DUPLICATE} to another of the same choice; whether they are "
            "copies, no text has been compared for this."
        )
    else:
        note += (
            "No vectors were made, because no scorer, filter or objective of these settings reads them; with them this page "
            "has a map, topics and the Vendi score: add the part embedding to select.coverage.atoms, or set topics.make to always."
        )
    blocks = [table(head, rows, OURS, note)]
    if f.neighbours:
        neighbours = Figure(
            "neighbours",
            charts.outline(f.neighbours, "cosine to the nearest other document of the choice"),
            "How similar is the most similar document?",
            f"Mass at the right are documents with another of nearly the same embedding in the same choice; those above "
            f"{NEAR_DUPLICATE} are counted under diversity.",
        )
        blocks.append(chart_grid(neighbours))
    return blocks


def _length(f: Findings) -> list[Block]:
    rows = [[arm["arm"], count(arm["mean_tokens"] or 0), percent(arm["length_ratio"], 0)] for arm in f.arms]
    note = (
        "Length ratio: mean tokens of the choice over the mean of the pool, of which the first row is a sample. "
        "Quality filters tend to prefer long documents (the DATAMASK paper measured 147 % for FineWeb-Edu), diversity short ones."
    )
    blocks = [table(["choice", "mean tokens", "length ratio"], rows, OURS, note)]
    if f.lengths:
        chart = charts.outline(f.lengths, "tokens of a document (log scale)", log=True)
        blocks.append(chart_grid(Figure("lengths", chart, "Length of documents")))
    return blocks


def _groups(f: Findings) -> list[Block]:
    figures = [
        Figure(f"group-{column}", charts.shares(f.groups[column], column), f"Share by {column}") for column in f.columns
    ]
    note = "Bars: the pool. Circles: what was selected. Triangles: what top-quality would select at the same size."
    return [chart_grid(*figures, note=note)] if figures else []


def _topics(f: Findings) -> list[Block]:
    if not f.topics:
        return []
    rows = [
        [
            row["name"],
            count(row["documents"]),
            percent(row["share"]),
            count(row["selected"]),
            percent(row["share_selected"]),
            number(row["share_selected"] / row["share"] if row["share"] else None, 2),
            row["language"] or "–",
            row["remark"],
        ]
        for row in f.topics
    ]
    note = (
        "Clusters of the documents' vectors, each named by the words that tell it from the others. They are the column topic "
        "of the data files and decisions, for quotas and filter.where. A remark says which are no good groups."
    )
    head = ["topic", "documents", "of the pool", "selected", "of the choice", "choice/pool", "language", "remark"]
    return [table(head, rows, note=note)]


def _map(f: Findings) -> list[Block]:
    there = {row["panel"] for row in f.map}
    figures = [
        Figure(f"map-{panel}", charts.document_map(f.map, panel, f.columns), panel.capitalize())
        for panel in charts.MAP_PANELS
        if panel in there
    ]
    if not figures:
        return []
    drawn = sum(row["panel"] == OURS for row in f.map)
    text = (
        "Each dot is a document; documents about similar things lie close together (t-SNE of the embeddings: distances between "
        "far groups mean nothing). Grey: the pool, the same in every panel. Point at a dot to read its document."
    )
    note = f"{drawn} documents are drawn at random from each choice. Diversity only: what λ = 0 chooses from a sample of the candidates."
    return [{"kind": "text", "text": text}, chart_grid(*figures, note=note, wide=True)]


def _examples(f: Findings) -> list[Block]:
    kinds = {
        "kept": (
            "Kept, though top-quality would drop them",
            f"The documents with the largest gain among those below top-quality's cut. {GAIN} {_explained(f)}",
        ),
        "dropped": (
            "Dropped, though top-quality would keep them",
            "The documents with the smallest gain among those above top-quality's cut.",
        ),
    }
    blocks: list[Block] = []
    for kind, (title, note) in kinds.items():
        documents = [
            {
                "why": reason_in_numbers(d),
                "text": d["text"],
                "source": " · ".join(filter(None, [", ".join(filter(None, d["groups"].values())), d["id"], d["url"]])),
            }
            for d in f.examples
            if d["kind"] == kind
        ]
        if documents:
            blocks.append({"kind": "documents", "title": title, "note": note, "documents": documents})
    return blocks


def _explained(f: Findings) -> str:
    """How far gains explain the choice, in words."""
    share = f.examples[0].get("explained", 1.0) if f.examples else 1.0
    if share >= EXPLAINED:
        return f"Of the chosen, {percent(share, 0)} are among as many documents of highest gain."
    return (
        f"Gains explain this choice only in part: {percent(share, 0)} of the chosen are among as many documents of "
        "highest gain. A gain is what a document adds to the choice as it is; where few are chosen, the exchange of one "
        "moves all gains, and quotas and lengths weigh too."
    )


def reason_in_numbers(d: dict[str, Any]) -> str:
    quality = f"quality {d['quality']:.3f} (percentile {d['percentile']:.0f}; top-quality's cut is {number(d['quality_cut'])})"
    if d.get("explained", 1.0) < EXPLAINED:
        gain = f"gain {d['price']:.3g} (percentile {d['price_percentile']:.0f} of the candidates)"
    elif d["threshold"] > 0:
        gain = f"gain {d['price'] / d['threshold']:.2f} times that of the last document kept"
    else:
        gain = f"gain {d['price']:.3g}, the last document kept {d['threshold']:.3g}"
    if "nearest_top" not in d:
        return f"{quality}; {gain}; {count(d['tokens'])} tokens."
    other = (
        f"the nearest of top-quality's documents has a cosine of {number(d['nearest_top'], 2)}"
        if d["kind"] == "kept"
        else f"the nearest selected document has a cosine of {number(d['nearest_selected'], 2)}, "
        f"the nearest of top-quality's {number(d['nearest_top'], 2)}"
    )
    return f"{quality}; {gain}; {other}; {count(d['tokens'])} tokens."


def _duplicates(f: Findings) -> list[Block]:
    d = f.duplicates
    counted = [[row["copies"], count(row["documents"]), count(row["selected"])] for row in d.get("copies", ())]
    note = "Verified copies of each document that stays, counted over the whole input."
    copies: list[Block] = [table(["copies", "documents", "selected"], counted, note=note)] if counted else []
    if not d.get("groups"):
        return copies
    text = f"{count(d['documents'])} documents fell to another that stays, in {count(d['groups'])} groups. {_kinds(f)}".rstrip()
    if (checked := d.get("checked")) and checked["pairs"]:
        text += (
            f" Of {count(checked['pairs'])} pairs drawn at random, contained ones left out, {count(checked['unlike'])} share less than a fifth of "
            f"their words; half share more than {percent(checked['median'], 0)}."
        )
    documents = [
        {
            "why": f"{count(g['size'])} documents, similarity to the one kept ≥ {g['least_similarity']:.3f}",
            "text": g["text"],
            "source": g["id"],
        }
        for g in d["largest"]
    ]
    sizes = Figure("duplicates", charts.group_sizes(d["sizes"]), "Near-duplicate groups by size")
    blocks: list[Block] = [{"kind": "text", "text": text}, chart_grid(sizes), *copies]
    if f.pairs:
        note = (
            "Words of one side alone are marked. The pairs that share the least come first; more of them: "
            "datamask explain OUT --filter NAME --sample 20."
        )
        blocks.append({"kind": "pairs", "title": "Dropped, and kept in its place", "note": note, "pairs": f.pairs})
    title, note = "The largest groups", "The document that stayed."
    blocks.append({"kind": "documents", "title": title, "note": note, "documents": documents})
    return blocks


def _kinds(f: Findings) -> str:
    """What each kind of duplicate was compared by, with its number."""
    settings = f.settings.get("duplicates", {})
    said = {
        "near_duplicate": f"near-duplicates, whose whole texts share {percent(settings.get('jaccard') or 0.8, 0)} or more of "
        "their shingles (Jaccard; below 80 % only texts that differ by a word here and there)",
        "contained": f"contained, where {percent(settings.get('containment') or 0.9, 0)} or more of the shorter text is in the "
        "longer one: the shorter one fell, or the longer one where it adds menus and links and scores lower",
    }
    counts = {row["outcome"].removeprefix("filter:"): row["documents"] for row in f.totals}
    parts = [f"{count(counts[reason])} {text}" for reason, text in said.items() if counts.get(reason)]
    return f"By kind: {'; '.join(parts)}." if parts else ""


def _stages(f: Findings) -> list[Block]:
    if not f.stages:
        return []
    rows = [[s["stage"], count(s["done"]), count(s["cached"]), f"{s['seconds']:.1f}"] for s in f.stages]
    note = "Cached: the output was there already under its key, so nothing was done."
    times = Figure("stages", charts.stage_times(f.stages), "Work per stage in this run")
    return [table(["stage", "done", "cached", "seconds of work"], rows, note=note), chart_grid(times)]


def _settings(f: Findings) -> list[Block]:
    stream = io.StringIO()
    YAML().dump(f.settings, stream)
    return [{"kind": "details", "title": "All settings of this run (YAML)", "text": stream.getvalue()}]
