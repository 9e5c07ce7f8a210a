"""How hard the pages are to read: words in all, mean words a sentence, paragraphs of more than 120 words.

    python docs/sentences.py             # the pages that are too hard; status 1 where there are any
    python docs/sentences.py --all       # every page

Code, tables, headings and comments are not counted as sentences; an item of a list is a paragraph of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEAN, PARAGRAPH, WORDS = 22, 120, 45_000
DATA = {"benchmarks/RESULTS.md"}  # mostly tables: its words count, its sentences are captions
LEFT_OUT = re.compile(r"^```.*?^```|<!--.*?-->|^---$.*?^---$", re.MULTILINE | re.DOTALL)


def paragraphs(text: str) -> list[str]:
    """The prose of a page."""
    found: list[str] = []
    joined = False
    for line in LEFT_OUT.sub("\n", text).splitlines():
        bare = line.strip()
        if not bare or bare.startswith(("|", "#", "![")) or (line.startswith("    ") and not joined):
            joined = False
            continue
        item = re.match(r"(?:[-*]|\d+\.) ", bare)
        if joined and not item:
            found[-1] += " " + bare
        else:
            found.append(bare[item.end() :] if item else bare)
        joined = True
    return found


def sentences(paragraph: str) -> list[int]:
    """Words of each sentence; what stands in backquotes is one word."""
    plain = re.sub(r"`[^`]*`", "Code", re.sub(r"\]\([^)]*\)", "]", paragraph))
    counts = [len(re.findall(r"\w[\w.,'’/-]*", part)) for part in re.split(r"(?<=[.!?])[\"'”)*_]*\s+(?=[^a-z])", plain)]
    return [count for count in counts if count]


def main() -> None:
    """See the module."""
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    words, hard = 0, []
    for name in sorted(names.split()):
        text = (ROOT / name).read_text(encoding="utf-8")
        words += len(text.split())
        found = paragraphs(text)
        counts = [count for paragraph in found for count in sentences(paragraph)]
        mean = sum(counts) / max(1, len(counts))
        longest = max((len(paragraph.split()) for paragraph in found), default=0)
        line = f"{name}: {len(text.split()):,} words, {mean:.1f} a sentence, longest paragraph {longest}"
        if "--all" in sys.argv:
            print(line)
        if (mean > MEAN or longest > PARAGRAPH) and name not in DATA and not name.endswith(".zh-CN.md"):
            hard.append(line)
    print(f"{words:,} words in all pages (at most {WORDS:,})")
    if words > WORDS or hard:
        sys.exit("\n".join(["pages that are too hard to read:", *hard]))


if __name__ == "__main__":
    main()
