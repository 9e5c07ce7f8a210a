"""What Prefect's settings say before Prefect is loaded, and where a wrong one stands.

Prefect reads, in this order: the environment, .env, prefect.toml and pyproject.toml of the working directory, and the
profile. Someone else's project may lie there: what is wrong in its files is said with the file's name.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from datamask.errors import ConfigError, DatamaskError, one_line
from datamask.surroundings import machines_fault

URL = "PREFECT_API_URL"
PREFIX = "PREFECT_"


def api_url() -> tuple[str, str] | None:
    """The address of the server that is set, and the place that sets it; None: no server is.

    :raises ConfigError: a file that Prefect reads is broken.
    """
    for place, values in _sources():
        if values.get(URL):
            return str(values[URL]), place
    return None


def load_prefect() -> None:
    """Loads Prefect, which reads its settings.

    :raises ConfigError: they cannot be used; says which, and in which file.
    :raises MachineError: this machine stands in the way.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")
            import_module("prefect.context")
    except DatamaskError:
        raise
    except Exception as error:  # pydantic's, and whatever else reading them raises
        if told := machines_fault(error):
            raise told from error
        raise ConfigError(f"Prefect cannot be loaded with the settings it finds here: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    """Which setting is wrong and where it stands; of settings that nobody knows, the error's own words."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        text = one_line(error)
        known = {name: place for place, values in _sources() for name in values}
        found = [f"{name} in {place}" for name, place in known.items() if _field(name, text)]
        return f"{'; '.join(found)}: {text}" if found else text
    said = []
    for wrong in error.errors():
        if wrong["type"] == "default_factory_not_called":  # of a setting that comes of a wrong one
            continue
        last = str(wrong["loc"][-1]).upper() if wrong["loc"] else ""
        name, place = next(
            (
                (name, place)
                for place, values in _sources()
                for name, value in values.items()
                if name.endswith(last.removeprefix(PREFIX)) and str(value) == str(wrong["input"])
            ),
            (last, "the environment, .env, prefect.toml, pyproject.toml or the profile"),
        )
        said.append(f"{name} = {str(wrong['input'])[:80]!r} in {place}: {wrong['msg']}")
    return "; ".join(said)


def _field(name: str, text: str) -> bool:
    """Whether an error's text names the field that a variable sets."""
    quoted = text.partition('field "')[2].partition('"')[0]
    return bool(quoted) and name.endswith(quoted.upper())


# ---------------------------------------------------------------- places


def _sources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each place with what it sets, by the names of environment variables; the first that sets a name wins."""
    yield "the environment", {name.upper(): value for name, value in os.environ.items()}
    yield ".env", _env_file()
    for file, table in (("prefect.toml", ()), ("pyproject.toml", ("tool", "prefect"))):
        values = _toml(Path(file))
        for name in table:
            values = values.get(name, {}) if isinstance(values, dict) else {}
        yield file, dict(_flat(values, PREFIX.rstrip("_"))) if isinstance(values, dict) else {}
    yield from _profile()


def _env_file() -> dict[str, Any]:
    if not Path(".env").is_file():
        return {}
    from dotenv import dotenv_values

    with _naming(".env"):
        found = dotenv_values(".env", encoding="utf-8")
    return {name.upper(): value for name, value in found.items() if value is not None}


def _toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with _naming(str(path)):
        return tomllib.loads(path.read_text(encoding="utf-8"))
    return {}


def _profile() -> Iterator[tuple[str, dict[str, Any]]]:
    """The active profile; a broken file is Prefect's to tell of, which goes on without."""
    home = os.environ.get("PREFECT_HOME") or "~/.prefect"
    path = Path(os.environ.get("PREFECT_PROFILES_PATH") or f"{home}/profiles.toml").expanduser()
    with contextlib.suppress(OSError, ValueError):
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        active = os.environ.get("PREFECT_PROFILE") or read.get("active")
        if values := read.get("profiles", {}).get(active):
            yield f"profile {active} of {path}", dict(values)


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        long = f"{prefix}_{name}".upper()
        if isinstance(value, dict):
            yield from _flat(value, long)
        yield long, value


@contextlib.contextmanager
def _naming(file: str) -> Iterator[None]:
    try:
        yield
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{Path(file).absolute()}, which Prefect reads settings from, cannot be read ({one_line(error)}); "
            "mend it, or run from another folder"
        ) from error
    except OSError as error:
        raise ConfigError(f"{Path(file).absolute()}, which Prefect reads settings from: {error.strerror}") from error
