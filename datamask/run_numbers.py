"""The numbers of a curation: as plain JSON, as Markdown for the UI, and a row per shard."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from datamask import storage
from datamask.certificate_words import describe
from datamask.corpus.plan import FailedFile, part_of
from datamask.engine import Engine, ShardTimes
from datamask.errors import several
from datamask.release.personal import NAMES
from datamask.release.release_folder import ReleaseFolder
from datamask.report.formatting import sentence

CERTIFICATE = ("objective", "upper_bound", "gap", "integrality", "continues")  # of the selection's

COUNTED = ("stage", "done", "cached", "in_place", "failed")  # of a stage: its name, and what became of its shards


def numbers(
    release: ReleaseFolder,
    engine: Engine,
    certificate: Mapping[str, Any],
    failed: Sequence[FailedFile],
    skipped: Sequence[FailedFile] = (),
) -> dict[str, Any]:
    """What the command prints at its end, and what the flow returns: small, plain JSON."""
    manifest = release.manifest()
    total: Mapping[str, Any] = manifest["conservation"]["total"]
    return {
        "release": release.path,
        "version": release.version,
        "new": release.new,
        "removed": list(release.removed),
        "report": storage.join(release.path, "report.html"),
        "documents": {
            "read": total["rows"],
            "selected": total["selected"],
            "not_selected": total["not_selected"],
            "filtered": dict(total["filtered"]),
            "quarantined": dict(total["quarantined"]),
        },
        "personal": manifest.get("personal"),
        "tokens": {"read": total["tokens_read"], "selected": total["tokens_selected"]},
        "certificate": {
            **{name: certificate.get(name) for name in CERTIFICATE},
            "calibrated": engine.config.select.calibrate,
        },
        "stages": [
            {**{name: getattr(line, name) for name in COUNTED}, "seconds": round(line.seconds, 2)}
            for line in engine.board.stages.values()
        ],
        "failed": [asdict(file) for file in failed],
        "read_as": [
            {"path": source["path"], "how": str(part_of(source).reading)}
            for source in manifest["sources"]
            if source.get("reading")
        ],
        "restated": [column for column in manifest["columns"] if "from" in column],
        "skipped": [asdict(file) for file in skipped],
        "seconds": round(time.monotonic() - engine.began, 1),
    }


def unchanged(last: ReleaseFolder, message: str) -> dict[str, Any]:
    """What a flow returns that had no reason to publish; the message says why."""
    return {"message": message, "latest": last.path, "new": False}


def table(found: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Rows of (what, documents, tokens, reasons)."""
    documents, tokens = found["documents"], found["tokens"]
    rows = [
        ("read", f"{documents['read']:,}", _count(tokens["read"]), ""),
        ("selected", f"{documents['selected']:,}", _count(tokens["selected"]), ""),
        ("not selected", f"{documents['not_selected']:,}", "", ""),
    ]
    for kind in ("filtered", "quarantined"):
        reasons = {reason: count for reason, count in sorted(documents[kind].items()) if count}
        rows.append((kind, f"{sum(reasons.values()):,}", "", ", ".join(f"{r} {n:,}" for r, n in reasons.items())))
    return rows


def personal_line(found: Mapping[str, Any]) -> str:
    """What was found of personal data in a line, or '' where it was not looked for."""
    if (counts := found["personal"]) is None:
        return ""
    kinds = ", ".join(several(counts[kind], *name) for kind, name in NAMES.items() if counts.get(kind))
    where = several(counts["documents"], "document")
    return f"personal data: {kinds} in {where}" if kinds else "personal data: none found"


def certificate_line(found: Mapping[str, Any]) -> str:
    """The certificate in words, or '' where the solver gives none."""
    certificate = found["certificate"]
    text = describe(certificate, bool(certificate.get("calibrated")))
    return f"certificate: {text}" if text else ""


def as_markdown(found: Mapping[str, Any]) -> str:
    """The numbers as a page for the UI."""
    lines = [f"# {found['version']}", "", "| | documents | tokens | |", "|---|---:|---:|---|"]
    lines += [f"| {' | '.join(row)} |" for row in table(found)]
    lines += [
        "",
        certificate_line(found),
        "",
        personal_line(found),
        "",
        "| stage | done | cached | failed | seconds |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {line['stage']} | {line['done']:,} | {line['cached']:,} | {line['failed']:,} | {line['seconds']:.1f} |"
        for line in found["stages"]
    ]
    for warning in found.get("warnings", ()):
        lines += ["", f"**Warning.** {sentence(warning, found['release'])}"]
    lines += ["", f"Dataset: `{found['release']}`", "", f"Report: `{found['report']}`"]
    if found["failed"]:
        lines += ["", "## Failed", ""] + [f"- `{file['path']}`: {file['error']}" for file in found["failed"]]
    return "\n".join(lines)


def shard_rows(release: ReleaseFolder, engine: Engine) -> list[dict[str, Any]]:
    """A row per shard: stages it went through now (the others were cached), rows in, what became of them, seconds.

    Failed ones come first.
    """
    rows: list[dict[str, Any]] = [
        {"shard": failure.shard, "done now": f"failed in {failure.stage}: {failure.error}"}
        for failure in engine.failures
    ]
    for name, count in sorted(release.manifest()["conservation"]["shards"].items()):
        times = engine.times.get(name, ShardTimes())
        rows.append(
            {
                "shard": name,
                "done now": ", ".join(times.worked) or "nothing, all cached",
                "rows": count["rows"],
                "selected": count["selected"],
                "not selected": count["not_selected"],
                "filtered": sum(count["filtered"].values()),
                "quarantined": sum(count["quarantined"].values()),
                "seconds": round(sum(times.seconds.values()), 2),
            }
        )
    return rows


def warning_sentences(found: Mapping[str, Any]) -> list[str]:
    """What a run's log holds as warnings, a sentence each: the report's, drift, what failed, what was not read."""
    return [
        *(sentence(warning, found["release"]) for warning in found.get("warnings", ())),
        *(f"drift: {shift['text']}" for shift in found.get("drift", ())),
        *(f"missing from the release: {file['path']}: {file['error']}" for file in found["failed"]),
    ]


def _count(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"
