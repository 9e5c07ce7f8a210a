"""For mkdocs: pages outside docs/ belong to the site too, and links between all of them lead to the right place.

README.md is the first page. A link to a file of the repository that is no page becomes its name. What a page marks as
`<!-- generated: NAME -->` is made from the code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {  # in the repository: on the site
    "README.md": "index.md",
    "README.zh-CN.md": "zh-CN.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/RESULTS.md": "benchmarks/RESULTS.md",
    "benchmarks/LOG.md": "benchmarks/LOG.md",
}
HOMES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """The pages say of which version they are."""
    from datamask import __version__

    config.copyright = f"datamask {__version__}"
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for picture in (ROOT / "benchmarks").glob("*.png"):
        files.append(File.generated(config, f"benchmarks/{picture.name}", content=picture.read_bytes()))
    return files


def kind(annotation: Any) -> str:
    """A setting's type in words: `number`, `list of text`, or the values that are valid."""
    from typing import Annotated, Literal, get_args, get_origin

    parts = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) is Literal:
        return " or ".join(str(part) for part in parts)
    if get_origin(annotation) is Annotated:
        return kind(parts[0])
    if get_origin(annotation) in (list, tuple, dict):
        return f"{'mapping to' if get_origin(annotation) is dict else 'list of'} {kind(parts[-1])}"
    if parts:
        return " or ".join(dict.fromkeys(kind(part) for part in parts))
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Any": "any value"}
    return names.get(getattr(annotation, "__name__", str(annotation)), "settings")


def shown(value: Any) -> Any:
    """A default as YAML would have it: of settings within it, those that say something."""
    if hasattr(value, "model_dump"):
        return {name: each for name, each in value.model_dump(mode="json").items() if each}
    return [shown(each) for each in value] if isinstance(value, list | tuple) else value


def settings() -> str:
    """A table for each section of the configuration."""
    from datamask.config import Config

    pages = []
    for name, section in Config.model_fields.items():
        about = section.annotation.__doc__ or ""  # type: ignore[union-attr]
        lines = [f"## {name}", "", about, "", "| setting | kind | default | |", "|---|---|---|---|"]
        for setting, field in section.annotation.model_fields.items():  # type: ignore[union-attr]
            value = shown(field.get_default(call_default_factory=True))
            default = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            cells = (f"`{setting}`", kind(field.annotation), f"`{default or '(empty)'}`", field.description or "")
            lines.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |")
        pages.append("\n".join(lines))
    return "\n\n".join(pages) + "\n"


def commands() -> str:
    """What each command prints for --help."""
    import typer
    from typer.testing import CliRunner

    from datamask import cli

    pages = []
    for name in cli.COMMANDS:
        single = typer.Typer(rich_markup_mode=None)
        single.command(name)(cli._locate(name))
        told = CliRunner().invoke(single, ["--help"], prog_name=f"datamask {name}", env={"COLUMNS": "100"}).output
        pages.append(f"## {name}\n\n```text\n{told.strip()}\n```\n")
    return "\n".join(pages)


def errors() -> str:
    """Each expected failure, with the status that a command ends with."""
    import inspect

    from datamask import errors as module

    found = [one for _, one in inspect.getmembers(module, inspect.isclass) if issubclass(one, module.DatamaskError)]
    lines = [
        f"| {one.exit_code} | `{one.__name__}` | {'yes' if one.retryable else 'no'} | {inspect.getdoc(one)} |"
        for one in sorted(found, key=lambda one: (one.exit_code, one.__name__))
    ]
    return "| status | error | tried again | when |\n|--:|---|---|---|\n" + "\n".join(lines) + "\n"


GENERATED = {"settings": settings, "commands": commands, "errors": errors}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    markdown = re.sub(r"<!-- generated: (\w+) -->", lambda found: GENERATED[found[1]](), markdown)
    place = page.file.src_uri
    home = HOMES.get(place, f"docs/{place}")

    def rewritten(found: re.Match[str]) -> str:
        picture, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        if path in PAGES:
            to = PAGES[path]
        elif path.startswith("docs/"):
            to = path.removeprefix("docs/")
        elif path.startswith("benchmarks/") and path.endswith(".png"):
            to = path
        elif (ROOT / path).exists():
            return f"{text} (`{path}`)" if path not in text else text
        else:
            return found[0]  # leads nowhere: the strict build says so
        return f"{picture}[{text}]({posixpath.relpath(to, posixpath.dirname(place) or '.')}{anchor})"

    return LINK.sub(rewritten, markdown)
