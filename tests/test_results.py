"""benchmarks/run.py: a table is found by its markers and replaced in place; the page is sound."""

import shlex
import sys
from pathlib import Path

import figures
import pytest
import run

ROOT = Path(__file__).parents[1]

PAGE = """# Results
<!-- table one 1: python -c x -->
| a |
|---|
| old |
<!-- end one 1 -->
between
<!-- table two 1: OMP_NUM_THREADS=1 python y
--more -->
| c |
|---|
<!-- end two 1 -->
<!-- table one 2: python -c x -->
old
<!-- end one 2 -->
"""


def test_tables_are_replaced_and_nothing_else():
    printed = "noise\n| a |\n|---|\n| 1 |\nmore | noise |\n| b |\n| :-: |\n| 2 |"
    text = run.replaced(PAGE, "one", printed, "Measured today")
    assert "| 1 |\n\n*Measured today*\n<!-- end one 1 -->\nbetween" in text and "| 2 |\n\n*Measured today*\n" in text
    assert "old" not in text and "| c |\n|---|\n<!-- end two 1 -->" in text
    assert run.replaced(text, "one", printed, "Measured today") == text
    with pytest.raises(ValueError, match="2 table"):
        run.replaced(PAGE, "one", "| a |\n|---|\n", "")
    assert run.commands(PAGE) == {"one": "python -c x", "two": "OMP_NUM_THREADS=1 python y --more"}


def test_every_command_of_the_page_names_a_script_that_is_there():
    text = run.RESULTS.read_text()
    known = run.commands(text)
    ends = text.count("<!-- end ") - text.count("<!-- end figures ")
    assert len(known) > 10 and text.count("<!-- table ") == ends == len(run.MARKED.findall(text))
    for name, command in known.items():
        script = next(word for word in shlex.split(command) if word.endswith(".py"))
        assert (ROOT / script).exists(), name


def test_every_table_of_the_page_but_the_first_is_under_a_command():
    page = run.MARKED.sub("", run.RESULTS.read_text())
    assert len(run.TABLE.findall(page)) == 1  # the ten figures, which benchmarks/figures.py writes


def test_figures_on_every_page_are_those_of_the_tables():
    results = figures.Results(run.RESULTS.read_text())
    found = []
    for page in figures.PAGES:
        text = (ROOT / page).read_text() if (ROOT / page).exists() else ""
        found += [block["name"] for block in figures.BLOCK.finditer(text)]
        assert figures.filled(text, results) == text, f"{page}: python benchmarks/figures.py writes its figures"
    assert {"ten", "judges"} <= set(found)


def test_a_figure_that_is_changed_by_hand_is_seen_and_mended():
    text = run.RESULTS.read_text()
    results = figures.Results(text)
    assert results.cell("release_export 1", "datamask, 10%, memory_limit 1GB", "rows") == "198,336"
    wrong = text.replace(", pairwise, s | 9.0 |", ", pairwise, s | 8.0 |")
    assert wrong != text and figures.filled(wrong, results) == text
    with pytest.raises(KeyError, match="no row"):
        results.cell("judge 4", "an arm that nobody read", "coder, reporting sets")


def test_entries_of_the_log_are_dated_and_short():
    entries = (run.RESULTS.parent / "LOG.md").read_text().split("\n## ")[1:]
    assert entries
    for entry in entries:
        head, _, body = entry.partition("\n")
        assert "2026-" in head and len(body.split()) <= 120, head


def test_a_command_that_fails_leaves_the_page(tmp_path, monkeypatch, capsys):
    page = tmp_path / "RESULTS.md"
    page.write_text("<!-- table t 1: python -c 'raise SystemExit(3)' -->\n| a |\n|---|\n<!-- end t 1 -->\n")
    before = page.read_text()
    monkeypatch.setattr(run, "RESULTS", page)
    monkeypatch.setattr(sys, "argv", ["run.py", "t"])
    with pytest.raises(SystemExit, match="ended with 3"):
        run.main()
    assert page.read_text() == before
    page.write_text(before.replace("raise SystemExit(3)", 'print("| a |\\n|---|\\n| 7 |")'))
    run.main()
    assert "| 7 |" in page.read_text() and "Measured with" in page.read_text()
