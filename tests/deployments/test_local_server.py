"""`make server` waits for a server that is slow to start, and says what to do about one that never answers."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

FILE = Path(__file__).parents[2] / "deployments" / "local_server.py"


@pytest.fixture
def local_server(tmp_path, monkeypatch):
    """The script as a module, beside a server that lives, and a clock that sleeping alone moves."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr("os.environ", {"PREFECT_HOME": str(tmp_path)})  # which it changes as it is loaded
    monkeypatch.setattr(sys, "argv", [str(FILE), "up"])
    spec = importlib.util.spec_from_file_location("local_server", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "_running", lambda name: name == "server")
    return module


def test_a_server_that_takes_two_minutes_is_waited_for(local_server, monkeypatch):
    monkeypatch.setattr(local_server, "_healthy", lambda: local_server.time.now > 120)
    local_server._await_server()


def test_a_server_that_never_answers_is_told_with_what_to_do(local_server, monkeypatch):
    monkeypatch.setattr(local_server, "_healthy", lambda: False)
    with pytest.raises(SystemExit, match="did not answer at .* make server again waits for it"):
        local_server._await_server()


def test_a_server_that_ended_is_told_at_once(local_server, monkeypatch):
    monkeypatch.setattr(local_server, "_healthy", lambda: False)
    monkeypatch.setattr(local_server, "_running", lambda name: None)
    with pytest.raises(SystemExit, match=r"did not start \(is port 4200 taken"):
        local_server._await_server()


def test_a_second_server_is_not_begun_beside_one_that_is_starting(local_server, monkeypatch):
    begun = []
    monkeypatch.setattr(local_server, "_healthy", lambda: local_server.time.now > 120)
    monkeypatch.setattr(local_server, "_start", lambda name, *arguments: begun.append(name))
    monkeypatch.setitem(sys.modules, "registration", SimpleNamespace(register=lambda: None))
    local_server.up()
    assert begun == ["worker"]
