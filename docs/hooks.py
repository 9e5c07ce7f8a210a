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


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for picture in (ROOT / "benchmarks").glob("*.png"):
        files.append(File.generated(config, f"benchmarks/{picture.name}", content=picture.read_bytes()))
    return files


def settings() -> str:
    """A table for each section of the configuration."""
    from datamask.config import Config

    pages = []
    for name, section in Config.model_fields.items():
        about = section.annotation.__doc__ or ""  # type: ignore[union-attr]
        pages.append(f"## {name}\n\n{about}\n\n| setting | kind | default | |\n|---|---|---|---|\n")
        for setting, field in section.annotation.model_fields.items():  # type: ignore[union-attr]
            kind = str(getattr(field.annotation, "__name__", field.annotation)).replace("typing.", "")
            kind = kind.replace(" | None", "").replace(" | ", " or ")
            value = field.get_default(call_default_factory=True)
            default = "null" if value is None else repr(value)
            cells = (f"`{name}.{setting}`", f"`{kind}`", f"`{default}`", field.description or "")
            pages.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |\n")
    return "".join(pages)


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
