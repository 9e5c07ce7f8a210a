"""Every recipe of examples/ runs as it stands, and says what its page promises."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.object_store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {  # what is printed, at least
    "own_scorer": ["of 120 documents", "quality_score"],
    "own_filter": ["'NoWord':", "NoWord"],
    "own_encoder": ["of 120 documents"],
    "bert_encoder": ["of 120 documents", "model"],
    "two_dumps_with_quotas": ["CC-2026-01", "'sea'"],
    "nightly_refresh": ["True nothing new", "120 documents, 240 after the refresh; 0002-"],
    "read_a_release": ["verified", "min_tokens", "objective"],
}
WITHOUT_FOLDER = {
    "own_metric": ["relaxation {'quality':", ":Vendi'", "at most", "random", "domains {'news':"],
    "own_solver": ["cannot hold a budget in tokens; these can: relaxation"],
    "selection_only": ["λ = 1.0: 1 topics", "tokens, 2"],
}
SLOW = {"bert_encoder", "nightly_refresh", "two_dumps_with_quotas"}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """run(name, *arguments) runs a recipe as a script, in this process, and gives what it printed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def call(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return call


def marked(names):
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


@pytest.mark.parametrize("name", marked(SAYS))
def test_a_recipe_with_a_folder(run, prefect_server, tmp_path, name):
    printed = run(name, str(tmp_path))
    assert all(words in printed for words in SAYS[name]), printed


@pytest.mark.parametrize("name", WITHOUT_FOLDER)
def test_a_recipe_on_arrays(run, name):
    printed = run(name)
    assert all(words in printed for words in WITHOUT_FOLDER[name]), printed


@pytest.mark.slow
def test_object_store(run, prefect_server, store: Store):
    printed = run("object_store", "s3://corpus/example")
    assert "of 120 documents" in printed and "documents; verified" in printed
    assert len(store.requests) > 50


@pytest.mark.slow
def test_dask_cluster(run, prefect_server, tmp_path):
    assert "of 120 documents" in run("dask_cluster", str(tmp_path))


def test_every_recipe_is_run_here():
    recipes = {path.stem for path in EXAMPLES.glob("*.py")} - {"made_corpus"}
    assert recipes == {*SAYS, *WITHOUT_FOLDER, "object_store", "dask_cluster"}
