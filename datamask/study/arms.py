"""The ablation as people look at it: tables for the terminal, a page, Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from datamask.report import charts, formatting, page
from datamask.report.charts import channel, mark
from datamask.report.findings import plain_json
from datamask.report.formatting import Table, count
from datamask.report.sections import Figure, PageSection, chart_grid
from datamask.study import judge_page as verdicts
from datamask.study.ablation import Ablation, Interval, Row
from datamask.study.verdict import Judged

DIGITS = {"Vendi score": 0, "seconds": 1, "documents": 0}
PERCENT = ("of its bound", "near-duplicates", "length ratio", "labels covered")


def cell(name: str, value: Interval | None) -> str:
    """A mean with the half-width of its interval, in the column's own digits."""
    if value is None or value.runs == 0:
        return "–"
    percent = name.startswith(PERCENT)
    if name.startswith("of its bound") and value.mean < 0:
        return "below random"
    scale, unit = (100, " %") if percent else (1, "")
    digits = DIGITS.get(name, 1 if percent or name.startswith("effective") else 3)
    text = f"{scale * value.mean:,.{digits}f}"
    if value.half_width > 0:
        text += f" ± {scale * value.half_width:,.{digits}f}"
    return text + unit


def tables(found: Ablation) -> list[Table]:
    """The objective and what it cost; its terms; what nobody optimised; what the coder says; what could not run."""
    rows = [row for row in found.rows if row.columns]
    names = list(dict.fromkeys(name for row in rows for name in row.columns))
    objective = [name for name in names if name.startswith(("objective:", "of its bound:"))]
    terms = [name for name in names if name.startswith(("quality:", "diversity:"))]
    cost = ["documents", "seconds"]
    made = [
        _table(f"Objective at λ = {found.lamb:g}, with each metric", [*objective, *cost], rows),
        _table("Its terms: every score, and every metric (0 a random choice, 1 the metric's best)", terms, rows),
        _table("What nobody optimised", [name for name in names if name not in (*objective, *terms, *cost)], rows),
    ]
    if found.judged:
        made += _judged(found.judged, found.judged_bytes)
    if refused := [[row.arm, row.refused] for row in found.rows if row.refused]:
        made.append(("What could not run", ["arm", "why"], refused))
    return made


def _table(title: str, names: Sequence[str], rows: Sequence[Row]) -> Table:
    return title, ["arm", *names], [[row.arm, *(cell(name, row.columns.get(name)) for name in names)] for row in rows]


def _judged(judged: Judged, limit: int) -> list[Table]:
    against = {contrast.first: contrast for contrast in judged.against}
    rows = [
        [arm, f"{judged.means[arm]:.4f}", against[arm].interval if arm in against else "–",
         against[arm].says if arm in against else "–"]
        for arm in judged.means
    ]  # fmt: skip
    checks = [[control.name, "yes" if control.passed else "no", control.said] for control in judged.controls]
    title = (
        f"What a model learns, by the coder: bits a byte on targets from outside, after {count(limit)} bytes of each"
    )
    return [
        (title, ["arm", "bits a byte", "minus random", "says"], rows),
        ("The coder's controls: if one fails, its table says nothing", ["control", "passed", "what was seen"], checks),
    ]


def lead(found: Ablation) -> str:
    seeds = ", ".join(str(seed) for seed in found.seeds)
    return (
        f"{count(found.documents)} candidates of {found.name}, a budget of {count(found.budget)} {'tokens' if found.in_tokens else 'documents'}, the configuration's own "
        f"setting is {found.algorithm} at λ = {found.lamb:g}; means over seeds {seeds}"
        + (f" with 95 % intervals (Student's t). {_seeds(found)}" if len(found.seeds) > 1 else ".")
    )


def _seeds(found: Ablation) -> str:
    drawn = "another seed draws other documents into the pool" if found.share < 1 else "the pool is all there is"
    return f"Of the seeds: {drawn}, and the solver's chances are others."


def markdown(found: Ablation) -> str:
    return formatting.markdown(lead(found), tables(found))


def render(found: Ablation) -> str:
    figures: list[Figure] = []
    if scatter := _scatter(found):
        note = "Right is better quality, up is a more diverse choice. An arm that has another to its upper right is beaten in both."
        figures.append(Figure("arms", scatter, "Quality and diversity of every arm", note))
    if found.judged:
        title = "What a model learns from each choice, against a random one"
        note = "Left of the line is better. Bars are 95 % intervals: one that crosses the line is not told apart. Hollow: a control failed."
        figures.append(Figure("judged", verdicts.forest([found.judged]), title, note))
    pictures = PageSection("pictures", "At a glance", [chart_grid(*figures)] if figures else [])
    sections = [pictures, *page.table_sections(tables(found))]
    return page.assemble(f"{found.name}: ablation", f"{found.name}: arms side by side", lead(found), sections)


def _scatter(found: Ablation) -> charts.Chart | None:
    rows = [
        {
            "arm": row.arm,
            "quality": row.columns["quality: quality_score"].mean,
            "diversity": row.columns["Vendi score"].mean,
            "duplicates": row.columns["near-duplicates"].mean,
        }
        for row in found.rows
        if "Vendi score" in row.columns and not row.arm.startswith("pg ")
    ]
    if not rows:
        return None
    place = {
        "x": channel("quality:Q", title="mean quality", scale={"zero": False}),
        "y": channel("diversity:Q", title="Vendi score (effective number of directions)", scale={"zero": False}),
    }
    tooltip = [
        channel("arm:N"),
        channel("quality:Q", format=".3f"),
        channel("diversity:Q", title="Vendi score", format=".0f"),
        channel("duplicates:Q", title="near-duplicates", format=".1%"),
    ]
    dots = mark("point", filled=True, size=80, opacity=1, encoding={**place, "tooltip": tooltip})
    labels = mark("text", align="left", dx=8, fontSize=10, encoding={**place, "text": channel("arm:N")})
    return charts.chart(rows, dots, labels, height=420)


def write_ablation(folder: str, found: Ablation) -> dict[str, str]:
    pages = {"page": (".html", render(found)), "markdown": (".md", markdown(found))}
    return page.write_pages(folder, "ablation", plain_json(asdict(found)), **pages)
