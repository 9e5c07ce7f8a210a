"""The same configuration gives the same bytes on worker processes as on threads."""

import pytest

from tests.flows.test_curate import digests

pytest.importorskip("prefect_dask")


def test_dask_ends_in_the_same_data_files(curate, corpus, found, tmp_path):
    other = curate(corpus, tmp_path / "out", "--set", "run.engine=dask")
    data = [{k: v for k, v in digests(run["release"]).items() if k.startswith("data/")} for run in (found, other)]
    assert data[0] == data[1]
    assert other["certificate"] == found["certificate"]
