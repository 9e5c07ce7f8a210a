"""How releases have changed, from their manifests and reports: rows for a table, and a page of small charts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datamask import storage
from datamask.errors import several
from datamask.release.card import render_template
from datamask.release.manifest import data_paths
from datamask.release.printing import figure, size
from datamask.release.release_folder import ReleaseFolder, latest_version, release_versions

CHARTS = {
    "read": "rows read",
    "selected": "documents selected",
    "tokens": "tokens selected",
    "filtered": "rows filtered",
    "quality": "mean quality of what was selected",
    "gap": "gap to the bound",
    "seconds": "seconds of work",
    "cost": "cost of these seconds",
    "bytes": "bytes of the release",
}


def gather(out: str, price: float | None = None) -> list[dict[str, Any]]:
    """A row per release, oldest first; what a release does not tell is None.

    :param price: of an hour of work, in any currency; None: cost is not told.
    :raises InputError: there is no release.
    """
    out = storage.output_folder(out)
    found, latest = release_versions(out), latest_version(out)
    return [_row(release, release.version == latest, price) for release in found]


def _row(release: ReleaseFolder, latest: bool, price: float | None) -> dict[str, Any]:
    manifest = release.manifest()
    total = manifest["conservation"]["total"]
    certificate = manifest["provenance"]["certificate"]
    url = storage.join(release.path, "report.json")
    report = storage.read_json(url) if storage.exists(url) else {}
    stages = report.get("stages") or []
    seconds = sum(stage["seconds"] for stage in stages) if stages else None
    return {
        "version": release.version,
        "latest": latest,
        "created": manifest["created"],
        "read": total["rows"],
        "selected": total["selected"],
        "tokens": total["tokens_selected"],
        "filtered": sum(total["filtered"].values()),
        "quality": _quality(release, manifest),
        "gap": certificate.get("gap"),
        "seconds": None if seconds is None else round(seconds, 1),
        "cost": None if seconds is None or price is None else round(seconds / 3600 * price, 4),
        "bytes": sum(item["bytes"] for item in manifest["files"]),
    }


def _quality(release: ReleaseFolder, manifest: Mapping[str, Any]) -> float | None:
    total, rows = 0.0, 0
    for path in data_paths(manifest):
        for batch in release.batches(path, ["quality_score"]):
            values = batch["quality_score"].drop_null().to_numpy()
            total, rows = total + float(values.sum(dtype="float64")), rows + len(values)
    return total / rows if rows else None


def write_page(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Publishes the page: a chart for each of CHARTS, drawn as SVG, and the numbers. Needs no network."""
    told = [name for name in rows[0] if name != "latest" and any(row[name] is not None for row in rows)]
    shown = [[_shown(row, name) for name in told] for row in rows]
    charts = [(title, _chart(rows, name, title)) for name, title in CHARTS.items()]
    page = render_template("trends.html.j2", title=several(len(rows), "release"), charts=charts, head=told, rows=shown)
    storage.write_content(path if storage.is_remote(path) else str(Path(path).resolve()), page)


def _chart(rows: Sequence[Mapping[str, Any]], name: str, title: str) -> str | None:
    """As SVG; None: no release tells the numbers."""
    import vl_convert

    values = [{"release": row["version"].split("-")[0], "value": row[name]} for row in rows if row[name] is not None]
    if not values:
        return None
    spec = {
        "width": 260,
        "height": 120,
        "title": title,
        "data": {"values": values},
        "mark": {"type": "line", "point": True, "color": "#0072b2"},
        "encoding": {
            "x": {"field": "release", "type": "ordinal", "title": None},
            "y": {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}},
        },
    }
    return vl_convert.vegalite_to_svg(json.dumps(spec))


def _shown(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if name == "version":
        return f"{value} (latest)" if row["latest"] else str(value)
    if name == "created":  # ISO 8601: to the minute
        return str(value)[:16].replace("T", " ")
    if name == "bytes":
        return size(value)
    return "" if value is None else figure(value, 5)
