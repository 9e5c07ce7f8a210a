"""Colours and fonts of charts: CSS variables on the page, so that dark mode and print redraw nothing; fixed in PNGs.

The palette is Okabe & Ito's (2008, "Color Universal Design"), told apart with every common form of colour blindness;
the page's dark variants are the same hues, lighter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SERIES = ("pool", "random", "top-quality", "selected", "diversity only")  # the order of every colour scale
DASHES = [[1, 0], [2, 2], [6, 3], [1, 0], [8, 2, 2, 2]]
LIGHT = ("#8a8f98", "#a0568a", "#d55e00", "#0072b2", "#009e73")
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif"


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
