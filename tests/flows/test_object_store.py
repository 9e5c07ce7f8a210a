"""The whole pipeline with input, work folder and output on an S3 server that fails now and then."""

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import cli, storage
from tests.flows.conftest import SETTINGS
from tests.object_store import clear_clients, running


def data(release):
    """The release's rows, by shard and chunk_id."""
    fs, path = storage.filesystem(release)
    tables = []
    for name in sorted(fs.glob(f"{path}/data/*/*.parquet")):
        with fs.open(name) as file:
            tables.append(pq.read_table(file))
    return pa.concat_tables(tables).sort_by([("shard", "ascending"), ("chunk_id", "ascending")])


@pytest.mark.slow
@pytest.mark.end_to_end
def test_everything_on_s3_with_faults_is_what_it_is_on_disk(corpus, found, tmp_path, monkeypatch):
    with running() as store:
        fs, _ = storage.filesystem("s3://corpus")
        fs.put(f"{corpus}/", "corpus/in/", recursive=True)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
        clear_clients()
        store.fault = lambda number, method, path: ("reset", "500", "503")[number % 3] if number % 50 == 0 else None
        result = tmp_path / "found.json"
        arguments = ["curate", "-i", "s3://corpus/in", "-o", "s3://corpus/out", "--json", *SETTINGS]
        with result.open("w") as out, contextlib.redirect_stdout(out), pytest.raises(SystemExit) as end:
            cli.main(arguments)
        assert not end.value.code
        assert len(store.requests) > 100
        remote = json.loads(result.read_text())
        assert data(remote["release"]).equals(data(found["release"]))
        assert storage.exists("s3://corpus/out/latest")
        assert not list(Path.cwd().glob("s3:*"))
