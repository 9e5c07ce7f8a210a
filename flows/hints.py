"""What a message tells its reader to type, in the words of where the run was started: a shell, or a deployment.

Messages are written for the command line. Whoever started a deployment cannot type `--allow-loss`, so a flow run of a
deployment says `-p allow_loss=true`, and at its end the whole command.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefect.runtime import deployment, flow_run
from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from datamask.config import lay_settings
from datamask.errors import ConfigError, DatamaskError, one_line

PARAMETERS = {  # options of the command line that are parameters of the flows
    "--allow-failed-shards": {"allow_failed_shards": True},
    "--allow-loss": {"allow_loss": True},
}
PHRASES = {
    "run the same command again": "retry the run",
    "run this again": "retry the run",
    "the same command continues from here": "a retry of the run continues from here",
    "choose another --output": "choose another output",
    "unless --input is given": "unless input is given",
    "give the settings again: --config FILE": "give the settings again: -p 'config={…}'",
    "--input PATH (datamask sample writes a corpus to try)": "-p input='dumps/*.parquet'",
    "--text-column NAME (--set corpus.columns.text=NAME)": "--set corpus.columns.text=NAME",
}
_SET = re.compile(r"--set ('[^']+'|[\w.]+=[^\s,;)]+)")


def split_paths(text: str, parameter: str) -> list[str]:
    """The paths in a deployment's parameter, which blanks separate; quotes hold together one that has blanks.

    :raises ConfigError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(
            f"{parameter} = {text!r}: {one_line(error).lower()}; blanks separate paths, so put one with a blank, a "
            f"quote or a backslash in quotes: -p {parameter}={shlex.quote(shlex.quote('it is/*.parquet'))}",
            setting=parameter,
        ) from error


@contextmanager
def for_this_reader() -> Iterator[None]:
    """Errors that leave the block say what can be typed where this flow run was started."""
    try:
        yield
    except DatamaskError as error:
        if deployment.id and len(error.args) == 1 and isinstance(error.args[0], str):
            started_as = f"{flow_run.get_flow_name()}/{deployment.get_name()}"
            error.args = (for_a_deployment(error.args[0], started_as, _given()),)
        raise


def for_a_deployment(message: str, name: str, given: Mapping[str, Any]) -> str:
    """A message for whoever started the deployment `name` with the parameters `given`."""
    asked: dict[str, Any] = {}
    for option, parameter in PARAMETERS.items():
        if option in message:
            message = message.replace(option, _typed(parameter))
            asked |= parameter
    for phrase, other in PHRASES.items():
        message = message.replace(phrase, other)

    def as_config(found: re.Match[str]) -> str:
        parameter = _as_config(found[1].strip("'"))
        if parameter is None:
            return found[0]
        if "…" not in found[0] and "NAME" not in found[0]:
            asked["config"] = lay_settings(asked.get("config", given.get("config")) or {}, parameter)
        return _typed({"config": parameter})

    message = _SET.sub(as_config, message)
    if not asked:
        return message
    kept = {key: value for key, value in given.items() if value not in (None, "", {}, False)}
    return f"{message}\nType: prefect deployment run {shlex.quote(name)} {_typed({**kept, **asked})}"


def _given() -> dict[str, Any]:
    """This run's parameters as JSON; of the configuration what was set."""
    return {
        name: value.model_dump(mode="json", exclude_unset=True) if isinstance(value, BaseModel) else value
        for name, value in flow_run.get_parameters().items()
    }


def _typed(parameters: Mapping[str, Any]) -> str:
    """Parameters as `prefect deployment run` takes them."""
    return " ".join(f"-p {shlex.quote(f'{name}={_value(value)}')}" for name, value in parameters.items())


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_config(setting: str) -> dict[str, Any] | None:
    """What follows `--set`, as a partial configuration; None where it is none."""
    name, _, text = setting.partition("=")
    try:
        value: Any = YAML(typ="safe").load(text)
    except YAMLError:
        return None
    for part in reversed(name.split(".")):
        value = {part: value}
    return value if isinstance(value, dict) else None
