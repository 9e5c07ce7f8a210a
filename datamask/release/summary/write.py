"""summary.md, summary.json and croissant.json of a release."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from datamask import storage
from datamask.config import validate
from datamask.release.card import notes_of, one_line, render_template
from datamask.release.summary.facts import summarise

FILES = ("summary.md", "summary.json", "croissant.json")
BLANK = "**[for the provider to fill in]**"
KINDS = {
    "(large_)?string": "sc:Text", "u?int": "sc:Integer", "float|double|halffloat": "sc:Float", "bool": "sc:Boolean",
    "timestamp": "sc:DateTime", "date": "sc:Date",
}  # fmt: skip  # Arrow's types, and the format's


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
