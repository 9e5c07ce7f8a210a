"""The same configuration gives the same bytes on worker processes as on threads."""

import pytest

from tests.flows.test_curate import digests

pytest.importorskip("prefect_dask")


def test_a_cluster_that_does_not_answer_is_named(call, corpus, tmp_path):
    given = ["--set", "run.engine=dask", "--set", "run.address=nowhere://here"]
    status, _, err = call("curate", "--input", corpus, "--output", tmp_path / "out", *given)
    assert status == 5
    assert err.startswith("datamask: run.address = nowhere://here: no Dask cluster answers there (")


@pytest.mark.slow
def test_dask_ends_in_the_same_data_files(curate, corpus, found, tmp_path):
    other = curate(corpus, tmp_path / "out", "--set", "run.engine=dask")
    data = [{k: v for k, v in digests(run["release"]).items() if k.startswith("data/")} for run in (found, other)]
    assert data[0] == data[1]
    assert other["certificate"] == found["certificate"]
