"""The packages above this one, `flows` and `tasks`: found where datamask lies, whatever else is called so.

Their names are common ones. A user's own tasks.py in the working directory, or another distribution's package, would be
imported in their place; so they are loaded from beside this package, and what shadows them already is named.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from datamask.errors import ConfigError

PACKAGES = ("tasks", "flows")  # in the order they import one another


def claim_packages() -> None:
    """From now on `import flows` and `import tasks` give datamask's own, in this process and in those it starts.

    :raises ConfigError: another module of that name is imported already; names its file.
    """
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        own = home / name / "__init__.py"
        if not own.exists():
            raise ConfigError(f"datamask is not whole: {own} is missing; install it again")
        there = sys.modules.get(name)
        if there is not None:
            file = getattr(there, "__file__", None)
            if file is None or Path(file).resolve() != own:
                raise ConfigError(
                    f"{file or there} is called {name}, as a package of datamask is, and was imported before it: "
                    "rename it, or run `datamask …` as a command of its own"
                )
            continue
        spec = importlib.util.spec_from_file_location(name, own, submodule_search_locations=[str(own.parent)])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def from_layer_above(module: str, name: str) -> Any:
    """What a module of the packages above has under a name; imported on first use, never by the packages here.

    :raises ConfigError: see `claim_packages`.
    """
    claim_packages()
    return getattr(importlib.import_module(module), name)


def leave_working_directory() -> None:
    """Takes the working directory out of the places that modules are imported from, here and in processes that are
    started: `python -m datamask.cli` puts it first, and what lies there is the user's, not ours.

    A directory that holds datamask itself stays.
    """
    home = Path(__file__).resolve().parents[1]
    try:
        here = Path.cwd().resolve()
    except FileNotFoundError:  # it was removed; what needs it says so
        here = None
    if here == home:
        return
    sys.path[:] = [place for place in sys.path if place and (here is None or Path(place).resolve() != here)]
    os.environ["PYTHONSAFEPATH"] = "1"
