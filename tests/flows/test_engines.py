"""The same configuration gives the same bytes on worker processes as on threads, with any number of threads."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from datamask import curate as curate_function
from datamask.config import RunSettings
from datamask.errors import ConfigError, MachineError
from flows.engine import cluster_answers
from tests.conftest import drawn
from tests.flows.conftest import SETTINGS
from tests.release.made import digests

pytest.importorskip("prefect_dask")
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# they tell when, where and on which engine the work was done
TIMES = ("manifest.json", "README.md", "report.html", "report.json", "shards.json", "inputs.json", "times.json")


def results(out):
    """sha256 of every file of the release, and of the stages, that stands for the same work anywhere."""
    files = {**digests(out / "latest"), **digests(out / "work")}
    return {path: sha for path, sha in files.items() if path not in TIMES}


def test_a_cluster_that_does_not_answer_is_named(call, corpus, tmp_path):
    given = ["--set", "run.engine=dask", "--set", "run.address=nowhere://here"]
    status, _, err = call("curate", "--input", corpus, "--output", tmp_path / "out", *given)
    assert status == 5
    assert err.startswith("datamask: run.address = nowhere://here: no Dask cluster answers there (")


def test_a_script_without_a_guard_is_told_of_it(monkeypatch, tmp_path):
    with pytest.raises(MachineError, match=r"Dask's processes do not start here .*`if __name__ == .__main__.:`"):
        with cluster_answers(RunSettings(engine="dask")):
            raise RuntimeError("Nanny failed to start.")
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match=r"would run it once more; .*`if __name__ == .__main__.:`"):
        curate_function("corpus", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_dask_ends_in_the_same_files(curate, corpus, out, found, tmp_path):
    with drawn():
        other = curate(corpus, tmp_path / "out", "--set", "run.engine=dask")
    assert results(tmp_path / "out") == results(out)
    assert other["certificate"] == found["certificate"]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "threads"), [("threads", "1"), ("threads", "2"), ("threads", ""), ("dask", "")])
def test_no_byte_depends_on_the_number_of_threads(corpus, out, tmp_path, engine, threads):
    """The run that `out` holds was made in this process, by whatever number it has; Dask with it in the test above."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", *POOLS))}
    environment |= {"PREFECT_HOME": str(tmp_path / "home"), "DO_NOT_TRACK": "1"}
    environment |= dict.fromkeys(POOLS, threads) if threads else {}
    command = [sys.executable, "-m", "datamask", "curate", "--input", str(corpus), "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, *SETTINGS, "--set", f"run.engine={engine}"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert results(tmp_path / "out") == results(out)
