"""The stage: the page, its data and the card's pictures, written into a staged release.

report = write_report(staged, all_files, config, certificate, stages)
report.pictures      # for the dataset card
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from datamask import storage
from datamask.config import Config
from datamask.errors import InputError, some
from datamask.maps import Mapper, here, rounds
from datamask.release.release_folder import Picture, Staged, next_version
from datamask.report import charts, drawing
from datamask.report.findings import Findings, StageTime, find_findings
from datamask.shares import share_part, tell_share
from datamask.stages import ShardFiles, record

PAGE = "report.html"
DATA = "report.json"
INPUTS = 3  # patterns of the input that the page's head names
FILES = 100  # of the input's that are named where they are not in the release; the manifest names all


@dataclass(frozen=True)
class Report:
    """What others say of a release's report."""

    pictures: tuple[Picture, ...]
    warnings: tuple[Mapping[str, Any], ...] = ()  # worst first; plain JSON (see `losses`)


def write_report(
    staged: Staged,
    all_files: Sequence[ShardFiles],
    config: Config,
    certificate: Mapping[str, Any],
    stages: Sequence[StageTime] = (),
    maps: Mapper = here,
) -> Report:
    """Computes the findings and writes report.html, report.json and plots/*.png into the staged release.

    A staged release that is published already is left as it is. Either way the run's files are recorded in work/, so
    that `datamask sweep` and `datamask ablate` find the embedded corpus.

    :param maps: who reads the shards: their statistics and sample, then the vectors and the texts that are shown.
    :raises ConservationError: the stages' files disagree.
    :raises StorageError: the folder cannot be written.
    """
    record(storage.join(staged.out, "work"), all_files, config)
    if staged.published:
        return describe(load_findings(staged.folder))
    work = storage.join(staged.out, "work")
    with rounds(work, "report", staged.key) as folder, share_part(0, 0.6):
        findings = find_findings(all_files, config, certificate, stages, work, maps, folder)
    facts = staged.facts()
    left = {"failed": facts["provenance"]["failed"], "skipped": facts["skipped"]}
    unread = {kind: {"count": len(files), "files": files[:FILES]} for kind, files in left.items() if files}
    personal = facts.get("personal", {})
    origin = {
        "version": next_version(staged.out, staged.key),
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "datamask": metadata.version("datamask"),
        "input": some(config.corpus.input, INPUTS),
    }
    findings = replace(findings, unread=unread, personal=personal, release=origin)
    with share_part(0.6, 1):
        return describe(write_findings(staged.folder, findings))


def write_findings(folder: str, findings: Findings) -> Findings:
    """Writes the page, its data and the pictures; returns the findings as they are stored."""
    from datamask.report import page  # with what draws, which a report that is there does not need

    storage.write_json(storage.join(folder, DATA), findings.as_json())
    findings = load_findings(folder)  # what is drawn is what is stored
    storage.write_content(storage.join(folder, PAGE), page.render(findings))
    tell_share(0.5)
    for picture, chart in _pictures(findings):
        drawn = drawing.draw_png(charts.picture(chart, picture.title))
        storage.write_content(storage.join(folder, picture.path), drawn)
    return findings


def load_findings(folder: str) -> Findings:
    """:raises InputError: there are none, or another version wrote them."""
    path = storage.join(folder, DATA)
    if not storage.exists(path):
        raise InputError(
            f"{folder} has no {DATA}: it is no release with a report; run `datamask curate` again to make one"
        )
    stored = storage.read_json(path)
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(Findings)}
    needed = {name for name, required in known.items() if required}
    if not isinstance(stored, dict) or not needed <= set(stored):
        raise InputError(f"{path} was written by another version of datamask; run `datamask curate` again to renew it")
    return Findings(**{name: stored[name] for name in known if name in stored})  # an older page had more


def describe(findings: Findings) -> Report:
    return Report(tuple(picture for picture, _ in _pictures(findings)), tuple(findings.warnings))


def headline_numbers(findings: Findings) -> dict[str, Any]:
    ours = findings.arm("selected")
    return {
        "read": findings.total(),
        "selected": findings.total("selected"),
        "selected_tokens": findings.total("selected", unit="tokens"),
        "objective": findings.certificate.get("objective"),
        "upper_bound": findings.certificate.get("upper_bound"),
        "relative_gap": findings.certificate.get("gap"),
        **{name: ours.get(name) for name in ("mean_quality", "vendi", "near_duplicates", "length_ratio")},
    }


def _pictures(f: Findings) -> list[tuple[Picture, charts.Chart]]:
    """The card's pictures: file and title, and the chart."""
    found: list[tuple[str, str, charts.Chart]] = []
    if grouped := next((column for column in ("source", "domain", "language", "dump") if column in f.groups), None):
        chart = charts.shares(f.groups[grouped], grouped)
        found.append((grouped, f"Share by {grouped}: pool, top-quality, selected", chart))
    if f.quality:
        scorer = f.quality[0]["scorer"]
        rows = [row for row in f.quality if row["scorer"] == scorer]
        found.append(("quality", f"Distribution of the score {scorer}", charts.outline(rows, scorer)))
    if f.lengths:
        chart = charts.outline(f.lengths, "tokens (log scale)", log=True)
        found.append(("lengths", "Length of documents", chart))
    if f.map:
        title = "Map of the documents (t-SNE): top-quality, diversity only, selected"
        found.append(("map", title, charts.whole_map(f.map)))
    return [(Picture(f"plots/{name}.png", title), chart) for name, title, chart in found]
