"""What the public summary of training content says, counted over every published document.

The template is the Commission's, for Article 53(1)(d) of Regulation (EU) 2024/1689 (explanatory notice and template of
24 July 2025). Domains, languages, dumps, dates, sources and licences are counted from the data files, in documents and
in bytes of UTF-8 text; a document that was chosen several times counts once, in tokens too.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Statement, validate
from datamask.corpus.web_addresses import hosts_of
from datamask.duck import connect, tables
from datamask.release.card import notes_of, one_line, render_template
from datamask.release.manifest import data_paths
from datamask.release.release_folder import ReleaseFolder

MEMORY = "500MB"  # of the counts; more are spilled
ROWS = 10_000
BANDS = (  # the template's section 1.3
    (10**9, "less than 1 billion tokens"),
    (10**13, "1 billion to 10 trillion tokens"),
    (math.inf, "more than 10 trillion tokens"),
)
TOP, SMALL_TOP, SMALL_MOST = 0.10, 0.05, 1000  # domains listed by size, and by a small or medium enterprise (2.3)
LABELS = {  # what is counted: the columns that may hold it, the first that is there counts
    "domains": ("url",),
    "languages": ("language",),
    "dumps": ("dump",),
    "dates": ("date",),
    "sources": ("source",),
    "licences": ("license", "licence"),
}
MOST = 1000  # values listed of each but domains
FILES = ("summary.md", "summary.json", "croissant.json")
BLANK = "**[for the provider to fill in]**"
KINDS = {
    "(large_)?string": "sc:Text", "u?int": "sc:Integer", "float|double|halffloat": "sc:Float", "bool": "sc:Boolean",
    "timestamp": "sc:DateTime", "date": "sc:Date",
}  # fmt: skip  # Arrow's types, and the format's


def summarise(draft: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The summary's facts, ready for JSON.

    :param draft: what the manifest says, or will say.
    :param folder: the release, or where it is staged.
    """
    settings = validate(draft["settings"])
    total = draft["conservation"]["total"]
    with tempfile.TemporaryDirectory(prefix="datamask-") as work, connect(MEMORY, work) as connection:
        columns = _count(draft, ReleaseFolder(folder, "", draft["key"]), connection)
        counted = {label: _listed(connection, label) for label in LABELS if label not in ("domains", "dates")}
        first, last, *_ = _totals(connection, "dates")
        domains = _domains(connection, settings.release.small_enterprise)
        *_, documents, size, characters, tokens = _totals(connection, "every")
    return {
        "template": "Article 53(1)(d) of Regulation (EU) 2024/1689, template of 24 July 2025",
        "name": settings.release.name,
        "release": draft["key"],
        "statements": {name: settings.release.statements.get(name) for name in get_args(Statement)},
        "text": {
            "documents": documents,
            "bytes": size,
            "characters": characters,
            "tokens": tokens,
            "band": next(name for most, name in BANDS if tokens < most),
            **({"tokens_as_chosen": chosen} if (chosen := total["tokens_selected"]) != tokens else {}),
        },
        "dates": {"first": first, "last": last} if first else None,
        "columns": columns,
        **counted,
        "licence": settings.release.license,
        "inputs": _inputs(draft["sources"]),
        "domains": domains,
        "read": total["rows"],
        "removed": {
            "no document": dict(total["quarantined"]),
            "filtered": dict(total["filtered"]),
            "not selected": total["not_selected"],
        },
        "personal": draft.get("personal"),
        "personal_replaced": settings.release.personal == "replace",
    }


def with_statements(manifest: Mapping[str, Any], statements: Mapping[str, str], small: bool) -> dict[str, Any]:
    """A manifest whose settings say more of the provider."""
    section = manifest["settings"]["release"]
    small = small or section.get("small_enterprise", False)
    said = {"statements": {**section.get("statements", {}), **statements}, "small_enterprise": small}
    return {**manifest, "settings": {**manifest["settings"], "release": {**section, **said}}}


def _count(
    draft: Mapping[str, Any], release: ReleaseFolder, connection: duckdb.DuckDBPyConnection
) -> dict[str, str | None]:
    """Fills the table `counts`; the column that each label was read from."""
    texts = {column["name"] for column in draft["columns"] if column["type"] in ("string", "large_string")}
    found = {label: next((name for name in names if name in texts), None) for label, names in LABELS.items()}
    columns = sorted({name for name in found.values() if name})
    connection.execute(
        "CREATE TABLE counts "
        "(label VARCHAR, value VARCHAR, documents BIGINT, bytes BIGINT, characters BIGINT, tokens BIGINT)"
    )
    for path in data_paths(draft):
        for batch in release.documents(path, ["text", "token_count", *columns], rows=ROWS):
            facts = {"every": pa.repeat("", batch.num_rows)}
            facts |= {label: batch[name].cast(pa.string()) for label, name in found.items() if name}
            if found["domains"]:
                facts["domains"] = hosts_of(facts["domains"])
            if found["dates"]:
                facts["dates"] = pc.struct_field(pc.extract_regex(facts["dates"], r"^(?P<day>\d{4}-\d\d-\d\d)"), "day")
            sizes = {"bytes": pc.binary_length(batch["text"]), "characters": pc.utf8_length(batch["text"])}
            sizes |= {"tokens": batch["token_count"]}
            with tables(connection, rows=pa.table({**facts, **sizes})):
                for label in facts:
                    sums = "count(*), sum(bytes), sum(characters), sum(tokens)"
                    counted = f"SELECT '{label}', {label}, {sums} FROM rows GROUP BY ALL"
                    connection.execute(f"INSERT INTO counts {counted}").fetchall()
    return found


def _totals(connection: duckdb.DuckDBPyConnection, label: str) -> tuple[Any, ...]:
    """The least value, the greatest, how many there are, and documents, bytes, characters, tokens that have one."""
    return connection.execute(
        "SELECT min(value), max(value), count(DISTINCT value), "
        "sum(documents)::BIGINT, sum(bytes)::BIGINT, sum(characters)::BIGINT, sum(tokens)::BIGINT "
        "FROM counts WHERE label = ? AND value IS NOT NULL",
        [label],
    ).fetchall()[0]


def _listed(connection: duckdb.DuckDBPyConnection, label: str, most: int = MOST) -> list[dict[str, Any]]:
    """Values by size, the largest first."""
    rows = connection.execute(
        "SELECT value, sum(documents)::BIGINT, sum(bytes)::BIGINT FROM counts WHERE label = ? AND value IS NOT NULL "
        "GROUP BY value ORDER BY 3 DESC, 1 LIMIT ?",
        [label, most],
    ).fetchall()
    return [dict(zip(("value", "documents", "bytes"), row, strict=True)) for row in rows]


def _domains(connection: duckdb.DuckDBPyConnection, small: bool) -> dict[str, Any]:
    """The largest domains, as many as the template asks for, and how many there are."""
    *_, total, documents, size, _, _ = _totals(connection, "domains")
    most = min(math.ceil(SMALL_TOP * total), SMALL_MOST) if small else math.ceil(TOP * total)
    rule = f"the largest {SMALL_TOP:.0%}, at most {SMALL_MOST:,}" if small else f"the largest {TOP:.0%}"
    sums = {"total": total, "documents": documents or 0, "bytes": size or 0, "rule": rule}
    return {**sums, "largest": _listed(connection, "domains", most)}


def _inputs(sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Data sets of the hub by their name, other input by its folder's: files, rows, bytes on the disk."""
    files: dict[str, dict[str, int]] = {}  # an input's files, with their bytes
    rows: Counter[str] = Counter()
    for source in sources:
        parts = source["path"].split("/")
        name = "/".join(parts[:5]) if parts[0] == "hf:" else parts[-2:][0]
        files.setdefault(name, {})[source["path"]] = source["bytes"] or 0
        rows[name] += source["rows"]
    return [
        {"input": name, "files": len(own), "rows": rows[name], "bytes": sum(own.values())}
        for name, own in sorted(files.items())
    ]


# ---------------------------------------------------------------- its files


def publish_files(folder: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        storage.write_content(storage.join(folder, name), text)


def summary_files(draft: Mapping[str, Any], folder: str) -> dict[str, str]:
    """The content of each of `FILES`.

    :param draft: what the manifest says, or will say.
    :param folder: the release, or where it is staged.
    """
    facts = summarise(draft, folder)
    plain = [json.dumps(value, indent=1, ensure_ascii=False) + "\n" for value in (facts, croissant(draft))]
    return dict(zip(FILES, (render_summary(facts), *plain), strict=True))


def render_summary(facts: Mapping[str, Any]) -> str:
    said = {name: one_line(text) if text else BLANK for name, text in facts["statements"].items()}
    return render_template("summary/summary.md.j2", said=said, blank=BLANK, **facts)


def croissant(draft: Mapping[str, Any]) -> dict[str, Any]:
    """The release as Croissant 1.0 metadata: its data files, and the columns that hold one value or a list of them."""
    release, fields, notes = validate(draft["settings"]).release, [], notes_of(draft)
    for column in draft["columns"]:
        listed = re.fullmatch(r"(?:large_)?list<\w+: (\w+)>", column["type"])
        if kind := _kind(listed[1] if listed else column["type"]):
            said = notes.get(column["name"], "of the source")
            fields.append({"name": column["name"], "said": said, "kind": kind, "repeated": listed is not None})
    languages, total = sorted(draft["languages"]), draft["conservation"]["total"]
    facts = {"key": draft["key"], "total": total, "languages": languages, "release": release, "fields": fields}
    return dict(json.loads(render_template("summary/croissant.json.j2", **facts)))


def _kind(type_: str) -> str | None:
    return next((kind for name, kind in KINDS.items() if re.fullmatch(rf"({name})\d*(\[.*\])?", type_)), None)
