"""The table of stages holds: what a run does, leaves in work/ and the documentation says is what it declares."""

import json
from pathlib import Path

import pytest

from datamask.config import validate
from datamask.errors import ConfigError
from datamask.pipeline import STAGES
from datamask.run import curate
from datamask.stages import KEPT, ROUNDS
from tests.flows.conftest import SMALL, write_shard


def test_a_stage_reads_what_ran_before_it():
    before = set()
    for stage in STAGES.values():
        assert set(stage.reads) <= before, stage.name
        before.add(stage.name)
    assert {stage.folder for stage in STAGES.values()}.isdisjoint({ROUNDS, KEPT})


def test_the_documentation_names_each_stages_folder():
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text().split("| stage | function | file |")[1]
    rows = [row.split("|") for row in text.split("\n\n")[0].splitlines()[2:]]
    for stage, _, file in ((row[1].split()[0], row[2], row[3]) for row in rows):
        folder = STAGES[stage].folder
        assert (f"work/{folder}/" in file) if folder else ("/work/" not in f"/{file}" or stage == "plan"), stage


def test_the_documentation_has_the_declared_stages():
    rows = []
    for stage in STAGES.values():
        without = f" without {', '.join(f'`{name}`' for name in stage.without)}" if stage.without else ""
        settings = ", ".join(f"`{name}`" for name in stage.settings) + without
        rows.append(f"| {stage.name} | {stage.by} | {', '.join(stage.reads)} | {settings} |")
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    found = text.split("| stage | by | reads | settings in its key |")[1].split("\n\n")[0].splitlines()[2:]
    assert found == rows


def test_a_run_has_the_declared_stages_folders_and_rounds(tmp_path, monkeypatch):
    from datamask import cli
    from datamask.engine import Rounds

    asked = {}
    call = Rounds.__call__

    def counted(self, work, *rest, **named):
        asked.setdefault(self.stage, []).append(work.__name__)
        return call(self, work, *rest, **named)

    monkeypatch.setattr(Rounds, "__call__", counted)
    for number in range(3):
        write_shard(tmp_path / "corpus", number, count=60)
    settings = [part for setting in SMALL for part in ("--set", setting)]
    out = tmp_path / "out"
    try:
        cli.main(["curate", "--input", str(tmp_path / "corpus"), "--output", str(out), "--json", "--plain", *settings])
    except SystemExit as end:
        assert not end.code
    for stage, names in asked.items():
        assert STAGES[stage].by == "rounds" and 0 < len(names) <= STAGES[stage].rounds, (stage, names)
    in_rounds = {stage.name for stage in STAGES.values() if stage.by == "rounds"}
    assert asked.keys() == in_rounds - {"copies"}  # which nothing asks for
    there = {path.name for path in (out / "work").iterdir() if path.is_dir()}
    declared = {stage.folder for stage in STAGES.values() if stage.folder}
    assert there - {"tmp"} <= declared | {ROUNDS, KEPT}
    assert {"index", "embeddings", "scores", "filters", "prices", "masks"} <= there
    assert json.loads((out / "work/shards.json").read_text())["outputs"]


def test_without_prefect_another_engine_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="run.engine is 'dask'; leave out"):
        curate(validate({"run": {"engine": "dask"}}), str(tmp_path))
