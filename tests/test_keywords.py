"""The typed keyword arguments are the settings, so that an editor shows what is valid and nothing else."""

import inspect
import re
import subprocess
import sys
from typing import get_type_hints

import pytest

from datamask import config, keywords, select

SECTIONS = {
    config.Quota: keywords.QuotaKeywords,
    config.CoverageSettings: keywords.CoverageKeywords,
    config.Select: keywords.SelectKeywords,
    config.Corpus: keywords.CorpusKeywords,
    config.EncoderSettings: keywords.EncoderKeywords,
    config.ScorerSettings: keywords.ScorerKeywords,
    config.Quality: keywords.QualityKeywords,
    config.Topics: keywords.TopicsKeywords,
    config.OwnFilter: keywords.OwnFilterKeywords,
    config.Filter: keywords.FilterKeywords,
    config.Duplicates: keywords.DuplicatesKeywords,
    config.ReleaseSettings: keywords.ReleaseKeywords,
    config.RunSettings: keywords.RunKeywords,
    config.Config: keywords.SectionKeywords,
}


def plain(hint):
    """A type in one spelling: containers by the names that settings give them, a section by its own name."""
    found = str(hint).replace("typing.", "").replace("collections.abc.", "")
    found = found.replace("datamask.config.", "").replace("datamask.keywords.", "")
    found = re.sub(r"<class '([\w.]+)'>", r"\1", found)
    found = found.replace("Sequence", "list").replace("Mapping", "dict").replace("object", "Any")
    for section, typed in SECTIONS.items():
        found = re.sub(rf"\b{typed.__name__}\b", section.__name__, found)
    return re.sub(r"\b(\w+) \| \1\b", r"\1", found)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_keywords_are_the_settings_with_their_types(section):
    settings = {name: plain(hint) for name, hint in get_type_hints(section).items() if name in section.model_fields}
    typed = {name: plain(hint) for name, hint in get_type_hints(SECTIONS[section]).items()}
    typed = {name: hint.replace("OwnFilter | str", "OwnFilter") for name, hint in typed.items()}  # the short form
    assert typed == settings


def test_select_takes_every_setting_of_its_section():
    given = inspect.signature(select).parameters
    assert given["keywords"].annotation == "Unpack[ArrayKeywords]"
    assert not [each for each in given.values() if "Any" in str(each.annotation)]
    assert set(config.Select.model_fields) <= keywords.ArrayKeywords.__optional_keys__


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
