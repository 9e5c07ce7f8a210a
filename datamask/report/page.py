"""The page: findings in, one HTML file out. Everything in it is inline; text from documents is always escaped.

html = render(findings)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata, resources
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from datamask import storage
from datamask.certificate_words import describe, points
from datamask.config import Select, resolve
from datamask.errors import StorageError
from datamask.report import charts
from datamask.report.findings import ARMS, Findings
from datamask.report.formatting import WARNINGS, Table, count, look_command, number, percent, short
from datamask.report.sections import Figure, PageSection, make_sections, table
from datamask.surroundings import cache_folder


def render(findings: Findings) -> str:
    return assemble(
        f"{findings.name}: selection report",
        findings.name,
        lead(findings),
        make_sections(findings),
        head_figures(findings),
        warnings(findings),
        origin(findings),
    )


def warnings(f: Findings) -> list[dict[str, str]]:
    """The warnings at the top: what, the command that shows the documents, what to do."""
    shown = [{"text": w["text"], "look": look_command(w), "remedy": w["remedy"]} for w in f.warnings[:WARNINGS]]
    if more := len(f.warnings) - len(shown):
        shown[-1]["remedy"] += f" ({more:,} more in report.json)"
    return shown


def assemble(
    title: str,
    heading: str,
    lead: str,
    sections: Sequence[PageSection],
    tiles: Sequence[Mapping[str, str]] = (),
    warnings: Sequence[Mapping[str, str]] = (),
    origin: Sequence[tuple[str, str]] = (),
) -> str:
    """A page of sections that have something in them.

    The charts' library (Vega, Vega-Lite, Vega-Embed; BSD-3-Clause) is inlined once, the charts are data.
    """
    return _template().render(
        title=title,
        heading=heading,
        lead=lead,
        warnings=warnings,
        origin=origin,
        tiles=tiles,
        sections=[section for section in sections if section.blocks],
        specifications={name: charts.specification(figure.chart) for name, figure in figures_of(sections).items()},
        config=charts.PAGE,
        css=Markup(resources.files("datamask.report").joinpath("page.css").read_text(encoding="utf-8")),
        library=Markup(library()),
        version=metadata.version("datamask"),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("datamask.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2")


def figures_of(sections: Sequence[PageSection]) -> dict[str, Figure]:
    """The charts of a page, by name."""
    grids = [block for section in sections for block in section.blocks if block["kind"] == "charts"]
    return {figure.name: figure for grid in grids for figure in grid["figures"]}


def table_sections(tables: Sequence[Table]) -> list[PageSection]:
    """A section for each table, which is what the section is called."""
    return [PageSection(f"table-{n}", title, [table(head, rows)]) for n, (title, head, rows) in enumerate(tables)]


def write_pages(folder: str, name: str, data: Any, **pages: tuple[str, str | bytes]) -> dict[str, str]:
    """Writes `<name>.json` and pages into `folder`; returns the paths by kind.

    :param data: plain JSON. :param pages: by kind, the ending of the file's name and its content.
    """
    paths = {"data": storage.join(folder, f"{name}.json")}
    storage.write_json(paths["data"], data)
    for kind, (ending, content) in pages.items():
        paths[kind] = storage.join(folder, name + ending)
        storage.write_content(paths[kind], content)
    return paths


LIBRARY = "window.vegaEmbed = vegaEmbed;"


@cache
def library() -> str:
    """The charts' JavaScript, safe inside a script element; the same for one version of the library, and kept with
    the compiled loops, because to bundle it takes seconds."""
    folder = cache_folder()
    kept = folder / f"vega-{metadata.version('vl-convert-python')}.js" if folder else None
    if kept:
        with suppress(OSError):
            return kept.read_text(encoding="utf-8")
    text = vl_convert.javascript_bundle(LIBRARY).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if kept:
        with suppress(OSError, StorageError):
            storage.write_content(str(kept), text)
    return text


def origin(f: Findings) -> list[tuple[str, str]]:
    """Which release the page is about: its version, when it was made, by what, and of which input."""
    names = {"version": "Release", "created": "Made", "datamask": "By datamask", "input": "Input"}
    return [(label, str(f.release[name])) for name, label in names.items() if f.release.get(name)]


def lead(f: Findings) -> str:
    """What was selected from what, in two sentences."""
    read, kept = f.total(), f.total("selected")
    tokens, kept_tokens = f.total(unit="tokens"), f.total("selected", unit="tokens")
    select = f.settings["select"]
    metric = resolve(Select.model_validate(select)).metric
    text = (
        f"{count(kept)} of {count(read)} documents were selected ({percent(kept / max(read, 1))}), "
        f"{short(kept_tokens)} of {short(tokens)} tokens ({percent(kept_tokens / max(tokens, 1))}), "
        f"by {select['solver']} on {metric} with λ = {select['lamb']:g} "
        "(1: quality alone, 0: diversity alone)."
    )
    if certificate := describe(f.certificate, select["calibrate"]):
        text += f" Certificate: {certificate}."
    return text


def head_figures(f: Findings) -> list[dict[str, str]]:
    """The figures at the head of the page: label, value and note of each."""
    pool, random, top, ours = map(f.arm, ARMS)
    found = [
        ("Selected", count(f.total("selected")), f"of {count(f.total())} documents read"),
        ("Tokens", short(f.total("selected", unit="tokens")), f"of {short(f.total(unit='tokens'))}"),
        (
            "Mean quality",
            number(ours["mean_quality"]),
            f"pool {number(pool['mean_quality'])}, top-quality {number(top['mean_quality'])}",
        ),
        ("Length ratio", percent(ours["length_ratio"], 0), f"top-quality {percent(top['length_ratio'], 0)}"),
    ]
    if f.embedded:
        found[3:3] = [
            ("Vendi score", number(ours["vendi"], 0), f"top-quality {number(top['vendi'], 0)}"),
            (
                "Near-duplicates",
                percent(ours["near_duplicates"]),
                f"random {percent(random['near_duplicates'])}, top-quality {percent(top['near_duplicates'])}",
            ),
        ]
    if f.certificate.get("objective") is not None:
        bound = f.certificate.get("upper_bound")
        note = f"bound {number(bound, 4)}, gap {points(f.certificate['gap'])}" if bound is not None else "no bound"
        found.insert(2, ("Score", number(f.certificate["objective"], 4), note))
    return [{"label": label, "value": value, "note": note} for label, value, note in found]
