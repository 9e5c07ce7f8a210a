"""What stands around a flow that is run in this process, by the command or from Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from datamask.progress import BOARD, Board
from flows.console import Display
from flows.server import trouble
from flows.warm import Server, warmed_up

PLAIN = {"curate": "datamask.run", "refresh": "datamask.refreshing", "forget": "datamask.forgetting"}


def run_named(name: str, plain: bool = False, **parameters: Any) -> dict[str, Any]:
    """Runs one of datamask's flows, which is loaded only now, and returns its numbers.

    :param plain: the function of the same name and parameters that needs no Prefect.
    """
    found = getattr(import_module(PLAIN[name] if plain else f"flows.{name}"), name)(**parameters)
    numbers: dict[str, Any] = found.run if plain else found
    return numbers


@contextmanager
def session(server: Server | None, shown: bool, json_log: bool = False, plain: bool = False) -> Iterator[None]:
    """A board for the progress of the flow that runs within, and the throw-away server, where there is one.

    :param plain: what runs is no flow: nothing of Prefect is loaded.
    :param shown: whether the board is shown, on stderr or below a notebook's cell. :param json_log: as lines of JSON.
    :raises DatamaskError: in place of what a lost server or cluster makes Prefect raise; see `flows.server.trouble`.
    """
    board = Board()
    token = BOARD.set(board)
    try:
        with ExitStack() as stack:
            if shown:
                stack.enter_context(Display(board, json_log))
            if not plain:
                stack.enter_context(warmed_up(server))
            yield
    except BaseException as error:
        if told := trouble(error):
            raise told from error
        raise
    finally:
        BOARD.reset(token)
