"""README.zh-CN.md says what README.md says: the same commands, blocks of code, figures and links, in the same order."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [(ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md")]
CODE = re.compile(r"^```(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?<!\S)#.*$", re.MULTILINE)


def commands(text):
    """The lines of code, without what is said beside them."""
    lines = [COMMENT.sub("", line) for block in CODE.findall(text) for line in block.splitlines()]
    return [re.split(r" {3,}", line.strip())[0] for line in lines if line.strip()]


def quoted(text):
    return re.findall(r"`([^`\n]+)`", CODE.sub("", text))


def figures(text):
    """Every number outside code that is not part of a name."""
    return re.findall(r"(?<![\w.,])[−+]?\d*[.,]?\d+(?:,\d{3})*%?(?![\w-])", CODE.sub("", text))


def test_code_and_what_is_quoted_are_the_same():
    english, chinese = PAGES
    assert len(commands(english)) > 20 and commands(english) == commands(chinese)
    assert sorted(quoted(english)) == sorted(quoted(chinese))


def test_figures_are_the_same():
    english, chinese = (sorted(set(figures(text))) for text in PAGES)
    assert len(english) > 10 and english == chinese


def test_the_outline_and_the_links_are_the_same():
    english, chinese = PAGES
    assert len(re.findall(r"^#+ ", english, re.M)) == len(re.findall(r"^#+ ", chinese, re.M)) > 5
    links = [set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README.zh-CN.md"} for text in PAGES]
    assert links[0] == links[1]
