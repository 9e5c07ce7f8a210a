"""The sweep for people: the chart of its front, its page, and a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from datamask import storage
from datamask.report import charts, page, themes
from datamask.report.charts import channel, mark
from datamask.report.drawing import draw_png
from datamask.report.formatting import count, number, percent
from datamask.report.sections import Figure, PageSection, chart_grid, table
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


def front_chart(front: Sweep) -> charts.Chart:
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
    place = {
        "x": channel("quality:Q", title=f"quality term {calibrated}", scale={"zero": False}),
        "y": channel("height:Q", title=f"diversity term {calibrated}", scale={"zero": False}),
    }
    shapes = {"domain": ["measured", "knee", "chosen"], "range": ["circle", "diamond", "square"]}
    dots = {
        **place,
        "size": channel("area:Q", scale=None, legend=None),
        "shape": channel("kind:N", scale=shapes, legend={"title": None, "orient": "top"}),
        "tooltip": [
            channel("lamb:Q", title="λ"),
            channel("quality:Q", format=".4f"),
            channel("diversity:Q", format=".4f"),
            channel("mean_quality:Q", title="mean quality", format=".3f"),
            channel("vendi:Q", title="Vendi score", format=".0f"),
            channel("near_duplicates:Q", title="near-duplicates", format=".1%"),
        ],
    }
    inside = [point for point in points if point["diversity"] >= low]
    above = [{**row, "height": row["diversity"]} for row in envelope(front.points) if row["diversity"] >= low]
    name, grey = {**place, "text": {"value": "no selection lies above"}}, {**place, "color": {"value": "gray"}}
    return charts.chart(
        None,
        mark("line", above, strokeDash=[6, 4], strokeWidth=1.5, clip=True, encoding=grey),
        mark("text", above[len(above) // 4 :][:1], dy=-9, align="center", encoding=name),
        mark("line", inside, strokeWidth=2, encoding={**place, "order": channel("lamb:Q")}),
        mark("point", points, filled=True, opacity=1, encoding=dots),
        mark("text", points, dx=10, dy=-8, align="left", encoding={**place, "text": channel("label:N")}),
        height=380,
    )


def share_chart(front: Sweep, column: str) -> charts.Chart:
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
    encoding = {
        "x": channel("lamb:O", title="λ (0 diversity alone, 1 quality alone)", axis={"labelAngle": 0}),
        "y": channel("value:N", sort=order, title=None, axis={"labelLimit": 150}),
        "color": channel(
            "share:Q", scale={"scheme": "blues"}, legend={"title": "share", "format": "%", "orient": "top"}
        ),
        "tooltip": [channel("value:N"), channel("lamb:Q", title="λ"), channel("share:Q", format=".1%")],
    }
    return charts.chart(data, mark("rect", encoding=encoding), height=24 * len(order))


def render(front: Sweep) -> str:
    columns = list(front.points[0].effective)
    fewest, most = (end(point.documents for point in front.points) for end in (min, max))
    documents = count(most) if fewest == most else f"{count(fewest)} to {count(most)}"
    balance = Figure(
        "front",
        front_chart(front),
        "The front: what a gain in quality costs in diversity",
        "Each mark is the best selection found for one λ. The dashed curve is made of the certificates: no selection of "
        "this size lies above it, so where the marks touch it they cannot be improved. The diamond is the knee: the "
        "mark whose gains over a random selection, in quality times in diversity, make the largest rectangle (Nash's bargaining solution). "
        "The square is the configuration's own λ. A mark whose diversity lies below the chart is drawn at its edge.",
    )
    shares = [Figure(f"share-{column}", share_chart(front, column), f"Share by {column}") for column in columns]
    head, body = front_rows(front, columns)
    knee = front.points[front.knee]
    note = (
        "Terms are calibrated: 0 is a random selection, 1 is the best that quality, or diversity, alone could do. Length ratio: "
        "mean tokens over the pool's. Shared: Jaccard similarity with the selection of the row above. "
        f"All solves together took {front.seconds:.1f} s."
    )
    sampled = "" if front.share >= 1 else f" (a {percent(front.share)} sample of the corpus)"
    lead = (
        f"{len(front.points)} selections of {documents} from {count(front.size)} candidates{sampled}, "
        f"by {front.solver} on {front.algorithm}. The knee is at λ = {knee.lamb:g}; the configuration has λ = {front.chosen:g}."
    )
    sections = [
        PageSection("front", "Quality against diversity", [chart_grid(balance)]),
        PageSection("table", "What changes with λ", [table(head, body, f"{front.chosen:.2f}", note)]),
        PageSection("shares", "Where it comes from", [chart_grid(*shares)]),
    ]
    return page.assemble(f"{front.name}: sweep over λ", f"{front.name}: the balance", lead, sections)


def write_front(folder: str, front: Sweep) -> dict[str, str]:
    paths = {kind: storage.join(folder, name) for kind, name in _FILES.items()}
    storage.write_json(paths["data"], asdict(front))
    storage.write_content(paths["page"], render(front))
    picture = themes.picture(front_chart(front), "Quality against diversity for λ from 0 to 1")
    storage.write_content(paths["picture"], draw_png(picture))
    return paths


_FILES = {"data": "sweep.json", "page": "sweep.html", "picture": "front.png"}
