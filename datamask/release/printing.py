"""What the commands about releases print: tables, a document's explanation, dropped documents beside the kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from datamask.config import COPY_COLUMNS
from datamask.console import wide_console
from datamask.errors import printable

if TYPE_CHECKING:
    from datamask.release.differences import Parts
    from datamask.release.explain import Dropped, Explanation

WIDE = 240  # columns of a table where there is no terminal


def size(count: float) -> str:
    """A number of bytes in words, in steps of 1000: "1.5 MB"."""
    return decimal(round(count))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Prints a table to the terminal; columns of numbers are aligned to the right."""
    shown = Table(
        box=box.SIMPLE, title=title, title_justify="left", title_style="bold", pad_edge=False, show_header=any(columns)
    )
    for place, column in enumerate(columns):
        numbers = all(isinstance(row[place], int | float | None) for row in rows)
        shown.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text("" if value is None else figure(value, 4)) for value in row))
    wide_console(WIDE).print(shown)


def figure(value: Any, digits: int) -> str:
    """A number with so many digits that count, a whole one with commas between thousands; else the value's own text."""
    return f"{value:.{digits}g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _held(detail: Mapping[str, Any]) -> str:
    return (
        f"holds {detail['found']:,} of the {detail['words']:,} words of {detail['item']} ({detail['part']}): "
        f"{printable(detail['span'])!r}\n"
    )


def _which_fell(found: Explanation) -> str:
    """Of a contained pair, whether the longer or the shorter one fell, in words."""
    copy = found.copy_of or {}
    if copy.get("kind") != "contained" or "token_count" not in copy:
        return ""
    if found.decision["token_count"] > copy["token_count"]:
        return ": the shorter text is in this one, and this one falls for what it adds, or for its score"
    return ": this text is in the longer one"


def show_explanation(found: Explanation) -> None:
    decision = found.decision
    why = f" ({decision['reason']})" if decision["reason"] else ""
    print(f"{decision['id']}  {decision['shard']}/{decision['chunk_id']}: {decision['outcome'].replace('_', ' ')}{why}")
    if found.quarantine:
        print(f"  row {found.quarantine['row']} of {found.quarantine['file']}: {found.quarantine['excerpt'] or ''!r}")
    if found.setting:
        print(f"  taken by {printable(found.setting)}{_which_fell(found)}")
    facts = [[name, decision[name]] for name in ("token_count", "quality_score", "probability", "price")]
    facts += [[name, decision[name]] for name in ("repeat", *COPY_COLUMNS) if name in decision]
    if not found.quarantine:
        print_table(["", ""], facts)
    if found.detail:
        print(_held(found.detail))
    if found.copy_of:
        copy = found.copy_of
        near = f", similarity {copy['similarity']:.4f}" if copy.get("similarity") is not None else ""
        named, said = (
            (f"{copy['id']}  ", copy["reason"] or "selected") if "id" in copy else ("", "of an earlier release")
        )
        since = " at first" if copy.get("outcome") == "filtered" else ""
        print(f"kept in its place{since}: {named}{copy['shard']}/{copy['chunk_id']} ({said}{near})\n")
    if found.pair:
        show_pair(wide_console(), found.pair["dropped"], found.pair["kept"], found.pair["shared"])
    if found.scores:
        print_table(["score or signal", "value"], [[name, value] for name, value in found.scores.items()])
    if found.rules:
        print_table(["what pulls its quality down"], [[rule] for rule in found.rules])
    if found.neighbours:
        print_table(
            ["cosine", "id", "shard/row", "quality_score"],
            [[n["cosine"], n["id"], f"{n['shard']}/{n['chunk_id']}", n["quality_score"]] for n in found.neighbours],
            "nearest selected documents",
        )
    for missing in found.missing:
        print(f"not told: {missing}")


def show_dropped(found: Sequence[Dropped], number: int, name: str, missing: str) -> None:
    screen = wide_console()
    print(f"{len(found):,} of {number:,} documents: {name}")
    for place, one in enumerate(found, 1):
        quality = "" if one.quality_score is None else f", quality {one.quality_score:.3f}"
        facts = ", ".join(one.groups.values())
        print(f"\n{place}. {one.id}  {one.shard}/{one.chunk_id}  {facts}: {one.token_count or 0:,} tokens{quality}")
        if one.kept_id is not None:
            near = "" if one.similarity is None else f"  similarity {one.similarity:.4f}"
            print(f"   kept: {one.kept_id}{near}")
        if one.detail:
            print(f"   {_held(one.detail).rstrip()}")
        if one.kept:
            show_pair(screen, one.text, one.kept, one.shared or 0.0)
        else:
            screen.print(marked(one.text, "", ""), soft_wrap=not screen.is_terminal)
    if missing:
        print(f"not told: {missing}")


def show_pair(screen: Console, dropped: Parts, kept: Parts, shared: float) -> None:
    """Two texts side by side; words of one side alone in colour on a terminal, else as in `git diff --word-diff`."""
    plain = not screen.is_terminal
    sides = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), expand=True)
    sides.add_column(f"dropped ({shared:.0%} of the words are in both)", ratio=1, overflow="fold", header_style="dim")
    sides.add_column("kept", ratio=1, overflow="fold", header_style="dim")
    sides.add_row(marked(dropped, *(("[-", "-]") if plain else ())), marked(kept, *(("{+", "+}") if plain else ())))
    screen.print(sides)


def marked(parts: Parts, before: str = "", after: str = "") -> Text:
    styles = {"same": "", "only": "black on yellow", "gap": "dim italic"}
    shown = Text()
    for kind, text in parts:
        only = kind == "only" and before
        space = text[len(text.rstrip()) :]
        written = f"{before}{text.rstrip()}{after}{space}" if only else f"[… {text} …] " if kind == "gap" else text
        shown.append(written, style=styles[kind])
    return shown
