"""`flows` and `tasks` are datamask's, beside whatever the user calls so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tasks.py").write_text("raise SystemExit('the user own tasks.py ran')\n")
    (tmp_path / "flows.py").write_text("raise SystemExit('the user own flows.py ran')\n")
    return tmp_path


@pytest.mark.parametrize("path", [None, "."])
def test_the_command_runs_beside_a_users_own_modules(folder, path):
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"} if path else {}
    done = run(folder, "-m", "datamask.cli", "curate", "--help", **environment)
    assert done.returncode == 0, done.stderr
    assert "--allow-failed-shards" in done.stdout


def test_what_shadows_them_is_named(folder):
    (folder / "tasks.py").write_text("mine = 1\n")
    code = "import sys; sys.path.insert(0, ''); import tasks; from datamask import cli; cli.main(['curate', '-o', 'x'])"
    done = run(folder, "-c", code)
    assert done.returncode == 2
    assert f"{folder / 'tasks.py'} is called tasks" in done.stderr and "rename it" in done.stderr


def test_from_python_too(folder):
    code = "import sys; sys.path.append(''); from flows.curate import curate; import tasks; print(tasks.__file__)"
    (folder / "flows.py").unlink()
    done = run(folder, "-c", code, PYTHONSAFEPATH="1", PYTHONPATH=str(ROOT))
    assert done.stdout.strip() == str(ROOT / "tasks" / "__init__.py"), done.stderr


def test_the_wheel_has_both(tmp_path):
    import tomllib

    from setuptools import find_packages

    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {"flows", "tasks", "datamask.release"} <= set(find_packages(str(ROOT), include=include))
