"""Every chart of the page with what a reader needs beside it: a title, and how to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datamask.report import charts
from datamask.report.findings import OURS, Findings
from datamask.report.statistics import NEAR_DUPLICATE


@dataclass(frozen=True)
class Figure:
    """A chart with what a reader needs beside it."""

    chart: charts.Chart
    label: str
    note: str = ""


def make_figures(f: Findings) -> dict[str, Figure]:
    """Every chart of the page that has data, by name."""
    figures: dict[str, Figure] = {}
    history = history_rows(f)
    if len(history) > 1:
        figures["history"] = Figure(
            charts.history(history, history[0]["unit"], f.certificate.get("upper_bound")),
            "Objective while it was optimised",
            "The line should flatten just under the dashed bound: at most what is left between them could be gained.",
        )
    for scorer in dict.fromkeys(row["scorer"] for row in f.quality):
        rows = [{k: v for k, v in row.items() if k != "scorer"} for row in f.quality if row["scorer"] == scorer]
        figures[f"quality-{scorer}"] = Figure(
            charts.outline(rows, scorer, root=True),
            f"Distribution of the score {scorer}",
            "How many documents have which score. Square-root scale, so that small shares stay visible.",
        )
    if f.spectra:
        figures["spectrum"] = Figure(
            charts.spectrum(f.spectra),
            "Eigenvalue spectrum of the embeddings",
            "Each choice's variance, direction by direction. The longer a line stays high, the more different things the "
            "choice is about; a line that falls early is about few.",
        )
        figures["neighbours"] = Figure(
            charts.outline(f.neighbours, "cosine to the nearest other document of the choice"),
            "How similar is the most similar document?",
            f"Mass at the right are documents with another of nearly the same embedding in the same choice; those above "
            f"{NEAR_DUPLICATE} are counted under diversity.",
        )
    if f.lengths:
        figures["lengths"] = Figure(
            charts.outline(f.lengths, "tokens of a document (log scale)", log=True), "Length of documents"
        )
    for column in f.columns:
        figures[f"group-{column}"] = Figure(charts.shares(f.groups[column], column), f"Share by {column}")
    for panel in charts.MAP_PANELS if f.map else ():
        if any(row["panel"] == panel for row in f.map):
            figures[f"map-{panel}"] = Figure(charts.document_map(f.map, panel, f.columns), panel.capitalize())
    if f.duplicates.get("groups"):
        figures["duplicates"] = Figure(charts.group_sizes(f.duplicates["sizes"]), "Near-duplicate groups by size")
    if f.stages:
        figures["stages"] = Figure(charts.stage_times(f.stages), "Work per stage in this run")
    return figures


def history_rows(f: Findings) -> list[dict[str, Any]]:
    """The optimisation's objective per step, thinned to 300 points; for shard scope, none."""
    points = list(f.certificate.get("history") or ())
    unit = str(f.certificate.get("history_unit") or "step")
    rows = []
    for place, point in enumerate(points):
        entry = point if isinstance(point, dict) else {"objective": point}
        if entry.get("objective") is not None:
            rows.append({"step": entry.get("step", place), "objective": entry["objective"], "arm": OURS, "unit": unit})
    return rows[:: max(1, len(rows) // 300)] if rows else []
