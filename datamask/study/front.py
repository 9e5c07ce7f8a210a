"""The sweep for people: the chart of its front, its page, and a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from datamask import storage
from datamask.report import page, themes
from datamask.report.drawing import draw_png
from datamask.report.figures import Figure
from datamask.report.formatting import count, number, percent
from datamask.report.sections import PageSection, chart_grid, table
from datamask.study.sweep import Point, Sweep, envelope

LOWEST = -1.0  # a diversity term below (top-quality can be far worse than random) is drawn at the edge, with its value
SHOWN_VALUES = 8  # of a column, in the chart of shares over λ


def point_marks(front: Sweep, point: Point) -> str:
    """ "knee", "chosen", both or neither."""
    found = ["knee"] if point is front.points[front.knee] else []
    return ", ".join([*found, "chosen"] if abs(point.lamb - front.chosen) < 1e-9 else found)


def front_rows(front: Sweep, columns: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Head and a row per λ; `columns`: those whose effective number is shown."""
    head = ["λ", "quality term", "diversity term", "objective", "bound", "gap", "mean quality", "Vendi", "near-dup."]
    head += ["length ratio", *(f"eff. {column}" for column in columns), "shared with λ before", "s", ""]
    body = [
        [
            f"{point.lamb:.2f}",
            number(point.quality),
            number(point.diversity),
            number(point.objective, 4),
            number(point.upper_bound, 4),
            percent(point.gap, 2),
            number(point.mean_quality),
            number(point.vendi, 0),
            percent(point.near_duplicates),
            percent(point.length_ratio, 0),
            *(number(point.effective[column], 1) for column in columns),
            percent(point.overlap_before, 0),
            f"{point.seconds:.1f}",
            point_marks(front, point),
        ]
        for point in front.points
    ]
    return head, body


def front_chart(front: Sweep) -> alt.LayerChart | alt.FacetChart:
    """Quality against diversity: a point per λ, joined in order, under the curve that no selection can pass."""
    low = max(min(point.diversity for point in front.points), LOWEST)
    points: list[dict[str, Any]] = [
        {
            "quality": point.quality,
            "diversity": point.diversity,
            "height": max(point.diversity, low),
            "lamb": point.lamb,
            "label": f"λ {point.lamb:g}" + (f" (at −{-point.diversity:.1f})" if point.diversity < low else ""),
            "kind": point_marks(front, point).split(", ")[0] or "measured",
            "area": 220 if point_marks(front, point) else 60,
            "mean_quality": point.mean_quality,
            "vendi": point.vendi,
            "near_duplicates": point.near_duplicates,
        }
        for point in front.points
    ]
    calibrated = "(0 random, 1 the best possible)"
    x = alt.X("quality:Q", title=f"quality term {calibrated}", scale=alt.Scale(zero=False))
    y = alt.Y("height:Q", title=f"diversity term {calibrated}", scale=alt.Scale(zero=False))
    data = alt.Data(values=points)
    kinds = ["measured", "knee", "chosen"]
    tooltip = [
        alt.Tooltip("lamb:Q", title="λ"),
        alt.Tooltip("quality:Q", format=".4f"),
        alt.Tooltip("diversity:Q", format=".4f"),
        alt.Tooltip("mean_quality:Q", title="mean quality", format=".3f"),
        alt.Tooltip("vendi:Q", title="Vendi score", format=".0f"),
        alt.Tooltip("near_duplicates:Q", title="near-duplicates", format=".1%"),
    ]
    inside = alt.Data(values=[point for point in points if point["diversity"] >= low])
    line = alt.Chart(inside).mark_line(strokeWidth=2).encode(x=x, y=y, order="lamb:Q")
    dots = (
        alt.Chart(data)
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            size=alt.Size("area:Q", scale=None, legend=None),
            shape=alt.Shape(
                "kind:N",
                scale=alt.Scale(domain=kinds, range=["circle", "diamond", "square"]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            tooltip=tooltip,
        )
    )
    above = [row for row in envelope(front.points) if row["diversity"] >= low]
    labels = alt.Chart(data).mark_text(dx=10, dy=-8, align="left").encode(x=x, y=y, text="label:N")
    bound = (
        alt.Chart(alt.Data(values=[{**row, "height": row["diversity"]} for row in above]))
        .mark_line(strokeDash=[6, 4], strokeWidth=1.5, clip=True)
        .encode(x=x, y=y, color=alt.value("gray"))
    )
    name = alt.Chart(alt.Data(values=[{**row, "height": row["diversity"]} for row in above[len(above) // 4 :][:1]]))
    name = name.mark_text(dy=-9, align="center").encode(x=x, y=y, text=alt.value("no selection lies above"))
    return alt.layer(bound, name, line, dots, labels).properties(width="container", height=380)


def share_chart(front: Sweep, column: str) -> alt.Chart:
    """Shares of a column's largest values over λ."""
    totals: dict[str, float] = {}
    for point in front.points:
        for value, share in point.shares[column].items():
            totals[value] = totals.get(value, 0.0) + share
    shown = sorted(totals, key=lambda value: (-totals[value], value))[:SHOWN_VALUES]
    data: list[dict[str, Any]] = []
    for point in front.points:
        shares = point.shares[column]
        data += [{"lamb": point.lamb, "value": value, "share": shares.get(value, 0.0)} for value in shown]
        rest = 1 - sum(shares.get(value, 0.0) for value in shown)
        if len(totals) > len(shown):
            data.append({"lamb": point.lamb, "value": "others", "share": max(rest, 0.0)})
    order = [*shown, "others"] if len(totals) > len(shown) else shown
    return (
        alt.Chart(alt.Data(values=data))
        .mark_rect()
        .encode(
            x=alt.X("lamb:O", title="λ (0 diversity alone, 1 quality alone)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:N", sort=order, title=None, axis=alt.Axis(labelLimit=150)),
            color=alt.Color(
                "share:Q", scale=alt.Scale(scheme="blues"), legend=alt.Legend(title="share", format="%", orient="top")
            ),
            tooltip=["value:N", alt.Tooltip("lamb:Q", title="λ"), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width="container", height=24 * len(order))
    )


def render(front: Sweep) -> str:
    """The sweep's page."""
    first = front.points[0]
    columns = list(first.effective)
    figures = {
        "front": Figure(
            front_chart(front),
            "The front: what a gain in quality costs in diversity",
            "Each mark is the best selection found for one λ. The dashed curve is made of the certificates: no selection of "
            "this size lies above it, so where the marks touch it they cannot be improved. The diamond is the knee: the "
            "mark whose gains over a random selection, in quality times in diversity, make the largest rectangle (Nash's bargaining solution). "
            "The square is the configuration's own λ. A mark whose diversity lies below the chart is drawn at its edge.",
        )
    }
    figures |= {f"share-{column}": Figure(share_chart(front, column), f"Share by {column}") for column in columns}
    head, body = front_rows(front, columns)
    knee = front.points[front.knee]
    note = (
        "Terms are calibrated: 0 is a random selection, 1 is the best that quality, or diversity, alone could do. Length ratio: "
        "mean tokens over the pool's. Shared: Jaccard similarity with the selection of the row above. "
        f"All solves together took {front.seconds:.1f} s; each begins where the one below it ended."
    )
    sampled = "" if front.share >= 1 else f" (a {percent(front.share)} sample of the corpus)"
    lead = (
        f"{len(front.points)} selections of {count(first.documents)} from {count(front.size)} candidates{sampled}, "
        f"by {front.solver} on {front.algorithm}. The knee is at λ = {knee.lamb:g}; the configuration has λ = {front.chosen:g}."
    )
    sections = [
        PageSection("front", "Quality against diversity", [chart_grid(["front"])]),
        PageSection("table", "What changes with λ", [table(head, body, f"{front.chosen:.2f}", note)]),
        PageSection("shares", "Where it comes from", [chart_grid([name for name in figures if name != "front"])]),
    ]
    return page.assemble(f"{front.name}: sweep over λ", f"{front.name}: the balance", lead, [], sections, figures)


def write_front(folder: str, front: Sweep) -> dict[str, str]:
    """Writes sweep.json, sweep.html and front.png into `folder`; returns their paths by kind."""
    paths = {kind: storage.join(folder, name) for kind, name in _FILES.items()}
    storage.write_json(paths["data"], front.as_json())
    storage.write_content(paths["page"], render(front))
    picture = themes.picture(front_chart(front), "Quality against diversity for λ from 0 to 1")
    storage.write_content(paths["picture"], draw_png(picture))
    return paths


_FILES = {"data": "sweep.json", "page": "sweep.html", "picture": "front.png"}
