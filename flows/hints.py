"""What a flow run of a deployment is told to type: messages are written for the command line.

Whoever started a deployment cannot type `--allow-loss`; the error's last line says what that is there.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.runtime import deployment

from datamask.errors import ConfigError, DatamaskError, one_line

HERE = (
    "Of this deployment an option --like-this is the parameter -p like_this=…, a switch -p like_this=true, --set "
    'section.name=value -p \'config={"section": {"name": value}}\', and the same command again is a retry of the run.'
)


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
    """Errors of a deployment's flow run that leave the block and name an option say what it is there."""
    try:
        yield
    except DatamaskError as error:
        if deployment.id and len(error.args) == 1 and isinstance(error.args[0], str) and "--" in error.args[0]:
            error.args = (f"{error.args[0]}\n{HERE}",)
        raise
