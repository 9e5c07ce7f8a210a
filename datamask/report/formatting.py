"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

Table = tuple[str, list[str], list[list[str]]]  # title, head, rows
CELL = str.maketrans({"|": "\\|", "\n": " "})  # of a table's cell in Markdown


def count(value: float) -> str:
    """A whole number with commas between thousands."""
    return f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash for None."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


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
