"""The dataset card: README.md with the YAML header that the Hugging Face hub reads."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from datamask.config import Config, ResolvedSelect, to_yaml, validate
from datamask.errors import several
from datamask.release.merge import schema_of
from datamask.release.printing import figure, size
from datamask.release.release_folder import Picture

if TYPE_CHECKING:
    from jinja2 import Template

MAX_CONFIGS = 200  # dumps with a configuration of their own
# the hub's size categories: https://github.com/huggingface/hub-docs/blob/main/datasetcard.md
THOUSANDS = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
SIZES = [(10**3, "n<1K"), *((10 ** (4 + n), f"{a}<n<{b}") for n, (a, b) in enumerate(pairwise(THOUSANDS)))]
IDENTITY = ("dimensions", "revision", "max_length", "long_documents", "fingerprint")  # of the encoder, as shown
NOTES = {
    "quality_score": "how good the document is on its own",
    "probability": "with which it was selected; 1 except at the margin",
    "copies": "other documents of the corpus that are verified copies of it",
    "copy_sources": "sources that it and its copies come from",
    "copy_dumps": "dumps that it and its copies come from",
    "topic": "the cluster of its vector, named by the words that tell it apart",
    "repeat": "how often it is to be taken, so that the budget of tokens is spent",
    "shard": "shard of the source",
    "chunk_id": "row of the shard",
    "id": "of the source; made from shard and row where it has none",
    "token_count": "of the source; counted where it has none",
}


def render_template(file: str, /, **facts: Any) -> str:
    """A text of a release from its template, a file below this package; a name in it that is no fact is an error.

    Filters: `n` writes a number with its thousands parted, `size` bytes, `cell` values of the corpus (`one_line`).
    """
    return _template(file).render(facts)


@cache  # a template is compiled in 20 ms
def _template(file: str) -> Template:
    from jinja2 import Environment, StrictUndefined  # loaded while the first stages work

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters.update(n=lambda value: f"{value:,}", size=size, cell=lambda text: one_line(str(text)))
    return environment.from_string(resources.files("datamask.release").joinpath(file).read_text("utf-8"))


def notes_of(draft: Mapping[str, Any]) -> dict[str, str]:
    """What is said of the columns that datamask has made; others of such names are the corpus's."""
    made = schema_of(draft["settings"], "topics" in draft["provenance"]).names
    return {name: note for name, note in NOTES.items() if name in made}


def render_card(draft: Mapping[str, Any], pictures: Sequence[Picture] = ()) -> str:
    settings = validate(draft["settings"])
    total = draft["conservation"]["total"]
    provenance = draft["provenance"]
    body = render_template(
        "card.md.j2",
        release=settings.release,
        total=total,
        select=settings.selection,
        pictures=pictures,
        draft=draft,
        notes=notes_of(draft),
        quarantined=sum(total["quarantined"].values()),
        encoder=_named(provenance["encoder"], settings.encoder.model),
        scorers=", ".join(f"{s.name} ({s.kind}, weight {s.weight:g})" for s in settings.quality.scorers),
        filters=_filters(draft["settings"]["filter"], settings),
        budget=_budget(settings.selection),
        warnings=[one_line(warning["text"]) for warning in draft.get("warnings", ())],
        certificate={
            name: figure(value, 6)
            for name, value in provenance["certificate"].items()
            if not isinstance(value, dict | list)
        },
        settings=to_yaml(settings.resolved),
    )
    stream = io.StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.dump(_header(draft, settings.release.name, settings.release.license), stream)
    return f"---\n{stream.getvalue()}---\n\n{body}"


def one_line(text: str) -> str:
    """Text that holds values of the corpus as Markdown that shows it and nothing else."""
    return re.sub(r"([\\`*_\[\]<>|#!])", r"\\\1", " ".join(text.split()))


def _header(draft: Mapping[str, Any], name: str, license_: str | None) -> dict[str, Any]:
    rows = draft["conservation"]["total"]["selected"]
    header: dict[str, Any] = {"pretty_name": name}
    if license_:
        header = {"license": license_, **header}
    if codes := _language_codes(draft["languages"]):
        header["language"] = [DoubleQuotedScalarString(code) for code in codes]  # `no`, Norwegian, is false in YAML
    header["size_categories"] = [next((size for limit, size in SIZES if rows < limit), "n>1T")]
    header["task_categories"] = ["text-generation"]
    header["tags"] = ["datamask", "data-selection", "pretraining", "arxiv:2512.24265"]
    configs = [("default", "data/*/*.parquet")]
    if 1 < len(draft["dumps"]) <= MAX_CONFIGS:
        configs += [(folder, f"data/{folder}/*.parquet") for folder in draft["dumps"] if folder != "default"]
    # `datasets` keeps what it has read under the folder's name and a hash of this; `latest` is each release's name
    release = f"release {draft['key']}"
    header["configs"] = [
        {"config_name": config, "description": release, "data_files": [{"split": "train", "path": path}]}
        for config, path in configs
    ]
    return header


def _language_codes(languages: Mapping[str, int]) -> list[str]:
    """ISO codes among the corpus's own language values (en, deu, eng_Latn, pt-BR), the commonest first."""
    codes: dict[str, int] = {}
    for value, rows in languages.items():
        if found := re.fullmatch(r"([a-z]{2,3})(?:[_-][A-Za-z0-9]+)*", value):
            codes[found[1]] = codes.get(found[1], 0) + rows
    return sorted(codes, key=lambda code: (-codes[code], code))


def _named(identity: Mapping[str, Any], fallback: str) -> str:
    shown = [f"{name} {identity[name]}" for name in IDENTITY if identity.get(name) not in (None, "")]
    return f"{identity.get('name', fallback)}" + (f" ({', '.join(shown)})" if shown else "")


def _filters(settings: Mapping[str, Any], config: Config) -> str:
    said = []
    if settings["where"]:
        said.append(f"where `{' '.join(settings['where'].split())}`")
    if settings["languages"]:
        said.append(f"languages {', '.join(settings['languages'])}")
    said += [f"own filter {each.name or each.use}" for each in config.filter.own]
    if config.filter.decontaminate:
        names = ", ".join(path.rstrip("/").rsplit("/", 1)[-1] for path in config.filter.decontaminate)
        said.append(f"test items (13 words in a row, {config.filter.contamination:.0%} of an item) of {names}")
    said += [f"{name} {settings[name]}" for name in ("min_tokens", "max_tokens") if settings[name] is not None]
    if settings["exact_duplicates"]:
        said.append("exact duplicates across all shards, the least altered kept")
    text = "; ".join(said) + f" ({settings['order']} the selection)" if said else "none"
    if config.select.semantic_duplicates is None:
        return text
    near = config.duplicates
    said = []
    if near.jaccard is not None:
        said.append(f"near-duplicates (Jaccard of whole texts {near.jaccard:g} or more)")
    if near.containment is not None:
        said.append(f"texts contained in longer ones ({near.containment:.0%} of the shingles or more)")
    return f"{text}; then {', '.join(said)}" if said else text


def _budget(settings: ResolvedSelect) -> str:
    if settings.budget_documents:
        return several(settings.budget_documents, "document")
    if settings.budget_tokens:
        return f"{settings.budget_tokens:,} tokens"
    if settings.token_ratio:
        return f"{settings.token_ratio:.4g} of the candidates' tokens"
    return f"{settings.select_ratio:.4g} of the candidates"
