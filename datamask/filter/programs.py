"""Programs: their identifiers and literals tell them apart, whatever the comments and the licence above say."""

from __future__ import annotations

import re
from collections import Counter

READ = 1 << 16  # characters of a text that are looked at
LINES = 0.4  # share of a text's lines that look like a program's, from which it is one
LEAST = 5  # such lines
OTHER = 0.01  # share of a program's tokens that another may lack
_LINE = re.compile(
    r"""(?:^|[^}])[{}]\s*$|[=(\[>]\S.*;\s*$|^\s*[)\]}]+[;,)]*\s*$|^\s*\#(?:include|define|if|endif)|\w\((?:[^()]*\))?[:,]?\s*$
    |^\s*[\w.\[\]"'*&]+(?:\s*:\s*\w+)?\s*(?:[-+*/|&%:]?=|<-|=>)(?!=)\s*\S|\w->\w|\w::\w|\)\s*(?:->|=>|then|do|:)
    |^\s*(?:from\s+[\w.]+\s+import|import\s+[\w.]+(?:\s+as\s+\w+)?\s*$|def\s+\w+|class\s+\w+\s*[:({]|func\s+\w+
    |fn\s+\w+|function\s+\w+|let\s+\w+|const\s+\w+|var\s+\w+|use\s+[\w:]+;|package\s+[\w.]+|return\b|end\b\s*$
    |else\b:?\s*$|elif\s.*:$|if\s.*:$|for\s.*:$|while\s.*:$|try:$|except\b.*:$|@\w+\s*(?:\(|$)|my\s+[$@%]|sub\s+\w+
    |\((?:def|let|set|if|lambda|require|provide|cond|list|ns)\S*\s|local\s+\w+|endif|done\b|fi\b|esac\b)""",
    re.VERBOSE,
)
_COMMENT = re.compile(
    r"/\*.*?\*/|<!--.*?-->|^\s*(?://|#(?!include|define|if|endif)|--|;|%|\*)[^\n]*|[ \t](?://|#)\s[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_TOKEN = re.compile(r"\d[\w.]*|[^\W\d]\w*")


def tokens_of_program(text: str) -> Counter[str] | None:
    """How often a program has each identifier and literal, comments left out; None: the text is no program."""
    said = _COMMENT.sub(" ", text[:READ])
    lines = [line for line in said.splitlines() if line.strip()]
    own = sum(_LINE.search(line) is not None for line in lines)
    if own < max(LEAST, LINES * len(lines)):
        return None
    return Counter(_TOKEN.findall(said))


def another_program(one: Counter[str] | None, other: Counter[str] | None, contained: bool) -> bool:
    """Whether two texts are programs of which neither is the other, nor a part of it where `contained`."""
    if one is None or other is None:
        return False
    lacking = sorted((sum((a - b).values()) / max(a.total(), 1) for a, b in ((one, other), (other, one))))
    return lacking[0 if contained else 1] > OTHER
