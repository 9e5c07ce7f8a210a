"""docs/hooks.py: what the site says of settings, commands and errors is all that the code has."""

import importlib.util
import inspect
import re
from pathlib import Path

from datamask import cli, errors
from datamask.config import Config

DOCS = Path(__file__).parents[1] / "docs"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = loaded("hooks")
sentences = loaded("sentences")


def test_every_setting_has_a_row_with_its_sentence():
    page = hooks.settings()
    for section, field in Config.model_fields.items():
        part = page.split(f"## {section}\n")[1].split("\n## ")[0]
        rows = {row.split("`")[1]: row for row in part.splitlines() if row.startswith("| `")}
        assert rows.keys() == field.annotation.model_fields.keys()
        assert all(row.split(" | ")[3].strip(" |") for row in rows.values()), section


def test_every_error_stands_with_its_status():
    page = hooks.errors()
    expected = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.DatamaskError)]
    assert len(expected) > 8
    assert all(f"| {one.exit_code} | `{one.__name__}` |" in page for one in expected)


def test_every_command_is_described():
    page = hooks.commands()
    assert all(f"## {name}\n\n```text\nUsage: datamask {name}" in page for name in cli.COMMANDS)


def test_pages_mark_what_is_generated_and_nothing_else():
    marks = [mark for page in DOCS.rglob("*.md") for mark in re.findall(r"<!-- generated: (\w+) -->", page.read_text())]
    assert sorted(marks) == sorted(hooks.GENERATED)


def test_sentences_and_paragraphs_are_counted():
    text = "# Head\n\nOne two three. Four five!\n\n| a | b |\n\n```\nno\n```\n- an item of\n  two lines\n- next"
    found = sentences.paragraphs(text)
    assert found == ["One two three. Four five!", "an item of two lines", "next"]
    assert [sentences.sentences(one) for one in found] == [[3, 2], [5], [1]]
    assert sentences.sentences("Set `a b c` and read [this page](there.md) now.") == [7]
