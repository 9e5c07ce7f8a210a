"""A real server, pool and worker on loopback, with a password: deploy, run, refresh by cron and by event, stop."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from datamask.config import load_config
from tests.flows.conftest import SMALL, write_shard

ROOT = Path(__file__).parents[2]
AUTH = "admin:a secret"
pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(400)]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    port = free_port()
    values = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    values.pop("PYTHONSAFEPATH", None)  # a command that a test ran in this process has set it
    values |= {"PREFECT_HOME": str(tmp_path_factory.mktemp("home")), "PORT": str(port), "GPUS": "2"}
    values |= {"PREFECT_SERVER_API_AUTH_STRING": AUTH, "PREFECT_API_AUTH_STRING": AUTH}
    values |= {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    yield values
    server("down", values)


def server(action, environment):
    return subprocess.run(
        [sys.executable, "deployments/local_server.py", action],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def prefect(environment, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def ask(environment, path, body=None):
    url = f"{environment['PREFECT_API_URL']}/{path}"
    answer = httpx.post(url, json=body or {}, auth=tuple(AUTH.split(":")), timeout=120)
    answer.raise_for_status()
    return answer.json()


def await_run(environment, created_by, seconds=300):
    """The first completed run of `refresh` that was created by this, waiting for it."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        runs = ask(environment, "flow_runs/filter", {"flows": {"name": {"any_": ["refresh"]}}})
        for run in runs:
            if (run["created_by"] or {}).get("type") == created_by and run["state_type"] == "COMPLETED":
                return run
        time.sleep(1)
    raise AssertionError([(run["name"], run["created_by"], run["state"]) for run in runs])


def releases(out):
    return sorted(path.name[:4] for path in (out / "releases").iterdir())


@pytest.mark.slow
def test_deploy_run_refresh_and_stop(environment, tmp_path):
    for _ in range(2):  # the second time everything is there
        done = server("up", environment)
        assert done.returncode == 0, done.stderr
        assert environment["PREFECT_API_URL"].removesuffix("/api") in done.stdout
    assert httpx.post(f"{environment['PREFECT_API_URL']}/deployments/filter", json={}).status_code == 401

    deployments = {f"{entry['entrypoint']}": entry for entry in ask(environment, "deployments/filter")}
    nightly = deployments["flows/refresh.py:refresh"]
    assert nightly["schedules"][0]["slug"] == "nightly"
    assert not nightly["schedules"][0]["active"]  # until its input is named
    assert nightly["global_concurrency_limit"]["limit"] == 1
    assert nightly["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert len(deployments) == 3
    form = deployments["flows/curate.py:curate"]["parameter_openapi_schema"]
    assert form["definitions"]["Select"]["properties"]["lamb"]["anyOf"][0]["maximum"] == 1
    assert [entry["concurrency_limit"] for entry in ask(environment, "concurrency_limits/filter")] == [2]
    names = [entry["name"] for entry in ask(environment, "automations/filter")]
    assert names.count("datamask lost runs") == 1
    assert "datamask dump ready" in names

    for number in range(2):
        write_shard(tmp_path / "corpus", number)
    config = load_config(overrides=SMALL).model_dump(mode="json", exclude_unset=True)
    run = ["deployment", "run", "--watch"]
    place = ["-p", f"input={tmp_path / 'corpus'}", "-p", f"output={tmp_path / 'out'}"]
    done = prefect(environment, *run, "curate/curate", *place, "-p", "lamb=0.6", "-p", f"config={json.dumps(config)}")
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((tmp_path / "out" / "latest" / "manifest.json").read_text())
    assert manifest["settings"]["select"]["lamb"] == 0.6
    kinds = {entry["type"] for entry in ask(environment, "artifacts/filter")}
    assert kinds >= {"progress", "markdown", "table", "image"}

    done = prefect(environment, *run, "refresh/refresh-nightly", *place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "out" / "releases").iterdir())) == 1  # nothing new, no release

    done = prefect(environment, *run, "curate/curate", *place, "-p", "lamb=1.5")
    assert done.returncode
    assert "lamb" in done.stdout + done.stderr

    # the deployment file as it is, but for the place and the hour
    often = (ROOT / "deployments" / "prefect.yaml").read_text()
    for old, new in {
        'input: ""\n': f"input: {tmp_path / 'corpus'}\n",
        "active: false": "active: true",
        "enabled: false": "enabled: true",
        "output: out/curated\n": f"output: {tmp_path / 'out'}\n",
        '"0 3 * * *"': '"* * * * * */20"',
    }.items():
        assert old in often
        often = often.replace(old, new)
    (tmp_path / "often.yaml").write_text(often)
    write_shard(tmp_path / "corpus", 2)
    done = prefect(environment, "deploy", "--all", "--prefect-file", str(tmp_path / "often.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    await_run(environment, "SCHEDULE")
    assert releases(tmp_path / "out") == ["0001", "0002"]
    assert (
        prefect(environment, "deployment", "schedule", "clear", "--accept-yes", "refresh/refresh-nightly").returncode
        == 0
    )
    write_shard(tmp_path / "corpus", 3)
    event = ["datamask.dump.ready", "--resource-id", "datamask.dump.CC-MAIN-2026-01"]
    assert prefect(environment, "event", "emit", *event).returncode == 0
    await_run(environment, "AUTOMATION")
    assert releases(tmp_path / "out") == ["0001", "0002", "0003"]

    stopped = server("down", environment)
    assert "stopped the worker" in stopped.stdout
    assert "stopped the server" in stopped.stdout
    assert server("down", environment).stdout == ""
