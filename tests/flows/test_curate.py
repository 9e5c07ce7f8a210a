"""The whole pipeline, small: what comes out, what a second run does, and what a user who errs is told."""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.release.publication import one_exporter
from datamask.run import Run
from tests.flows.conftest import SETTINGS, write_shard
from tests.release.made import digests


def stage(found, name):
    return next(line for line in found["stages"] if line["stage"] == name)


def work_done(found):
    return {line["stage"] for line in found["stages"] if line["done"]}


def test_a_release_holds_what_was_selected_and_accounts_for_every_row(found):
    counts = found["documents"]
    assert counts["read"] == 180
    assert counts["quarantined"] == {"empty_text": 18}
    assert counts["filtered"]["exact_duplicate"] > 0
    left_out = sum(counts["filtered"].values()) + sum(counts["quarantined"].values()) + counts["not_selected"]
    assert counts["read"] == counts["selected"] + left_out
    table = pq.read_table(Path(found["release"]) / "data")
    assert table.num_rows == counts["selected"]
    assert Path(found["report"]).exists()
    assert (Path(found["release"]).parents[1] / "latest" / "manifest.json").exists()
    assert found["certificate"]["objective"] <= found["certificate"]["upper_bound"]
    assert found["new"]


def test_the_runs_record_names_the_release_and_every_task_its_stage(curate, corpus, out, found):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    again = curate(corpus, out)
    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1)
        for _ in range(200):  # the server writes tasks down as their events come in, after the run's end too
            tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id={"any_": [run.id]}))
            if tasks and all(task.state and task.state.is_final() for task in tasks):
                break
            time.sleep(0.2)
    assert run.state.is_completed()
    assert run.state.message == f"{again['release']} (unchanged)"
    assert tasks and all(task.state.message for task in tasks)


def test_a_second_run_does_nothing(curate, corpus, out, found):
    before = digests(out / "releases" / found["version"])
    again = curate(corpus, out)
    assert work_done(again) <= {"plan"}
    assert (again["version"], again["new"]) == (found["version"], False)
    assert digests(again["release"]) == before


def test_another_lambda_redoes_the_selection_alone(curate, corpus, out, found):
    other = curate(corpus, out, "--set", "select.lamb=0.9")
    assert work_done(other) <= {"plan", "prices", "mask", "export", "report", "publish"}
    assert other["new"]
    assert other["version"].startswith("0002-")


@pytest.mark.slow
def test_another_order_of_inputs_and_number_of_workers_selects_the_same(curate, corpus, found, tmp_path):
    names = sorted(corpus.iterdir(), reverse=True)
    more = [part for path in names[1:] for part in ("--input", path)]
    other = curate(names[0], tmp_path / "b", *more, "--set", "run.workers=1", "--set", "run.shards_per_task=2")
    data = [{k: v for k, v in digests(run["release"]).items() if k.startswith("data/")} for run in (found, other)]
    assert data[0] == data[1]


@pytest.mark.slow
def test_filters_after_and_each_shard_alone_account_for_every_row_too(curate, corpus, out):
    settings = ["filter.order=after", "select.scope=shard", "select.semantic_duplicates=null"]
    counts = curate(corpus, out, *[part for setting in settings for part in ("--set", setting)])["documents"]
    assert counts["selected"] > 0
    total = sum(counts["filtered"].values()) + sum(counts["quarantined"].values())
    assert counts["read"] == counts["selected"] + counts["not_selected"] + total == 180


def test_a_truncated_file_fails_by_name_and_is_left_out_when_allowed(call, curate, corpus, out):
    path = write_shard(corpus, 3)
    path.write_bytes(path.read_bytes()[:-300])
    releases = sorted((out / "releases").iterdir())
    status, printed, err = call("curate", "--input", corpus, "--output", out)
    assert status == 7
    assert printed == ""
    assert "shard-03.parquet" in err
    assert "--allow-failed-shards" in err
    assert sorted((out / "releases").iterdir()) == releases
    found = curate(corpus, out, "--allow-failed-shards")
    assert [Path(file["path"]).name for file in found["failed"]] == ["shard-03.parquet"]
    manifest = json.loads((Path(found["release"]) / "manifest.json").read_text())
    assert "shard-03.parquet" in manifest["provenance"]["failed"][0]["path"]


def test_no_text_column_lists_the_columns_there_are(call, tmp_path):
    pq.write_table(pa.table({"body_of": ["a"], "number": [1]}), tmp_path / "a.parquet")
    status, _, err = call("curate", "--input", tmp_path / "a.parquet", "--output", tmp_path / "out")
    assert status == 3
    assert "body_of" in err
    assert "number" in err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--input", "/nowhere/*.parquet"], 3, "matches no file"),
        (["--input", "CORPUS", "--set", "select.lam=0.5"], 2, 'did you mean "lamb"'),
        (["--input", "CORPUS", "--set", "select.lamb=1.5"], 2, "less than or equal to 1"),
        (["--input", "CORPUS", "--sample"], 2, "one of the two"),
        ([], 2, "--input"),
    ],
)
def test_what_a_user_gets_wrong_is_one_clear_message(call, corpus, tmp_path, arguments, status, words):
    given = [str(corpus) if argument == "CORPUS" else argument for argument in arguments]
    found = call("curate", *given, "--output", tmp_path / "out")
    assert found[0] == status
    assert words in found[2]
    assert "Traceback" not in found[2]
    assert not (tmp_path / "out" / "releases").exists()


def test_a_place_that_cannot_be_written_is_named(call, corpus, tmp_path):
    (tmp_path / "file").write_text("in the way")
    status, _, err = call("curate", "--input", corpus, "--output", tmp_path / "file" / "out")
    assert status == 5
    assert str(tmp_path / "file") in err


def test_in_a_pipe_progress_is_plain_lines_on_stderr(call, corpus, out, found):
    status, printed, err = call("curate", "--input", corpus, "--output", out)
    assert status == 0, err
    assert "\x1b" not in printed + err
    assert "embed      3/3 shards, 3 cached" in err
    assert f"{found['version']}  (unchanged)" in printed
    assert "quarantined: empty_text 18" in printed


@pytest.mark.slow
def test_what_took_the_documents_is_said_where_too_few_are_left(call, corpus, out):
    asked = ["--set", "filter.min_tokens=117", "--set", "select.select_ratio=0.1"]
    status, _, err = call("curate", "--input", corpus, "--output", out, *asked)
    assert status == 3
    assert re.search(r"of \d+ documents are left to select from \(min_tokens took \d+", err), err
    assert "loosen filter.*" in err
    status, _, err = call("curate", "--input", corpus, "--output", out, "--set", "select.budget_documents=5000")
    assert status == 3 and "too few for budget_documents 5,000" in err and "lower budget_documents" in err


def test_a_second_run_waits_while_the_first_one_publishes(call, corpus, out, monkeypatch):
    """Of two runs at once one moves the staging folder that both write into: it is written by one after the other."""
    held, waits = threading.Event(), threading.Event()
    told = Run._say

    def other():
        with one_exporter(str(out), waiting=lambda: None):
            held.set()
            waits.wait(120)

    def say(run, said, *level):
        told(run, said, *level)
        if "waits for it" in said:
            waits.set()

    monkeypatch.setattr(Run, "_say", say)
    run = threading.Thread(target=other)
    run.start()
    assert held.wait(60)
    status, _, err = call("curate", "-i", corpus, "-o", out)
    assert status == 0 and waits.is_set()
    assert f"datamask: another run is publishing into {out}; this one waits for it" in err
    run.join()


@pytest.mark.slow
def test_plain_runs_make_the_same_releases_without_prefect(curated, corpus, tmp_path, found):
    """In a process of its own, which must load nothing of Prefect."""
    code = (
        "import json, sys; from datamask import cli\n"
        "for asked in json.loads(sys.argv[1]):\n"
        "    try: cli.main(asked)\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'prefect']"
    )
    out = str(tmp_path / "plain")
    asked = [
        ["curate", "--plain", "--json", "-i", str(corpus), "-o", out, *SETTINGS],
        ["refresh", "--plain", "--json", "-o", out],
        ["refresh", "--plain", "--json", "-o", out, "--set", "select.lamb=0.9"],
        ["forget", out, "--plain", "--json", "--ids", "d8"],
    ]
    done = subprocess.run([sys.executable, "-c", code, json.dumps(asked)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told, nothing, again, forgotten = map(json.loads, done.stdout.splitlines())
    assert told["version"] == found["version"] and told["documents"] == found["documents"]
    kept = curated.with_name("kept") / "out" / "releases" / found["version"]
    mine, theirs = digests(tmp_path / "plain" / "releases" / told["version"]), digests(kept)
    assert {name for name in mine if mine[name] != theirs.get(name)} <= {"manifest.json", "report.html", "report.json"}
    assert not nothing["new"] and "nothing new" in nothing["message"]
    assert again["new"] and again["previous"] == told["version"] and "select.lamb" in again["changed_settings"][0]
    assert forgotten["new"] and forgotten["forgotten"]["documents"] >= 1


def test_what_code_of_ones_own_prints_is_no_part_of_the_object(call, corpus, tmp_path):
    (rule := tmp_path / "loud.py").write_text(
        "import numpy as np\n\nclass Loud:\n    def keep(self, documents):\n"
        "        print('looking')\n        return np.ones(len(documents), bool)\n"
    )
    asked = [
        "curate",
        "--plain",
        "--json",
        "-i",
        corpus,
        "-o",
        tmp_path / "loud",
        "--set",
        f"filter.own=['{rule}:Loud']",
    ]
    status, out, err = call(*asked)
    assert status == 0 and json.loads(out)["new"]
    assert "looking" in err


@pytest.mark.slow
def test_what_an_earlier_curation_chose_is_left_out_and_the_report_is_written(curate, corpus, out, tmp_path):
    now = curate(corpus, tmp_path / "now", "--set", f"duplicates.against=[{out}]")
    assert now["new"] and sum(now["documents"]["filtered"].values()) > 16  # exact duplicates alone are 16
    assert (Path(now["release"]) / "report.html").exists()
