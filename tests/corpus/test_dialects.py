"""CSV and TSV as others write them: the dialect is decided from the file and said, and no row takes in others.

What is expected is what the tests wrote, field by field.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from datamask.corpus import delimited
from datamask.corpus.plan import Reading
from datamask.errors import InputError
from tests.corpus import build

Table = list[tuple[str, str]]
ROWS: Table = [(f"{n}", f"Text number {n}, of a row that is plain.") for n in range(100)]


def read(tmp_path: Path, name: str, data: str, **settings: str) -> tuple[Reading | None, list[tuple[str | None, ...]]]:
    """How the file is read, and of every row id, text and reason."""
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data.encode())
    planned, _, _ = build.plan(tmp_path, path, **settings)
    rows = build.read(tmp_path / "read", path, columns=["id", "text", "_reason"], **settings)
    return planned.shards[0].parts[0].reading, [(row["id"], row["text"], row["_reason"]) for row in rows]


def written(table: Table, header: tuple[str, str] = ("id", "text"), **options: str | int | bool) -> str:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n", **options)  # type: ignore[arg-type]
    writer.writerows([header, *table])
    return sink.getvalue()


def sound(table: Table) -> list[tuple[str, str, None]]:
    return [(*row, None) for row in table]


# ---------------------------------------------------------------- a quotation mark that is never closed


@pytest.mark.parametrize("place", [0, 1, 49, 98, 99])
@pytest.mark.parametrize("first", ["id", "text"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_an_open_quote_is_one_row_in_quarantine(tmp_path: Path, place: int, first: str, quoting: int) -> None:
    plain = [row if first == "id" else row[::-1] for row in ROWS]
    lines = written(plain, ("id", "text") if first == "id" else ("text", "id"), quoting=quoting).splitlines(True)
    line = lines[place + 1]
    end = line.index('.",') + 1 if first == "text" else line.index('."') + 1
    lines[place + 1] = line[:end] + line[end + 1 :]
    _, rows = read(tmp_path, "x.csv", "".join(lines))
    expected: list[tuple[str | None, ...]] = [*sound(ROWS)]
    expected[place] = (None, None, "broken_quotes")
    assert rows == expected


@pytest.mark.parametrize("closed", [50, 60, 99])
@pytest.mark.parametrize("header", [("id", "text"), ("url", "text")])
def test_an_open_quote_that_another_row_closes_by_chance_takes_in_no_row(
    tmp_path: Path, closed: int, header: tuple[str, str]
) -> None:
    table = [(f"{n}" if header[0] == "id" else f"http://a.test/p{n}", f"Text number {n} of many") for n in range(100)]
    lines = [",".join(row) + "\n" for row in (header, *table)]
    lines[50] = lines[50].replace(",Text", ',"Text')
    lines[closed + 1] = lines[closed + 1].replace("\n", '"\n')
    path = tmp_path / "in" / "x.csv"
    path.parent.mkdir()
    path.write_text("".join(lines))
    rows = build.read(tmp_path, path, columns=[*header, "_reason"])
    bad = [number for number, row in enumerate(rows) if row["_reason"]]
    assert len(rows) == 100 and bad == [49] and rows[49]["_reason"] == "broken_quotes"
    assert [row["text"] for row in rows[50:60]] == [
        text + ('"' if place == closed else "") for place, (_, text) in list(enumerate(table))[50:60]
    ]


def test_an_open_quote_in_a_long_file_does_not_hold_the_rest_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 1000)
    lines = [f"{n},text of row {n}\n" for n in range(3000)]
    lines[7] = '7,"' + lines[7][2:]
    held: list[int] = []
    real = delimited._Reader.rows
    monkeypatch.setattr(
        delimited._Reader, "rows", lambda self, lines, ended: held.append(len(lines)) or real(self, lines, ended)
    )
    _, rows = read(tmp_path, "x.csv", "id,text\n" + "".join(lines))
    assert len(rows) == 3000 and [n for n, row in enumerate(rows) if row[2]] == [7]
    assert max(size for size in held if size < 3000) < 400  # the head, in which the dialect is looked for, is larger


@pytest.mark.parametrize("block", [50, 333, 1 << 20])
@pytest.mark.parametrize("span", [2, 40, 700])
def test_fields_of_many_lines_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, span: int
) -> None:
    """Prose, lists and code with commas and doubled quotes, whatever the block in which the file is read."""
    monkeypatch.setattr(delimited, "BLOCK", block)
    said = ["First, there was a line", 'then "another", said she', "", "- 3 apples, 4 pears", "x = f(1, 2)"]
    long = "\n".join(said[n % len(said)] for n in range(span))
    table = [(f"{n}", long if n % 30 == 5 else f"Plain {n}") for n in range(100)]
    assert read(tmp_path, "x.csv", written(table))[1] == sound(table)


def test_a_quote_that_ends_before_its_field_is_one_row_in_quarantine(tmp_path: Path) -> None:
    lines = written(ROWS).splitlines(True)
    lines[11] = '10,"He said "yes" to me, and left."\n'
    lines[21] = '20,"one line "quoted"\nanother, of the same text\nand a last"\n'
    _, rows = read(tmp_path, "x.csv", "".join(lines))
    good = [row for row in rows if row[2] is None]
    assert good == sound([row for row in ROWS if row[0] not in ("10", "20")])
    assert {row[2] for row in rows} == {None, "broken_quotes"}


# ---------------------------------------------------------------- a backslash before quotation marks

SPOKEN: Table = [(f"{n}", f'It was {n}. "So, {n}?" she said\nin C:\\new, and left.') for n in range(60)]


def escaped(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize("separator", [",", "\t", ";"])
@pytest.mark.parametrize("all_", [False, True])
def test_quotes_behind_a_backslash(tmp_path: Path, separator: str, all_: bool) -> None:
    """As Spark and MySQL write them."""
    rows = [separator.join((escaped(n) if all_ else n, escaped(text))) for n, text in SPOKEN]
    reading, found = read(tmp_path, "x.csv", "\n".join([separator.join(("id", "text")), *rows]) + "\n")
    assert reading is not None and reading.quotes == "backslash" and "escaped by a backslash" in str(reading)
    assert found == sound(SPOKEN)


def test_quotes_behind_a_backslash_and_doubled_ones_in_one_file(tmp_path: Path) -> None:
    rows = [
        f"{n},{escaped(t) if int(n) % 2 else chr(34) + t.replace(chr(34), chr(34) * 2) + chr(34)}" for n, t in SPOKEN
    ]
    _, found = read(tmp_path, "x.csv", "id,text\n" + "\n".join(rows) + "\n")
    assert found == sound(SPOKEN)


def test_a_backslash_that_escapes_nothing_stays(tmp_path: Path) -> None:
    """A path before the closing mark; where no field has quotes, nothing speaks for another dialect."""
    table = [(f"{n}", f"In C:\\dir{n},\\") for n in range(50)]
    reading, found = read(tmp_path, "x.csv", written(table))
    assert reading is None and found == sound(table)


def test_in_unquoted_fields_a_backslash_is_one(tmp_path: Path) -> None:
    rows = [f"\\\\server\\{n},{escaped(text)}" for n, text in SPOKEN]
    _, found = read(tmp_path, "x.csv", "id,text\n" + "\n".join(rows) + "\n")
    assert found == sound([(f"\\\\server\\{n}", text) for n, text in SPOKEN])


# ---------------------------------------------------------------- quotation marks as text

SENTENCES: Table = [
    (f"{n}", [f'"Yes, {n}," he said.', f'"All of {n}."', f'The 5" of {n}', f'"Open {n}', f"Plain {n}"][n % 5])
    for n in range(200)
]


@pytest.mark.parametrize("separator", ["\t", "|"])
@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
@pytest.mark.parametrize("kinds", [{0, 4}, {1, 4}, {2, 3, 4}, {0, 1, 2, 3, 4}])
def test_unquoted_tables_keep_their_quotation_marks(tmp_path: Path, separator: str, name: str, kinds: set[int]) -> None:
    """As Tatoeba, Common Voice and WMT write them. Whole sentences in quotes are fewer than those without."""
    table = [row for row in SENTENCES if int(row[0]) % 5 in kinds and (int(row[0]) % 5 != 1 or int(row[0]) % 25 == 1)]
    data = "\n".join(separator.join(row) for row in [("id", "text"), *table]) + "\n"
    reading, found = read(tmp_path, name, data)
    assert reading is not None and reading.quotes == "none" and "as part of the text" in str(reading)
    assert found == sound(table)


def test_one_lone_quote_in_a_tsv(tmp_path: Path) -> None:
    table = [*ROWS[:30], ("30", '" is an inch'), *ROWS[31:]]
    assert read(tmp_path, "x.tsv", "".join("\t".join(row) + "\n" for row in [("id", "text"), *table]))[1] == sound(
        table
    )


def test_quotation_marks_far_behind_the_head_decide_too(tmp_path: Path) -> None:
    table = [(f"{n}", "word " * 300) for n in range(1500)] + SENTENCES
    data = "".join("\t".join((n, t.strip())) + "\n" for n, t in [("id", "text"), *table])
    reading, found = read(tmp_path, "x.tsv", data)
    assert reading is not None and reading.quotes == "none" and found[-200:] == sound(SENTENCES)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_tables_that_pandas_wrote_with_tabs_are_quoted(tmp_path: Path, quoting: int) -> None:
    table = [(f"{n}", f'He said "{n}"\nand\tleft.' if n % 3 else f"Plain {n}") for n in range(90)]
    assert read(tmp_path, "x.tsv", written(table, delimiter="\t", quoting=quoting))[1] == sound(table)


def test_the_setting_overrules_what_is_found(tmp_path: Path) -> None:
    data = written([(f"{n}", f'"{n}"') for n in range(20)], quoting=csv.QUOTE_NONE, quotechar=None)  # type: ignore[arg-type]
    assert read(tmp_path / "a", "x.csv", data)[1][3][1] == "3"
    assert read(tmp_path / "b", "x.csv", data, quotes="none")[1][3][1] == '"3"'


# ---------------------------------------------------------------- line ends and odd bytes


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_every_line_end_is_read(tmp_path: Path, end: str, name: str) -> None:
    data = written(ROWS, delimiter="\t" if name == "x.tsv" else ",")
    assert read(tmp_path, name, data.replace("\n", end))[1] == sound(ROWS)


@pytest.mark.parametrize("odd", ["\0", "\r", "\x1c", "\x85", "\u2028", "\x0b"])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_byte_that_other_readers_take_for_a_line_end_stays_in_its_field(
    tmp_path: Path, odd: str, quoted: bool
) -> None:
    table = [(f"{n}", f"before{odd}behind {n}{', ' if quoted else ''}") for n in range(20)]
    data = "".join(f'{n},"{t}"\n' if quoted else f"{n},{t}\n" for n, t in [("id", "text"), *table])
    assert read(tmp_path, "x.csv", data)[1] == sound(table)


def test_fields_that_do_not_add_up_are_rows_in_quarantine(tmp_path: Path) -> None:
    lines = written(ROWS).splitlines(True)
    lines[5], lines[9] = "4,too,many\n", "8\n"
    _, rows = read(tmp_path, "x.csv", "".join(lines))
    assert len(rows) == 100 and [n for n, row in enumerate(rows) if row[2] == "malformed_row"] == [4, 8]


def test_a_header_with_an_open_quote_is_refused_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"first line has a quotation mark that is never closed.*corpus\.quotes=none"):
        read(tmp_path, "x.csv", written(ROWS).replace("id,text", 'id,"text'))


@pytest.mark.parametrize("lines", [2, 3, 9])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("name", "separator"), [("x.csv", ","), ("x.tsv", "\t")])
def test_a_text_of_several_lines_is_one_row_in_whatever_column_it_stands(
    tmp_path: Path, lines: int, place: int, name: str, separator: str
) -> None:
    """Its last line has the separators of a row, and the other columns' values."""
    words = "stone river mill wheel water turned slowly under the old bridge all winter long".split()
    texts = ["\n".join(" ".join(words[(number + line) % 7 :]) for line in range(lines)) for number in range(60)]
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter=separator, lineterminator="\n")
    for text, *others in [("text", "id", "source"), *((text, f"d{n}", "notes") for n, text in enumerate(texts))]:
        writer.writerow([*others[:place], text, *others[place:]])
    _, rows = read(tmp_path, name, sink.getvalue())
    assert rows == [(f"d{n}", text, None) for n, text in enumerate(texts)]
