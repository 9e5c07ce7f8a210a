"""What an extension does wrong is told by its own name, file and line, never as a defect of datamask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamask import extensions, select
from datamask.config import OwnFilter
from datamask.errors import ConfigError
from datamask.filter.built_in import Own
from datamask.quality.documents import Documents
from datamask.quality.scorers import OwnScorer

SOURCE = """\
import numpy as np

class Broken:
    def __init__(self, *given): pass
    def score(self, documents): return [1 / len(text) for text in documents.texts]
    def keep(self, documents): return documents["words"]
    def value(self, masks): return masks.nothing

class Gone:
    def score(self, documents): raise FileNotFoundError("words.txt")

class Needy:
    needs = ("text",)
    def score(self, documents): return np.zeros(len(documents))

class Named:
    signals = "stops"
    def score(self, documents): return np.zeros(len(documents))
"""
DOCUMENTS = Documents(np.arange(2), ["a text", ""])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def scorer(file: Path, name: str) -> OwnScorer:
    return OwnScorer(extensions.require("scorer", f"{file}:{name}").make({}), name)


def test_a_class_that_is_not_there_is_told_with_those_that_are(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.py has no class Broke \(its classes: Broken, Gone, Needy, Named\)"):
        extensions.require("scorer", f"{file}:Broke").load()


def test_what_a_scorer_raises_is_told_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.py, line 5, in .*: ZeroDivisionError: division by zero"):
        scorer(file, "Broken").score(DOCUMENTS)
    with pytest.raises(FileNotFoundError):  # of the system: tried again or not by its own type
        scorer(file, "Gone").score(DOCUMENTS)


def test_what_a_filter_or_a_metric_raises_is_told_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.py, line 6, in keep: KeyError"):
        Own(OwnFilter(use=f"{file}:Broken")).keep(pa.table({"text": ["a"]}))
    with pytest.raises(ConfigError, match=r"mine\.py, line 7, in value: AttributeError"):
        select(np.eye(6), np.arange(6), algorithm=f"{file}:Broken", solver="random", budget_documents=2)


def test_our_own_defects_stay_ours(file: Path) -> None:
    with pytest.raises(ZeroDivisionError), extensions.named_in_errors():
        _ = 1 / 0


def test_declarations_that_are_none_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="scorer Needy needs text; valid: texts, languages, vectors, encoder_scores"):
        scorer(file, "Needy")
    with pytest.raises(ConfigError, match="scorer Named: signals is 'stops'; it must be a tuple of names"):
        scorer(file, "Named")
