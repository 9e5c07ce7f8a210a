"""`flows` and `tasks` are datamask's, beside whatever the user calls so; who imports whom."""

import ast
import graphlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from datamask.libraries import FIRST, REST

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


def test_the_wheel_has_both(tmp_path):
    import tomllib

    from setuptools import find_packages

    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {"flows", "tasks", "datamask.release"} <= set(find_packages(str(ROOT), include=include))


RARE = ("sklearn", "scipy.stats", "pandas", "altair")
LOADED = f"""
import sys
from importlib import import_module
sys.path.append("")
for name in sys.argv[1:]:
    import_module(name)
    print(name, *{{"numba", "torch", "prefect", "pyarrow", "datamask.study", *{RARE}}} & {{*sys.modules}})
import tasks
print(tasks.__file__)
"""
PATHS = {  # what must not be loaded when these are, the light ones first
    "datamask": ("numba", "torch", "prefect", "pyarrow", "datamask.study"),
    "datamask.cli": ("numba", "torch", "prefect", "datamask.study"),
    "datamask.checks": ("numba", "torch", "prefect", "sklearn", "datamask.study"),
    "datamask.costs": ("numba", "torch", "prefect", "sklearn", "datamask.study"),
    "flows.commands": ("numba", "torch", "prefect", "sklearn", "datamask.study"),
    "datamask.release.commands": ("torch", "prefect", "sklearn", "datamask.study"),
    "datamask.run": ("prefect", "datamask.study"),
}
WHOLE = ("flows.curate", *FIRST, *REST, "datamask.report.report")  # a run that finds everything done


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Of a process that imports one after the other, beside a user's own tasks.py: what is loaded after each."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "tasks.py").write_text("raise SystemExit('the user own tasks.py ran')\n")
    done = run(folder, "-c", LOADED, *PATHS, *WHOLE, PYTHONSAFEPATH="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    *lines, home = done.stdout.splitlines()
    return {name: {*found} for name, *found in map(str.split, reversed(lines))}, home  # where it is named first


def test_from_python_too(loaded):
    assert loaded[1] == str(ROOT / "tasks" / "__init__.py")


@pytest.mark.parametrize("module", PATHS)
def test_what_a_light_path_imports_loads_nothing_heavy(loaded, module):
    assert not loaded[0][module] & {*PATHS[module]}


def test_a_run_that_finds_everything_done_loads_nothing_that_only_a_new_report_needs(loaded):
    assert "torch" in loaded[0][WHOLE[-1]] and not loaded[0][WHOLE[-1]] & {*RARE}


# ---------------------------------------------------------------- what modules import, and how functions are called

LATE = 60  # imports inside functions, at most: of what is heavy, where a light path must not wait for it
WIDE = 8  # parameters, at most, of all but commands
COMMANDS = {"curate", "refresh", "select", "judge", "explain", "fit_quality", "forget", "tokens"}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module's syntax tree by its dotted name."""
    paths = [path for top in ("datamask", "flows", "tasks") for path in sorted((ROOT / top).rglob("*.py"))]
    return {dotted(path): ast.parse(path.read_text("utf8")) for path in paths}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(known, module, node, late=False):
    """(module, whether inside a function) of every import of ours that is not for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        names = [alias.name for alias in child.names] if isinstance(child, ast.Import | ast.ImportFrom) else []
        if isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{name}" if f"{child.module}.{name}" in known else child.module for name in names]
        if ours := {name for name in names if name in known and name != module}:
            yield ours, late
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # expressions import nothing
            yield from imported(known, module, child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_module_imports_another_in_a_circle_and_few_import_late():
    known = modules()
    found = {name: list(imported(known, name, tree)) for name, tree in known.items()}
    graph = {name: set().union(*(ours for ours, _ in each)) if each else set() for name, each in found.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle
    late = sum(late for each in found.values() for _, late in each)
    assert late < LATE, f"{late} imports inside functions; let the module's top import what is light"


def test_no_function_takes_more_than_eight_parameters():
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in COMMANDS:
                count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
                assert count <= WIDE, f"{name}.{node.name} takes {count}: group them in a named tuple or a dataclass"
