"""deployments/prefect.yaml: what `make server` puts on a server does nothing on its own until told with what."""

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML

FILE = Path(__file__).parents[2] / "deployments" / "prefect.yaml"


def test_the_nightly_refresh_is_paused_until_its_input_is_named():
    deployments = YAML(typ="safe").load(FILE.read_text())["deployments"]
    [nightly] = [one for one in deployments if one["name"] == "refresh-nightly"]
    assert nightly["parameters"]["input"] == ""
    assert [schedule["active"] for schedule in nightly["schedules"]] == [False]
    assert [trigger["enabled"] for trigger in nightly["triggers"]] == [False]
    assert not any(one.get("schedules") for one in deployments if one is not nightly)


@pytest.mark.slow
def test_a_refresh_without_input_and_release_says_what_to_set(prefect_server, tmp_path):
    from datamask.errors import ConfigError
    from flows.refresh import refresh

    with pytest.raises(ConfigError, match="for the deployment refresh/refresh-nightly its parameter `input`"):
        refresh(output=str(tmp_path / "out"))


@pytest.mark.slow
def test_the_first_deployment_says_where_workers_find_the_repository(prefect_server, tmp_path):
    from prefect.settings import get_current_settings
    from prefect.variables import Variable

    [build] = YAML(typ="safe").load(FILE.read_text())["build"]
    script = build["prefect.deployments.steps.run_shell_script"]["script"]
    own = str(Path(sys.executable).parent)  # where the command `prefect` lies
    environment = {**get_current_settings().to_environment_variables(exclude_unset=True), **os.environ}
    environment |= {"PATH": f"{own}:{os.environ['PATH']}"}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        subprocess.run(script, shell=True, cwd=tmp_path / name, env=environment, check=True)
        assert Variable.get("datamask_home") == str(tmp_path / "first")
    Variable.unset("datamask_home")


@pytest.fixture
def registration(tmp_path, monkeypatch):
    """The script as a module, with a prefect.yaml of its own and a server that keeps what it has."""
    place = FILE.with_name("registration.py")
    spec = importlib.util.spec_from_file_location("registration", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "registration", module)
    spec.loader.exec_module(module)
    (tmp_path / "deployments").mkdir()
    (tmp_path / module.FILE).write_text(FILE.read_text())
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "_create", lambda: None)
    monkeypatch.setattr(module, "_prefect", lambda *arguments: None)
    monkeypatch.setattr(module, "Variable", SimpleNamespace(get=lambda *_, **__: None, set=lambda *_, **__: None))
    return module


def test_an_active_schedule_that_the_file_no_longer_has_is_named(registration, monkeypatch, capsys):
    names = {
        "schedule nightly of refresh-nightly": True,
        "schedule early of refresh-nightly": True,
        "schedule x of y": 0,
    }
    settings = {name: registration.Setting(bool(on), None) for name, on in names.items()}
    monkeypatch.setattr(registration, "_settings", lambda: settings)
    registration.register()
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("schedule early of refresh-nightly is active, and deployments/prefect.yaml has none")


NIGHTLY = "schedule nightly of refresh-nightly"
EDITED = {NIGHTLY: True, f"time of {NIGHTLY}": {"cron": "15 2 * * *"}, "parameters of deployment curate": {"lamb": 0.9}}
FILES = {NIGHTLY: False, f"time of {NIGHTLY}": {"cron": "0 3 * * *"}, "parameters of deployment curate": {"lamb": 0.6}}
NEWER = {NIGHTLY: False, f"time of {NIGHTLY}": {"cron": "0 5 * * *"}, "parameters of deployment curate": {"lamb": 0.7}}


@pytest.mark.parametrize(("deployed", "kept"), [(FILES, EDITED), (NEWER, {**NEWER, NIGHTLY: True})])
def test_what_was_changed_in_the_ui_stays_unless_the_file_changed(registration, monkeypatch, capsys, deployed, kept):
    server, variable = dict(FILES), {}

    def settings():
        async def put(name, value):
            server[name] = value

        return {name: registration.Setting(value, partial(put, name)) for name, value in server.items()}

    monkeypatch.setattr(registration, "_settings", settings)
    monkeypatch.setattr(registration.Variable, "get", lambda name, default: variable.get(name, default))
    monkeypatch.setattr(registration.Variable, "set", lambda name, value, overwrite: variable.update({name: value}))
    registration.register()
    server.update(EDITED)
    monkeypatch.setattr(registration, "_prefect", lambda *arguments: server.update(deployed))
    registration.register()
    assert server == kept
    assert f"{NIGHTLY}: active, as set in the UI" in capsys.readouterr().out
    registration.register()
    assert server == kept


def test_a_file_that_is_no_yaml_is_told_by_its_line(registration):
    path = registration.ROOT / registration.FILE
    path.write_text(path.read_text().replace("    schedules:", "   schedules:"))
    with pytest.raises(SystemExit, match=r"prefect\.yaml is not valid YAML:\n[^$]*line \d+, column \d+"):
        registration.register()
