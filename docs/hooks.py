"""For mkdocs: pages outside docs/ belong to the site too, and links between all of them lead to the right place.

README.md is the first page. A link to a file of the repository that is no page becomes its name.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {  # in the repository: on the site
    "README.md": "index.md",
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


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
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
