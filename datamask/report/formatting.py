"""Numbers, tables and the report's warnings as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

WARNINGS = 8  # of a report that its page shows at the top; the others are counted
Table = tuple[str, list[str], list[list[str]]]  # title, head, rows
CELL = str.maketrans({"|": "\\|", "\n": " "})  # of a table's cell in Markdown


def count(value: float) -> str:
    return f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash for None."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for None, and for what is not finite."""
    return "–" if value is None or not isfinite(value) else f"{value:.{digits}f}"


def short(value: float) -> str:
    """1.2 M, 34 k, 512."""
    for size, unit in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def markdown(lead: str, tables: Sequence[Table]) -> str:
    """A paragraph and tables as GitHub Markdown; the first column is text, the others numbers."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.translate(CELL) for cell in cells)} |"

    parts = [lead]
    for title, head, rows in tables:
        lines = [f"### {title}", "", line(head), "|---" + "|---:" * (len(head) - 1) + "|", *map(line, rows)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def sentence(warning: Mapping[str, Any], out: str = "OUT") -> str:
    """A warning (see `losses`) with the command that shows the documents, and its remedy."""
    return f"{warning['text']} Look: {look_command(warning, out)}; {warning['remedy']}."


def look_command(warning: Mapping[str, Any], out: str = "OUT") -> str:
    """The command that lists documents a warning is about."""
    return " ".join(_quoted(word) for word in ["datamask", "explain", out, *warning["look"]])


def _quoted(word: str) -> str:
    return word if all(c.isalnum() or c in "-_./=:@" for c in word) else "'" + word.replace("'", "'\\''") + "'"
