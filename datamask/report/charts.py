"""The report's charts as Vega-Lite specifications: one function per picture, each from plain rows.

Colours come from the theme by the order of a scale's domain, so that one specification serves the page,
light and dark, print, and the PNG pictures. Colour is never the only sign: lines differ in dash, points in shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = list[dict[str, Any]]
Chart = dict[str, Any]  # of Vega-Lite, or a part of one
HEIGHT = 230
MAP_PANELS = ("top-quality", "diversity only", "selected")
TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
_SHAPES = ["square", "diamond", "triangle-up", "circle", "cross"]
_LOG = {"type": "log", "nice": False}
SERIES = ("pool", "random", "top-quality", "selected", "diversity only")  # the order of every colour scale
DASHES = [[1, 0], [2, 2], [6, 3], [1, 0], [8, 2, 2, 2]]
# Okabe & Ito's palette (2008, "Color Universal Design"), told apart with every common form of colour blindness; the
# page's dark variants are the same hues, lighter
LIGHT = ("#8a8f98", "#a0568a", "#d55e00", "#0072b2", "#009e73")
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif"


def channel(field: str, **settings: Any) -> Chart:
    """An encoding's channel. field: the rows' name and the kind of its values, `share:Q`; see `TYPES`."""
    name, _, kind = field.rpartition(":")
    return {"field": name, "type": TYPES[kind], **settings}


def mark(kind: str, rows: Rows | None = None, *, encoding: Chart, **settings: Any) -> Chart:
    """A mark and its encoding: a chart's body, or a layer of one. rows: of this layer alone."""
    data = {} if rows is None else {"data": {"values": rows}}
    return {"mark": {"type": kind, **settings}, "encoding": encoding, **data}


def chart(rows: Rows | None, *layers: Chart, height: int = HEIGHT) -> Chart:
    """A chart as wide as its place, of one body or of layers. rows: of all of them; None: each has its own."""
    body = layers[0] if len(layers) == 1 else {"layer": list(layers)}
    return {**({} if rows is None else {"data": {"values": rows}}), **body, "width": "container", "height": height}


def series(rows: Rows) -> list[str]:
    """The series that occur, in the theme's order."""
    there = {row.get("arm", row.get("panel")) for row in rows}
    return [name for name in SERIES if name in there]


def _arms(rows: Rows, **ranges: Any) -> Chart:
    """The channels that tell the series apart: colour, and others by what they give each of `SERIES`."""
    legend = {"title": None, "values": series(rows), "orient": "top", "columns": 4, "symbolOpacity": 1}
    scales = {"color": {}, **{name: {"range": values} for name, values in ranges.items()}}
    return {
        name: channel("arm:N", scale={"domain": list(SERIES), **scale}, legend=legend) for name, scale in scales.items()
    }


def outline(rows: Rows, title: str, log: bool = False, root: bool = False) -> Chart:
    """Histograms of several series as outlines over the same bins. rows: arm, low, high, share.

    log: logarithmic bins; root: a square-root scale of shares.
    """
    points = [{**row, "edge": row["low"]} for row in rows]
    for name in series(rows):  # close the last bin
        last = [row for row in rows if row["arm"] == name][-1]
        points.append({**last, "edge": last["high"]})
    shares = {"title": "share of documents", "axis": {"format": "~%", "tickCount": 6}}
    encoding = {
        "x": channel("edge:Q", title=title, scale=_LOG if log else {"nice": False, "zero": False}),
        "y": channel("share:Q", scale={"type": "sqrt"} if root else {}, **shares),
        **_arms(rows, strokeDash=DASHES),
        "tooltip": [
            channel("arm:N", title="choice"),
            channel("low:Q", title="from", format=".4~g"),
            channel("high:Q", title="to", format=".4~g"),
            channel("share:Q", title="share of documents", format=".2%"),
        ],
    }
    return chart(points, mark("line", interpolate="step-after", strokeWidth=2, encoding=encoding))


def shares(rows: Rows, column: str) -> Chart:
    """Shares of a column's values: the pool's as a bar, the choices as marks on it."""
    order = list(dict.fromkeys(row["value"] for row in rows))
    encoding = {
        "x": channel("share:Q", title="share of documents", axis={"format": "~p", "tickCount": 5}),
        "y": channel("value:N", sort=order, title=None, axis={"labelLimit": 150}),
        "tooltip": [
            channel("value:N", title=column),
            channel("arm:N", title="choice"),
            channel("share:Q", format=".2%"),
        ],
    }
    bars = mark("bar", opacity=0.45, encoding={**encoding, **_arms(rows)})
    points = mark("point", filled=True, size=80, opacity=1, encoding={**encoding, **_arms(rows, shape=_SHAPES)})
    bars["transform"], points["transform"] = ([{"filter": f"datum.arm {sign} 'pool'"}] for sign in ("==", "!="))
    return chart(rows, bars, points, height=max(60, 24 * len(order)))


def history(rows: Rows, bound: float | None) -> Chart:
    """The objective over the solver's steps, under its upper bound where there is one. rows: step, objective."""
    encoding = {
        "x": channel("step:Q", title="step", axis={"format": "~s", "tickMinStep": 1}),
        "y": channel("objective:Q", title="objective (0 random, 1 each term's best)", scale={"zero": False}),
        "tooltip": [channel("step:Q"), channel("objective:Q", format=".5f")],
    }
    line = mark("line", rows, strokeWidth=2, point=len(rows) <= 60, encoding=encoding)
    if bound is None:
        return chart(None, line)
    limit = [{"bound": bound, "label": f"upper bound {bound:.5f}"}]
    place = {"y": channel("bound:Q")}
    rule = mark("rule", limit, strokeDash=[6, 4], strokeWidth=1.5, encoding=place)
    label = {**place, "x": {"value": "width"}, "text": channel("label:N")}
    return chart(None, line, rule, mark("text", limit, align="right", dy=-7, dx=-4, encoding=label))


def document_map(rows: Rows, panel: str, columns: Sequence[str] = ()) -> Chart:
    """One panel of the t-SNE map: a choice's documents over the pool's, in grey. Hover shows the document."""
    reach = max(abs(row[axis]) for axis in ("x", "y") for row in rows) * 1.05
    place = {"axis": None, "scale": {"domain": [-reach, reach], "nice": False}}
    encoding = {"x": channel("x:Q", **place), "y": channel("y:Q", **place), **_arms([{"arm": "pool"}, {"arm": panel}])}
    tooltip = [
        *(channel(f"{name}:N") for name in ("document", "id", *columns)),
        channel("quality:Q", format=".3f"),
        channel("tokens:Q", format=","),
    ]
    pool = [{"x": row["x"], "y": row["y"], "arm": "pool"} for row in rows if row["panel"] == "pool"]
    chosen = [{**row, "arm": panel} for row in rows if row["panel"] == panel]
    grey = mark("circle", pool, size=14, opacity=0.35, encoding=encoding)
    points = mark("circle", chosen, size=26, opacity=0.75, encoding={**encoding, "tooltip": tooltip})
    return chart(None, grey, points, height=300)


def stage_times(rows: Rows) -> Chart:
    encoding = {
        "x": channel("seconds:Q", title="seconds of work"),
        "y": channel("stage:N", sort=[row["stage"] for row in rows], title=None),
        "tooltip": [channel("stage:N"), channel("seconds:Q", format=".1f"), channel("done:Q"), channel("cached:Q")],
    }
    return chart(rows, mark("bar", encoding=encoding), height=max(60, 24 * len(rows)))


def group_sizes(rows: Rows) -> Chart:
    sizes = [row["size"] for row in rows]
    encoding = {
        "x": channel("size:N", sort=sizes, title="documents in the group", axis={"labelAngle": 0}),
        "y": channel("groups:Q", title="groups"),
        "tooltip": [channel("size:N"), channel("groups:Q")],
    }
    return chart(rows, mark("bar", encoding=encoding), height=160)


def whole_map(rows: Rows) -> Chart:
    there = {row["panel"] for row in rows}
    panels = [{**document_map(rows, panel), "width": 260, "height": 260} for panel in MAP_PANELS if panel in there]
    return {"hconcat": panels, "resolve": {"scale": {"color": "independent"}}}


# ---------------------------------------------------------------- colours and fonts


def config(text: str, quiet: str, line: str, colors: tuple[str, ...]) -> dict[str, Any]:
    """A Vega-Lite config from four kinds of colour."""
    axis = {"labelColor": quiet, "titleColor": quiet, "domainColor": line, "tickColor": line, "gridColor": line}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {**axis, "titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 12, "gridOpacity": 0.6},
        "legend": {
            "labelColor": text,
            "titleColor": text,
            "labelFontSize": 12,
            "symbolSize": 90,
            "symbolStrokeWidth": 2,
        },
        "title": {"color": text},
        "range": {"category": list(colors)},
        "bar": {"color": colors[3]},
        "line": {"color": colors[3]},
        "point": {"color": colors[3]},
        "rule": {"color": quiet},
        "text": {"color": quiet, "fontSize": 11},
    }


# colours by the page's CSS variables
PAGE = config("var(--text)", "var(--quiet)", "var(--line)", tuple(f"var(--c{i})" for i in range(len(SERIES))))
PICTURE = config("#1c1e21", "#555b63", "#d8dce1", LIGHT) | {"background": "white"}


def specification(chart: Mapping[str, Any]) -> dict[str, Any]:
    view = {"continuousWidth": 300, "continuousHeight": 300}
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.4.1.json", "config": {"view": view}, **chart}


def picture(chart: Mapping[str, Any], title: str) -> dict[str, Any]:
    """The Vega-Lite specification of the chart as a picture on white, for `drawing.draw_png`."""
    heading = {"text": title, "anchor": "start", "fontSize": 14, "offset": 10}
    widths = {"width": 640} if chart.get("width") == "container" else {}
    return {**specification(chart), **widths, "title": heading, "padding": 12}
