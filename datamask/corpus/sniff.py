"""How a file of text is to be read: its encoding, and of CSV the separator and whether it has a header line.

What is not UTF-8, comma-separated (.tsv: by tabs) and headed is recorded with the file, shown, and part of the
release's manifest. Settings (corpus.separator, header) overrule what is found; corpus.encoding is that of files which
do not tell theirs by a mark or by text that can only be UTF-8.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from typing import Any

from datamask.config import Corpus
from datamask.corpus import delimited, json_lines
from datamask.corpus.columns import ALIASES
from datamask.corpus.plan import Reading
from datamask.corpus.streams import damage, open_stream, raw_stream
from datamask.errors import ConfigError, InputError

BLOCK = 4 << 20
LOOKED_AT = 256 << 20  # bytes in which bytes that are no UTF-8 are looked for
SAMPLE = 64 << 10  # bytes of lines that are no UTF-8, to guess from
HEAD = 1 << 20  # bytes in which a separator and the first JSON object are looked for
FEW_LINES = 5  # so many lines that are no UTF-8, and a hundredth of all, are more than damage
MARKS = [
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
SEPARATORS = {"csv": (",", ";", "\t", "|"), "tsv": ("\t", ",", ";", "|")}
QUOTES_LOOKED_AT = 64 << 20  # bytes in which quotation marks are looked for
MANY_QUOTES = 200  # are enough to decide what they are
NAME = 64  # characters of a column's name, at most


def sniff_reading(path: str, format_: str, settings: Corpus) -> Reading | None:
    """How the file is read; None: as its format is read by default.

    :raises InputError: it has no header line, or several encodings are as likely as one another.
    :raises ConfigError: corpus.encoding is unknown.
    """
    kind = format_.partition(".")[0]
    if kind not in ("jsonl", "csv", "tsv", "txt"):
        return None
    with damage(path):
        given = _known(settings.encoding) if settings.encoding else None
        encoding, guessed = _encoding(path, format_, given)
        with open_stream(path, format_, encoding) as stream:
            text = bytes(stream.read(HEAD)).decode("utf-8", "replace").removeprefix("\ufeff")
            more = [] if kind in ("jsonl", "txt") or settings.quotes else _with_quotes(text, stream)
    line_end = json_lines.line_end(text)
    if kind == "jsonl":
        json_lines.check_objects(text, path, {*ALIASES["text"], "text", *settings.columns.values()})
    if kind in ("jsonl", "txt"):
        found = Reading(encoding, guessed, line_end="\n" if kind == "txt" else line_end)
        return None if found == Reading("utf-8") else found
    separator = settings.separator or _separator(text, kind)
    quotes = settings.quotes or _quotes([text, *more], separator, line_end)
    found = Reading(encoding, guessed, separator, settings.header is not False, quotes, line_end)
    if settings.header is None and text.strip():
        _check_header(path, text, separator, settings)
    return None if found == Reading("utf-8", False, SEPARATORS[kind][0]) else found


def _known(name: str) -> str:
    try:
        found = codecs.lookup(name).name
    except LookupError as error:
        raise ConfigError(
            f"corpus.encoding = {name!r}: no such encoding; e.g. utf-8, utf-16, cp1252, latin-1, shift_jis, gb18030"
        ) from error
    return "utf-8" if found in ("utf-8", "utf-8-sig", "ascii") else found


# ---------------------------------------------------------------- encoding


def _encoding(path: str, format_: str, given: str | None) -> tuple[str, bool]:
    """The encoding, and whether it is a guess. given: of a file that does not tell it."""
    with raw_stream(path, format_) as stream:
        head = bytes(stream.read(BLOCK))
        json_lines.check_head(head[:1000], path, format_)
        for mark, name in MARKS:
            if head.startswith(mark):
                return name, False
        if given and given.startswith(("utf-16", "utf-32")):
            return given, False
        if wide := _wide(head[:4096]):
            return wide, True
        lines = bad = other = 0
        sample = bytearray()
        for block in _blocks(head, stream):
            lines += block.count(b"\n") + 1
            if block.isascii():
                continue
            for line in [block] if _is_utf8(block) else block.split(b"\n"):
                if line.isascii():
                    continue
                if _is_utf8(line):
                    other += 1
                    continue
                bad += 1
                if len(sample) < SAMPLE:
                    sample += line[:2000] + b"\n"
    if given:
        return ("utf-8" if bad <= other and _holds_ascii(given) else given), False
    if bad <= other or bad < FEW_LINES or 100 * bad < lines:
        return "utf-8", False
    return _legacy(path, bytes(sample)), True


def _holds_ascii(encoding: str) -> bool:
    """Whether text that is all ASCII is ASCII in it: not in EBCDIC, nor where letters are of ASCII bytes (ISO 2022)."""
    every = bytes(range(128))
    return (
        every.decode(encoding, "replace") == every.decode("ascii") and not "éя日한".encode(encoding, "ignore").isascii()
    )


def _blocks(head: bytes, stream: io.BufferedIOBase) -> Iterator[bytes]:
    held, seen = head, len(head)
    while held:
        more = bytes(stream.read(BLOCK)) if seen < LOOKED_AT else b""
        seen += len(more)
        end = held.rfind(b"\n") + 1 if more else len(held)
        yield held[:end] if end else held
        held = (held[end:] if end else b"") + more


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _wide(head: bytes) -> str | None:
    """UTF-16 without a mark: every other byte of Western text is NUL."""
    pairs = len(head) // 2
    if pairs < 8:
        return None
    even, odd = head[0 : 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if odd > 0.4 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 * pairs and odd < 0.05 * pairs else None


def _legacy(path: str, sample: bytes) -> str:
    """The one encoding from before Unicode in which the lines read well.

    :raises InputError: several do, or none; shows what the likeliest make of a line that tells them apart.
    """
    import charset_normalizer

    found = list(charset_normalizer.from_bytes(sample, preemptive_behaviour=False))
    near = [m for m in found if m.chaos <= found[0].chaos + 0.02 and m.coherence >= found[0].coherence - 0.02]
    if len(near) == 1 and near[0].coherence > 0.1:
        same = [near[0].encoding, *near[0].could_be_from_charset]  # these give the same text
        return "cp1252" if "cp1252" in same else codecs.lookup(near[0].encoding).name
    names = [codecs.lookup(name).name for name in dict.fromkeys(["cp1252", *(match.encoding for match in found[:4])])]
    line, place = _where_they_differ(sample, names)
    shown = [f"{name} {line[max(0, place - 20) :][:60].decode(name, 'replace')!r}" for name in names]
    raise InputError(
        f"{path}: not UTF-8, and several other encodings are as likely: {'; '.join(shown)}. Say which it is: "
        "--set corpus.encoding=cp1252"
    )


def _where_they_differ(sample: bytes, names: list[str]) -> tuple[bytes, int]:
    """The line and its byte that most of the encodings read otherwise than the first: what tells them apart."""
    told: list[set[str]] = [set() for _ in range(256)]
    for byte in {*sample} - {*range(128)}:
        told[byte] = {bytes([byte]).decode(name, "replace") for name in names}
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    places = [(line, at) for line in lines for at, byte in enumerate(line) if byte > 127]
    return max(places, key=lambda place: len(told[place[0][place[1]]]))


# ---------------------------------------------------------------- CSV


def _rows(text: str, separator: str) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error:
        return []
    return (rows[:-1] if len(text) >= HEAD - 4 and len(rows) > 1 else rows)[:1000]


def _separator(text: str, kind: str) -> str:
    """The one that cuts most rows into as many fields as the first; the format's own in doubt."""
    scores = {}
    lines = [line for line in text.splitlines() if line][:1000]
    for separator in SEPARATORS[kind]:
        rows = [row for row in _rows(text, separator) if row]
        scores[separator] = max(_even(rows), _even([line.split(separator) for line in lines]))
    best = max(scores, key=lambda separator: scores[separator])  # the first of equals
    own = SEPARATORS[kind][0]
    return own if scores[own] >= 0.95 * scores[best] else best


def _even(rows: list[list[str]]) -> float:
    """The share of rows with as many fields as the first; 0 where that has one."""
    width = len(rows[0]) if rows else 0
    return sum(len(row) == width for row in rows) / len(rows) if width > 1 else 0.0


def _with_quotes(text: str, stream: Any) -> list[str]:
    """Whole lines from behind `text` that hold quotation marks, where it has few."""
    found: list[str] = []
    seen = text.count('"')
    for _ in range(QUOTES_LOOKED_AT // HEAD if len(text) >= HEAD // 4 else 0):
        block = bytes(stream.read(HEAD)) if seen < MANY_QUOTES else b""
        if not block:
            break
        if marks := block.count(b'"'):
            seen += marks
            found.append(block[block.find(b"\n") + 1 : block.rfind(b"\n") + 1].decode("utf-8", "replace"))
    return found


def _quotes(texts: list[str], separator: str, line_end: str) -> str:
    """What a quotation mark is: see corpus.quotes.

    By what fits: with marks around fields no row is broken; with marks as text every line has as many fields as the
    first. Where both fit, a mark around some values of a column that need none is text where tabs or bars separate.
    """
    if not any('"' in text for text in texts):
        return "double"
    good, bad = _count_rows(texts, separator, "double", line_end)
    if bad and any('\\"' in text for text in texts):
        others = _count_rows(texts, separator, "backslash", line_end)
        if others[0] - others[1] > good - bad:
            return "backslash"
    lines = [line.split(separator) for text in texts for line in text.split(line_end)[1:-1] if line.strip()]
    width = len(texts[0].split(line_end)[0].split(separator))
    even = sum(len(line) == width for line in lines)
    doubled = sum('""' in field[1:-1] for line in lines for field in line if _is_quoted(field))
    broken = even - good
    if separator in (",", ";"):
        return "none" if even == len(lines) and broken >= FEW_LINES and not doubled else "double"
    needless = broken
    for place in range(width):
        column = [line[place].strip("\r") for line in lines if len(line) == width and line[place].strip("\r")]
        held = sum(_is_quoted(field) and len(field) > 2 for field in column)
        needless += held if 2 * held < len(column) else 0
    return "none" if even >= 0.98 * len(lines) and needless > 10 * doubled else "double"


def _is_quoted(field: str) -> bool:
    return len(field) > 1 and field[0] == field.rstrip("\r")[-1] == '"'


def _count_rows(texts: list[str], separator: str, quotes: str, line_end: str) -> tuple[int, int]:
    """Rows behind the first that have as many fields as it, and other rows, read so."""
    good = bad = 0
    for text in texts:
        whole = text[: text.rfind(line_end) + 1] or text
        data = whole.encode("utf-8", "surrogateescape").decode(delimited.BYTES)
        first, *rows = delimited.read_rows(iter([data]), separator, quotes, line_end)
        fine = sum(not isinstance(row, str) and len(row) == len(first) for row in rows)
        good, bad = good + fine, bad + len(rows) - fine
    return good, bad


def _check_header(path: str, text: str, separator: str, settings: Corpus) -> None:
    """:raises InputError: the first line is one of data, by what stands in it."""
    rows = [row for row in _rows(text, separator) if row]  # a blank line is none
    first = rows[0] if rows else []
    known = {name for aliases in ALIASES.values() for name in aliases} | ALIASES.keys() | {*settings.columns.values()}
    if known & {*first}:
        return
    if any(len(name) > NAME or "\n" in name or len(name.split()) > 6 or _is_number(name) for name in first):
        shown = "; ".join(f"column{n} {cell[:30]!r}" for n, cell in enumerate(first[:6], start=1))
        totals = [sum(len(row[at]) for row in rows if len(row) == len(first)) for at in range(len(first))]
        raise InputError(
            f"{path}: its first line is no header: {shown}. Say that it has none, and which column is the text: "
            f"--set corpus.header=false --set corpus.columns.text=column{1 + totals.index(max(totals))} "
            "(or, if that is the header: --set corpus.header=true)"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
