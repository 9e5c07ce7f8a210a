"""`from datamask import curate, refresh, Release`: the commands' work, with results as objects."""

import asyncio
import json
from pathlib import Path

import pytest

import datamask
from datamask.config import Config, change_settings
from datamask.errors import ConfigError, InputError
from datamask.run import curate as curate_plainly
from tests.flows.conftest import write_shard

SMALL = {
    "corpus": {"group_bytes": 0},
    "encoder": {"dimensions": 32, "vocabulary": 500, "fit_documents": 200},
    "select": {"select_ratio": 0.2},
    "run": {"workers": 2, "retry_delay": 0.01},
}


@pytest.fixture(scope="module")
def made(prefect_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    write_shard(folder / "corpus", 0)
    release = datamask.curate(folder / "corpus", folder / "out", config=SMALL, progress=False, filter={"min_tokens": 3})
    return folder, release


def test_a_run_gives_its_release(made):
    folder, release = made
    assert release.path.startswith(str(folder / "out" / "releases"))
    total = release.counts
    assert total["rows"] == 60 and total["selected"] > 0
    table = release.decisions()
    assert table.num_rows == 60
    assert table["outcome"].to_pylist().count("selected") == total["selected"]
    assert release.quarantine().num_rows == sum(total["quarantined"].values())
    assert 0 <= release.certificate["gap"] < 1
    assert release.settings["filter"]["min_tokens"] == 3
    assert release.verify(str(folder / "corpus")) == []
    assert release.run["new"] and release.run["stages"]
    chosen = next(row for row in table.to_pylist() if row["outcome"] == "selected")
    assert release.explain(chosen["id"])[0]["decision"]["outcome"] == "selected"


def test_its_documents_by_either_library(made, monkeypatch, tmp_path):
    _, release = made
    arrow = release.dataset(library="pyarrow")
    assert arrow.count_rows() == release.counts["selected"]
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    streamed = release.dataset(streaming=True)
    assert {row["text"] for row in streamed} == set(arrow.to_table(["text"])["text"].to_pylist())


def test_it_is_shown_in_a_notebook(made):
    folder, release = made
    shown = release._repr_html_()
    assert shown.startswith("<iframe") and 'srcdoc="&lt;!' in shown and shown.count("<") == 2
    assert repr(release) == f"Release({release.path!r}: {release.counts['selected']:,} of 60 documents)"
    assert datamask.Release(folder / "out").version == release.version


def test_one_entry_is_no_list_of_letters(made, monkeypatch):
    monkeypatch.setattr("flows.functions._run", lambda name, progress, **given: given)
    assert datamask.forget(made[0] / "out", ids="doc-17", urls=["a", "b"])["ids"] == ["doc-17"]


@pytest.mark.slow
def test_nothing_new_is_the_last_release_and_new_text_another(made):
    folder, release = made
    again = datamask.refresh(folder / "out", progress=False)
    assert again.path == release.path and again.run["new"] is False
    write_shard(folder / "corpus", 1)

    async def in_a_notebook():  # whose loop runs already
        return datamask.refresh(folder / "out", progress=False)

    second = asyncio.run(in_a_notebook())
    assert second.path != release.path and second.counts["rows"] == 120
    assert second.settings["filter"]["min_tokens"] == 3


@pytest.mark.parametrize("output", [None, "", "/", " ", "s3://", "file:///", 5])
def test_an_output_that_names_no_folder_is_refused(output):
    with pytest.raises(ConfigError, match=f"output {output!r} names no folder; give one for work/ and releases/"):
        datamask.curate("x", output)
    with pytest.raises(ConfigError, match="names no folder"):
        datamask.refresh(output)
    with pytest.raises(ConfigError, match="names no folder"):
        curate_plainly(Config(), output)


def test_an_output_on_a_store_is_no_path():
    with pytest.raises(ConfigError, match="a Path cannot hold a URL; give it as a string"):
        datamask.curate("x", Path("s3://bucket/out"))


def test_two_budgets_are_refused_without_all_other_settings():
    with pytest.raises(ConfigError) as refused:
        change_settings(Config(), select={"select_ratio": 0.1, "token_ratio": 0.1})
    assert str(refused.value) == "the settings: select: select_ratio and token_ratio are both set; keep one"


def test_mistakes_are_the_commands(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown setting select.lamda; did you mean \"lamb\""):
        datamask.curate("x", tmp_path, select={"lamda": 1})
    with pytest.raises(ConfigError, match=r"unknown setting select_ratio; did you mean select.select_ratio\? \(valid"):
        datamask.curate("x", tmp_path, select_ratio=0.1)
    with pytest.raises(ConfigError, match=r"unknown setting filter.lamb; did you mean select.lamb\? "):
        datamask.curate("x", tmp_path, filter={"lamb": 1})
    with pytest.raises(ConfigError, match="corpus = 'x': Input should be a valid dictionary"):
        datamask.curate("x", tmp_path, corpus="x")
    for nothing in (None, "", ["x", ""]):
        with pytest.raises(InputError, match="no input; name files"):
            datamask.curate(nothing, tmp_path)
    with pytest.raises(InputError, match="no release at"):
        datamask.refresh(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'curat'"):
        datamask.curat


def test_settings_as_json(capsys):
    from datamask import cli

    with pytest.raises(SystemExit):
        cli.main(["config", "--json", "--set", "select.lamb=0.7"])
    assert json.loads(capsys.readouterr().out)["select"]["lamb"] == 0.7
