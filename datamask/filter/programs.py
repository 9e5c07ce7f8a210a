"""Programs: their identifiers and literals tell them apart, whatever the comments and the licence above say."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

READ, SEEN = 1 << 16, 1 << 12  # characters of a text that are read, and that tell whether it is a program
LINES = 0.3  # share of a text's lines that look like a program's, from which it is one
LEAST = 2  # such lines
SIGNS, FEWEST = "(){}[];=<>_#\\", 0.008  # a text with a smaller share of these signs is asked no further
MARKS = 0.06  # share of a program's characters that are parentheses, semicolons and equals signs, if on few lines
OTHER, OTHER_SAID = 0.01, 0.04  # share of a program's tokens that another may lack: without comments, and with them
_LINE = re.compile(
    r"""(?:^|[^}])[{}]\s*$|[=(\[>]\S.*;\s*$|^\s*[)\]}]+[;,)]*\s*$
    |^\s*\#[ \t]*(?:include|define|ifn?|ifn?def|undef|else|endif|pragma)\b|\w\((?:[^()]*\))?[:,]?\s*$
    |^\s*[\w.\[\]"'*&]+(?:\s*:\s*\w+)?\s*(?:[-+*/|&%:]?=|<-|=>)(?!=)\s*\S|\w->\w|\w::\w|\)\s*(?:->|=>|then|do|:)
    |^\s*'[^']*'\s*(?:,|$)|^\s*[\w."']+:\s+\S.*,\s*$
    |^\s*(?:from\s+[\w.]+\s+import|import\s+[\w.]+(?:\s+as\s+\w+)?\s*$|def\s+\w+|class\s+\w+\s*[:({]|func\s+\w+
    |fn\s+\w+|function\s+\w+|let\s+\w+|const\s+\w+|var\s+\w+|use\s+[\w:]+;|package\s+[\w.]+|return\b|end\b\s*$
    |else\b:?\s*$|elif\s.*:$|if\s.*:$|for\s.*:$|while\s.*:$|try:$|except\b.*:$|@\w+\s*(?:\(|$)|my\s+[$@%]|sub\s+\w+
    |\((?:def|let|set|if|lambda|require|provide|cond|list|ns)\S*\s|local\s+\w+
    |procedure\b|begin\b\s*$|when\b.*=>|endif|done\b|fi\b|esac\b)""",
    re.VERBOSE,
)
_COMMENT = re.compile(
    r"/\*.*?\*/|<!--.*?-->|\"\"\".*?\"\"\"|'''.*?'''|(?<=\S)[ \t]+(?://|#)\s[^\n]*"
    r"|^\s*(?://|#(?![ \t]*(?:include|define|if|undef|else|endif|pragma))|--|;|%|\*)[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_TOKEN = re.compile(r"\d[\w.]*|[^\W\d]\w*")


class Program(NamedTuple):
    """How often a program has each identifier and literal."""

    tokens: Counter[str]  # comments left out
    said: Counter[str]  # comments and all


def program_of(text: str) -> Program | None:
    """What tells a program from others; None: the text is no program."""
    begun = text[:SEEN]
    if sum(map(begun.count, SIGNS)) < FEWEST * len(begun):
        return None
    said = _COMMENT.sub(" ", begun)
    lines = [line for line in said.splitlines() if line.strip()]
    own = sum(_LINE.search(line) is not None for line in lines)
    marks = sum(map(said.count, "();="))
    if own < max(LEAST, LINES * len(lines)) and marks < max(LEAST, MARKS * len(said)):
        return None
    return Program(Counter(_TOKEN.findall(_COMMENT.sub(" ", text[:READ]))), Counter(_TOKEN.findall(text[:READ])))


def another_program(one: Program | None, other: Program | None, contained: bool) -> bool:
    """Whether two texts are programs of which neither is the other, nor a part of it where `contained`."""
    if one is None or other is None:  # a licence's text with no program below is no copy of one with
        return one is not other and not contained
    if contained:
        return min(_lacking(one.tokens, other.tokens), _lacking(other.tokens, one.tokens)) > OTHER
    asked = ((one.tokens, other.tokens, OTHER), (one.said, other.said, OTHER_SAID))
    return any(max(_lacking(a, b), _lacking(b, a)) > most for a, b, most in asked)


def _lacking(one: Counter[str], other: Counter[str]) -> float:
    return (one - other).total() / max(one.total(), 1)
