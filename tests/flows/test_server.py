"""What the terminal says where the Prefect server is not there, refuses, or is something else."""

import errno
import http.server
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from datamask.errors import InputError, StorageError
from flows.server import trouble
from flows.warm import Server


def answered(status):
    request = httpx.Request("POST", "http://here/api/flows/")
    return httpx.HTTPStatusError(f"status {status}", request=request, response=httpx.Response(status))


def caused(error, message="the flow failed"):
    outer = ValueError(message)
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx.ConnectError("All connection attempts failed"), "does not answer any more (All connection"),
        (httpx.ReadTimeout(""), "does not answer any more (ReadTimeout)"),
        (caused(httpx.ConnectError("refused")), "does not answer any more (refused)"),
        (ExceptionGroup("all", [httpx.ConnectError("one")]), "does not answer any more (one)"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "does not answer any more"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 4200)"), "does not answer any more"),
        (RuntimeError("Failed to reach API at http://here/api/"), "does not answer; make server starts one"),
        (caused(answered(500), "Failed to reach API at http://here/api/"), "failed (status 500)"),
        (answered(401), "refused (401); set PREFECT_API_AUTH_STRING"),
        (answered(404), "is of another version, or is none (status 404)"),
        (answered(503), "failed (status 503)"),
    ],
)  # fmt: skip
def test_trouble_with_the_server_is_told_as_such(error, said, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://here/api")
    told = trouble(error)
    assert str(told).startswith(f"the Prefect server at http://here/api {said}") and told.exit_code == 5


def test_other_errors_are_not_the_servers(monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for error in (ZeroDivisionError(), InputError("no text"), FileNotFoundError(2, "gone"), OSError("no number")):
        assert trouble(error) is None
    assert str(trouble(httpx.ConnectError("x"))).startswith("Prefect's throw-away server does not answer any more")


class Other(http.server.BaseHTTPRequestHandler):
    """Something else that listens at the address."""

    def do_GET(self):
        self.send_error(404)

    do_POST = do_GET

    def log_message(self, *arguments):
        pass


@pytest.mark.slow
def test_a_throw_away_server_answers_until_it_is_ended_and_keeps_its_records(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    server = Server()
    try:
        server.wait()
        assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
        assert httpx.post(f"{server.url}/flows/", json={"name": "kept"}, timeout=60).is_success
        assert os.getpgid(server.process.pid) != os.getpgid(0)  # Ctrl-C does not reach it
    finally:
        server.end()
    assert server.process.returncode is not None
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        assert database.execute("select name from flow").fetchall() == [("kept",)]


@pytest.mark.slow
def test_a_throw_away_server_ends_with_a_run_that_is_killed(tmp_path):
    script = "from flows.warm import Server; s = Server(); s.wait(); print(s.process.pid, flush=True); input()"
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**environment, "PREFECT_HOME": str(tmp_path)},
    )  # fmt: skip
    server = psutil.Process(int(run.stdout.readline()))
    run.kill()
    run.wait()
    gone, left = psutil.wait_procs([server], timeout=60)
    assert not left


@pytest.mark.slow
def test_a_throw_away_server_that_does_not_start_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    (tmp_path / "prefect.db").write_text("another program's file\n" * 100)
    with pytest.raises(StorageError, match=r"throw-away server did not start: it ended with status \d.*; is another"):
        Server().wait()


def test_a_home_of_prefect_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="PREFECT_HOME=.*/file cannot be written; set it to a folder that can"):
        Server()


def test_no_server_is_begun_where_one_is_set(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://here/api")
    assert Server.begin() is None


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_run_whose_server_is_not_there_ends_in_one_line(tmp_path, there):
    (tmp_path / "x.jsonl").write_text('{"text": "a document"}\n')
    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        url = f"http://127.0.0.1:{other.server_port}/api"
        if there:
            threading.Thread(target=other.serve_forever, daemon=True).start()
        else:
            other.server_close()
        command = [sys.executable, "-m", "datamask.cli", "curate", "--input", "x.jsonl", "--output", "out"]
        environment = os.environ | {"PREFECT_API_URL": url, "PYTHONPATH": str(Path.cwd())}
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        if there:
            other.shutdown()
    assert ended.returncode == 5, ended.stderr
    *meanwhile, told = ended.stderr.splitlines()
    assert told.startswith(f"datamask: the Prefect server at {url} ")
    assert all(line.startswith("datamask ") and " … " in line for line in meanwhile)  # what it does while it is silent


ENDS = """
import sys, threading
from datamask import cli
from datamask.errors import ServerGoneError
def gone(*_, **__):
    raise ServerGoneError("the server does not answer any more")
cli.app = gone
threading._register_atexit(threading.Event().wait)  # Prefect's client, which waits for its server
sys.argv = ["datamask", "curate"]
cli.main()
"""


def test_a_run_whose_server_went_away_does_not_wait_for_it():
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (5, "datamask: the server does not answer any more\n")
