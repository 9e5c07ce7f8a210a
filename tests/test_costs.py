"""What `datamask plan` makes of two samples, and the command on a small corpus."""

import json
from pathlib import Path

import pytest

from datamask import cli
from datamask.config import Config
from datamask.costs import JOINT_DOCUMENTS, Costs, StageCost, _fit, _Measured, estimate
from datamask.errors import InputError
from datamask.pipeline import STAGES
from datamask.selection import stage
from tests.flows.conftest import SMALL, write_shard

GB = 10**9


def test_two_samples_give_fixed_and_per_document_seconds():
    cost = _fit(_Measured("embed", 500, 3.0, 0, 1), _Measured("embed", 2000, 6.0, 4000, 2 * GB), None)
    assert (cost.fixed, cost.seconds, cost.bytes, cost.peak_bytes) == (2.0, 0.002, 2.0, 2 * GB)
    assert _fit(_Measured("embed", 500, 3.0, 0, 1), _Measured("embed", 2000, 2.0, 0, 1), None).seconds == 0


def test_stages_per_shard_are_shared_by_all_workers_and_the_others_are_not():
    embed, prices = (StageCost(name, 36.0, 0.36, 100.0, GB) for name in ("embed", "prices"))
    assert embed.hours(100_000, 10) == pytest.approx(0.01 + 1)
    assert prices.hours(100_000, 10) == pytest.approx(0.01 + 10)
    found = Costs(1, GB, 100_000, 2000, 10, (embed, prices)).as_json()
    assert found["hours"] == pytest.approx(11.02)
    assert found["stages"][0]["worker_hours"] == pytest.approx(10.01)
    assert found["stages"][0]["storage_bytes"] == 10_000_000


def test_rounds_are_shared_and_prices_of_a_large_corpus_too():
    export, prices = (StageCost(name, 0.0, 0.36, 100.0, GB) for name in ("export", "prices"))
    assert export.hours(100_000, 10) == pytest.approx(1)
    assert prices.hours(500_000, 10) == pytest.approx(50)
    assert prices.hours(600_000, 10) == pytest.approx(6)
    assert JOINT_DOCUMENTS == stage.JOINT_DOCUMENTS


def test_the_stages_are_those_that_the_documentation_lists():
    table = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text().split("| stage | function | file |")[1]
    rows = table.split("\n\n")[0].splitlines()[2:]
    assert sorted(row.split("|")[1].split()[0] for row in rows) == sorted(STAGES)


def test_a_stage_that_looks_at_a_sample_stops_growing():
    encoder = StageCost("encoder", 0.0, 0.36, 100.0, GB, most=1000)
    assert encoder.hours(500, 1) == pytest.approx(0.05)
    assert encoder.hours(10**9, 8) == encoder.hours(1000, 1) == pytest.approx(0.1)
    assert encoder.storage(10**9) == 100_000


@pytest.mark.slow
def test_the_command_counts_the_corpus_and_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    for number in range(3):
        write_shard(tmp_path / "corpus", number, count=400)
    (place := tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    small = [part for setting in SMALL if not setting.startswith("run.") for part in ("--set", setting)]
    with pytest.raises(SystemExit) as end:
        cli.main(["plan", str(tmp_path / "corpus"), "--documents", "1000000", "--workers", "4", "--json", *small])
    assert not end.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["files"], found["workers"], found["sampled"]) == (1_000_000, 3, 4, 1200)
    stages = {stage["stage"]: stage for stage in found["stages"]}
    assert stages.keys() >= {"convert", "encoder", "index", "embed", "score", "prices", "mask", "export", "report"}
    assert 1_000_000 * 32 < stages["embed"]["storage_bytes"] < 1_000_000 * 32 * 2.5  # float16, compressed
    assert found["hours"] == pytest.approx(sum(stage["hours"] for stage in found["stages"]))
    assert not list(place.glob("datamask-*"))


def test_a_corpus_of_too_few_rows_is_refused_by_their_number(tmp_path):
    (path := tmp_path / "few.jsonl").write_text('{"text": "words of a document"}\n' * 3)
    with pytest.raises(InputError, match="^3 rows in what was read, too few to time stages by"):
        estimate(Config(corpus={"input": [str(path)]}))
