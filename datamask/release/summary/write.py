"""summary.md, summary.json and croissant.json of a release."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from datamask import storage
from datamask.config import validate
from datamask.release.card import NOTES, one_line, template_environment
from datamask.release.printing import size
from datamask.release.summary.facts import summarise

FILES = ("summary.md", "summary.json", "croissant.json")
BLANK = "**[for the provider to fill in]**"
CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/", "citeAs": "cr:citeAs", "column": "cr:column", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"}, "extract": "cr:extract", "field": "cr:field",
    "fileProperty": "cr:fileProperty", "fileObject": "cr:fileObject", "fileSet": "cr:fileSet", "format": "cr:format",
    "includes": "cr:includes", "isLiveDataset": "cr:isLiveDataset", "jsonPath": "cr:jsonPath", "key": "cr:key",
    "md5": "cr:md5", "parentField": "cr:parentField", "path": "cr:path", "recordSet": "cr:recordSet",
    "references": "cr:references", "regex": "cr:regex", "repeated": "cr:repeated", "replace": "cr:replace",
    "separator": "cr:separator", "source": "cr:source", "subField": "cr:subField", "transform": "cr:transform",
}  # fmt: skip  # the context of the format's specification, 1.0
KINDS = {
    "(large_)?string": "sc:Text", "u?int": "sc:Integer", "float|double|halffloat": "sc:Float", "bool": "sc:Boolean",
    "timestamp": "sc:DateTime", "date": "sc:Date",
}  # fmt: skip  # Arrow's types, and the format's


def publish_files(folder: str, files: Mapping[str, str]) -> None:
    """Publishes texts by their names into a folder."""
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
    """The summary as Markdown, in the template's order."""
    environment = template_environment()
    said = {name: one_line(text) if text else BLANK for name, text in facts["statements"].items()}
    environment.filters.update(size=size, cell=lambda text: one_line(str(text)))
    template = resources.files("datamask.release.summary").joinpath("summary.md.j2").read_text("utf-8")
    return environment.from_string(template).render({**facts, "said": said, "blank": BLANK})


def croissant(draft: Mapping[str, Any]) -> dict[str, Any]:
    """The release as Croissant 1.0 metadata: its data files, and the columns that hold one value or a list of them."""
    settings, total = validate(draft["settings"]), draft["conservation"]["total"]
    fields = []
    for column in draft["columns"]:
        listed = re.fullmatch(r"(?:large_)?list<\w+: (\w+)>", column["type"])
        if kind := _kind(listed[1] if listed else column["type"]):
            field = {
                "@type": "cr:Field",
                "@id": f"documents/{column['name']}",
                "name": column["name"],
                "description": NOTES.get(column["name"], "of the source"),
                "dataType": kind,
                **({"repeated": True} if listed else {}),
                "source": {"fileSet": {"@id": "data"}, "extract": {"column": column["name"]}},
            }
            fields.append(field)
    files = {"@type": "cr:FileSet", "@id": "data", "name": "data", "encodingFormat": "application/x-parquet"}
    documents = f"{total['selected']:,} documents ({total['tokens_selected']:,} tokens)"
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": settings.release.name,
        "description": f"{documents} selected from {total['rows']:,} by datamask, for pre-training language models.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": f"1.0.0+{draft['key']}",
        **({"license": settings.release.license} if settings.release.license else {}),
        **({"inLanguage": sorted(draft["languages"])} if draft["languages"] else {}),
        "distribution": [{**files, "includes": "data/*/*.parquet"}],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "documents", "name": "documents", "field": fields}],
    }


def _kind(type_: str) -> str | None:
    return next((kind for name, kind in KINDS.items() if re.fullmatch(rf"({name})\d*(\[.*\])?", type_)), None)
