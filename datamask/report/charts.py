"""The report's charts, in Altair: one function per picture, each from plain rows.

Colours come from the theme by the order of a scale's domain (`themes.py`), so that one specification serves the page,
light and dark, print, and the PNG pictures. Colour is never the only sign: lines differ in dash, points in shape.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import altair as alt
from altair.utils import schemapi

from datamask.report.themes import DASHES, SERIES

Rows = list[dict[str, Any]]
HEIGHT = 230
MAP_PANELS = ("top-quality", "diversity only", "selected")


class Values:
    """Rows of a chart, which Altair takes as they are; a list it would copy and look through at every step."""

    _schema: ClassVar[dict[str, Any]] = {}

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def to_dict(self, *_: Any, **__: Any) -> Rows:
        """The rows, as the chart library asks for them."""
        return self.rows


def chart_rows(rows: Rows) -> alt.Data:
    """Rows for a chart."""
    return alt.Data(values=Values(rows))


def unchecked() -> AbstractContextManager[None]:
    """Inside, charts are made without being checked against the schema at every step: the tests check them all."""
    return schemapi.debug_mode(False)


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """A chart as Vega-Lite, in plain JSON."""
    found: dict[str, Any] = json.loads(json.dumps(chart.to_dict(validate=False)))
    return found


def series(rows: Rows) -> list[str]:
    """The series that occur, in the theme's order."""
    there = {row.get("arm", row.get("panel")) for row in rows}
    return [name for name in SERIES if name in there]


def _legend(rows: Rows) -> alt.Legend:
    return alt.Legend(title=None, values=series(rows), orient="top", columns=4, symbolOpacity=1)


def _color(rows: Rows, field: str = "arm", legend: bool = True) -> alt.Color:
    shown = _legend(rows) if legend else None
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(SERIES)), legend=shown)


def _dash(rows: Rows) -> alt.StrokeDash:
    scale = alt.Scale(domain=list(SERIES), range=[list(dash) for dash in DASHES])
    return alt.StrokeDash("arm:N", scale=scale, legend=_legend(rows))


def _chart(rows: Rows, height: int = HEIGHT) -> alt.Chart:
    return alt.Chart(chart_rows(rows)).properties(width="container", height=height)


def outline(rows: Rows, title: str, log: bool = False, root: bool = False) -> alt.Chart:
    """Histograms of several series as outlines over the same bins. rows: arm, low, high, share.

    log: logarithmic bins; root: a square-root scale of shares.
    """
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(nice=False, zero=False)
    heights = alt.Scale(type="sqrt") if root else alt.Scale()
    points = [{**row, "edge": row["low"]} for row in rows]
    for name in series(rows):  # close the last bin
        last = [row for row in rows if row["arm"] == name][-1]
        points.append({**last, "edge": last["high"]})
    return (
        _chart(points)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("edge:Q", title=title, scale=scale),
            y=alt.Y("share:Q", title="share of documents", scale=heights, axis=alt.Axis(format="~%", tickCount=6)),
            color=_color(rows),
            strokeDash=_dash(rows),
            tooltip=[
                alt.Tooltip("arm:N", title="choice"),
                alt.Tooltip("low:Q", title="from", format=".4~g"),
                alt.Tooltip("high:Q", title="to", format=".4~g"),
                alt.Tooltip("share:Q", title="share of documents", format=".2%"),
            ],
        )
    )


def spectrum(rows: Rows) -> alt.Chart:
    """Eigenvalue spectra on log-log axes: a flatter line is a more diverse choice."""
    return (
        _chart(rows)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("component:Q", title="component, by size (log scale)", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y(
                "share:Q",
                title="share of variance (log scale)",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(format="~p", tickCount=5),
            ),
            color=_color(rows),
            strokeDash=_dash(rows),
            tooltip=[
                alt.Tooltip("arm:N", title="choice"),
                alt.Tooltip("component:Q"),
                alt.Tooltip("share:Q", title="its share", format=".3%"),
                alt.Tooltip("cumulative:Q", title="share of all up to it", format=".1%"),
            ],
        )
    )


def shares(rows: Rows, column: str) -> alt.LayerChart | alt.FacetChart:
    """Shares of a column's values: the pool's as a bar, the choices as marks on it."""
    order = list(dict.fromkeys(row["value"] for row in rows))
    y = alt.Y("value:N", sort=order, title=None, axis=alt.Axis(labelLimit=150))
    tooltip = [
        alt.Tooltip("value:N", title=column),
        alt.Tooltip("arm:N", title="choice"),
        alt.Tooltip("share:Q", format=".2%"),
    ]
    x = alt.X("share:Q", title="share of documents", axis=alt.Axis(format="~p", tickCount=5))
    base = _chart(rows, height=max(60, 24 * len(order)))
    bars = (
        base.transform_filter("datum.arm == 'pool'")
        .mark_bar(opacity=0.45)
        .encode(x=x, y=y, color=_color(rows), tooltip=tooltip)
    )
    points = (
        base.transform_filter("datum.arm != 'pool'")
        .mark_point(filled=True, size=80, opacity=1)
        .encode(
            x=x,
            y=y,
            color=_color(rows),
            shape=alt.Shape(
                "arm:N",
                scale=alt.Scale(domain=list(SERIES), range=_SHAPES),
                legend=_legend(rows),
            ),
            tooltip=tooltip,
        )
    )
    return alt.layer(bars, points)


_SHAPES = ["square", "diamond", "triangle-up", "circle", "cross"]


def history(rows: Rows, step: str, bound: float | None) -> alt.TopLevelMixin:
    """The objective over the solver's steps, under its upper bound where there is one. rows: step, objective."""
    line = (
        _chart(rows)
        .mark_line(strokeWidth=2, point=len(rows) <= 60)
        .encode(
            x=alt.X("step:Q", title=step, axis=alt.Axis(format="~s", tickMinStep=1)),
            y=alt.Y("objective:Q", title="objective (0 random, 1 each term's best)", scale=alt.Scale(zero=False)),
            tooltip=[alt.Tooltip("step:Q", title=step), alt.Tooltip("objective:Q", format=".5f")],
        )
    )
    if bound is None:
        return line
    limit = chart_rows([{"bound": bound, "label": f"upper bound {bound:.5f}"}])
    rule = alt.Chart(limit).mark_rule(strokeDash=[6, 4], strokeWidth=1.5).encode(y="bound:Q")
    text = (
        alt.Chart(limit)
        .mark_text(align="right", dy=-7, dx=-4)
        .encode(y="bound:Q", x=alt.value("width"), text="label:N")
    )
    return alt.layer(line, rule, text).properties(width="container", height=HEIGHT)


def document_map(rows: Rows, panel: str, columns: Sequence[str] = ()) -> alt.LayerChart | alt.FacetChart:
    """One panel of the t-SNE map: a choice's documents over the pool's, in grey. Hover shows the document."""
    places = [row[axis] for axis in ("x", "y") for row in rows]
    reach = max(abs(min(places)), abs(max(places))) * 1.05
    scale = alt.Scale(domain=[-reach, reach], nice=False)
    x, y = (alt.X("x:Q", axis=None, scale=scale), alt.Y("y:Q", axis=None, scale=scale))
    background = alt.Chart(
        chart_rows([{"x": r["x"], "y": r["y"], "arm": "pool"} for r in rows if r["panel"] == "pool"])
    )
    tooltip = [
        alt.Tooltip("document:N"),
        alt.Tooltip("id:N"),
        *[alt.Tooltip(f"{column}:N") for column in columns],
        alt.Tooltip("quality:Q", format=".3f"),
        alt.Tooltip("tokens:Q", format=","),
    ]
    chosen = [{**row, "arm": panel} for row in rows if row["panel"] == panel]
    legend = [{"arm": "pool"}, {"arm": panel}]
    points = (
        alt.Chart(chart_rows(chosen))
        .mark_circle(size=26, opacity=0.75)
        .encode(x=x, y=y, color=_color(legend), tooltip=tooltip)
    )
    grey = background.mark_circle(size=14, opacity=0.35).encode(x=x, y=y, color=_color(legend))
    return alt.layer(grey, points).properties(width="container", height=300)


def stage_times(rows: Rows) -> alt.Chart:
    """Seconds per stage, in order."""
    order = [row["stage"] for row in rows]
    return (
        _chart(rows, height=max(60, 24 * len(rows)))
        .mark_bar()
        .encode(
            x=alt.X("seconds:Q", title="seconds of work"),
            y=alt.Y("stage:N", sort=order, title=None),
            tooltip=["stage:N", alt.Tooltip("seconds:Q", format=".1f"), "done:Q", "cached:Q"],
        )
    )


def group_sizes(rows: Rows) -> alt.Chart:
    """How many near-duplicate groups have how many documents."""
    return (
        _chart(rows, height=160)
        .mark_bar()
        .encode(
            x=alt.X(
                "size:N",
                sort=[row["size"] for row in rows],
                title="documents in the group",
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y("groups:Q", title="groups"),
            tooltip=["size:N", "groups:Q"],
        )
    )


def whole_map(rows: Rows) -> alt.HConcatChart:
    """The map's panels side by side, for a picture."""
    there = {row["panel"] for row in rows}
    panels = [document_map(rows, panel).properties(width=260, height=260) for panel in MAP_PANELS if panel in there]
    return alt.hconcat(*panels).resolve_scale(color="independent")
