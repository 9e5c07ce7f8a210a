"""The typed keyword arguments are the settings, so that an editor shows what is valid and nothing else."""

import inspect
import re
import subprocess
import sys
from typing import get_type_hints

import pytest

from datamask import config, select
from datamask.selection import arrays
from flows.functions import Sections, _config


def plain(hint):
    """A type in one spelling: containers by the names that settings give them, a section by its own name."""
    found = str(hint).replace("typing.", "").replace("collections.abc.", "").replace("datamask.config.", "")
    found = re.sub(r"<class '([\w.]+)'>", r"\1", found)
    found = re.sub(r"(CoverageSettings|Quota) \| Mapping\[str, object\]", r"\1", found)  # a section as plain data
    return found.replace("Sequence", "list").replace("Mapping", "dict")


def test_select_takes_every_setting_of_its_section_with_its_type():
    given = inspect.signature(select).parameters
    assert given["keywords"].annotation == "Unpack[ArrayKeywords]"
    assert not [each for each in given.values() if "Any" in str(each.annotation)]
    names = {"sparray": object, "spmatrix": object}  # of a library that only a type checker imports there
    typed = get_type_hints(arrays.ArrayKeywords, localns=names)
    settings = get_type_hints(config.Select)
    for name in config.Select.model_fields:
        if name != "target":  # texts, and not files of them
            assert plain(typed[name]) == plain(settings[name]), name
    assert typed.keys() - config.Select.model_fields.keys() == {"texts", "atoms"}


def test_a_flow_takes_every_section_as_its_class_or_as_plain_data():
    typed = get_type_hints(Sections)
    assert typed.keys() == config.Config.model_fields.keys()
    for name, field in config.Config.model_fields.items():
        assert field.annotation in typed[name].__args__
    base = {"select": {"lamb": 0.2, "seed": 3}}
    chosen = _config(base, {"select": config.Select(lamb=0.7)}, "in", ())
    assert chosen == _config(base, {"select": {"lamb": 0.7}}, "in", ())
    assert (chosen.select.lamb, chosen.select.seed) == (0.7, 3)


@pytest.mark.slow
def test_a_type_checker_names_a_wrong_keyword_and_a_wrong_type(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text(
        "from datamask import select\n"
        "select([[1.0]], [1.0], lamb=0.5, coverage={'anchors': 5}, texts=['a'], quotas=[{'column': 'a'}])\n"
        "select([[1.0]], [1.0], lambd=0.5)\n"
        "select([[1.0]], [1.0], lamb='high')\n"
        "select([[1.0]], [1.0], gradient='none')\n"
    )
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]  # without our own settings
    command = [sys.executable, "-m", "mypy", *options, str(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [int(number) for number in re.findall(r"mine\.py:(\d+): error", done.stdout)]
    assert sorted(set(lines)) == [3, 4, 5], done.stdout + done.stderr
