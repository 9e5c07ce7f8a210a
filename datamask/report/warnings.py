"""The report's warnings as sentences: for the page, the terminal and Prefect's UI. What they are: `losses`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WARNINGS = 8  # shown at the top; the others are counted


def sentence(warning: Mapping[str, Any], out: str = "OUT") -> str:
    """A warning with the command that shows the documents, and its remedy."""
    return f"{warning['text']} Look: {look_command(warning, out)}; {warning['remedy']}."


def look_command(warning: Mapping[str, Any], out: str = "OUT") -> str:
    """The command that lists documents a warning is about."""
    return " ".join(_quoted(word) for word in ["datamask", "explain", out, *warning["look"]])


def _quoted(word: str) -> str:
    return word if all(c.isalnum() or c in "-_./=:@" for c in word) else "'" + word.replace("'", "'\\''") + "'"
