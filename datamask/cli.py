"""The `datamask` command: a table of subcommands, each imported only when it is called.

    datamask config > my.yaml
    datamask curate --input 'dumps/*.parquet' --output out --config my.yaml --set select.lamb=0.7
    datamask --help

A package's commands are plain functions with typer's annotations in its `commands.py`. The layer above registers its
own through the entry point group `datamask.commands`, so that nothing here imports it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.completion import completion_init
from typer.core import TyperCommand, TyperGroup

from datamask.errors import (
    LESS_MEMORY,
    ConfigError,
    DatamaskError,
    MachineError,
    ServerGoneError,
    disk_full,
    out_of_memory,
    printable,
)
from datamask.interrupts import CONTINUES, INTERRUPTS, STATUS
from datamask.layers import claim_packages, leave_working_directory
from datamask.options import SetOption
from datamask.records import JsonLines, as_line, asked_for, dumped, error_record
from datamask.silence import SILENCE
from datamask.surroundings import escaped, machines_fault, settle, settle_streams, shown

ENTRY_POINTS = "datamask.commands"
SHELLS = ("bash", "zsh", "fish")
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]  # click's, of the copy that typer brings
# who reads no further of these has had enough: `datamask config | head -3`
TELLING = {"config", "diff", "explain", "releases", "summary"}
COMPLETE = "_DATAMASK_COMPLETE"  # set by the shell's script when it asks
INTERRUPTED = f"datamask: interrupted; {CONTINUES}"
_ended: int | None = None  # the exit status, when there is nothing left to do
began = 0.0  # when the command was given, by time.monotonic(); 0: not by a command
server_gone = False  # whether it ended because Prefect's server went away

# name: where it is, and what it does; the help page is made from this alone, so that it appears at once
COMMANDS = {
    "curate": ("", "Curate a corpus, end to end: read, embed, score, select, filter, publish, report."),
    "refresh": ("", "Bring the last release up to date with what is new in its input; nothing new, no release."),
    "forget": ("flows.commands:forget", "Make a release without what lists name, nor its copies, for good."),
    "plan": ("datamask.costs:plan_run", "Time a sample of each stage here and say what the whole corpus will cost."),
    "config": ("datamask.cli:show_config", "Print the complete configuration as YAML, a comment per setting."),
    "completion": ("datamask.cli:completion", "Print the script that completes commands and options in a shell."),
    "sample": ("datamask.corpus.commands:sample", "Gather a sample corpus from the Python packages of this machine."),
    "select": ("datamask.selection.commands:select", "Select from one file of embedded, scored documents."),
    "fit-quality": ("datamask.quality.commands:fit_quality", "Fit a quality classifier on labelled documents."),
    "verify": ("datamask.release.commands:verify", "Check every file, row and sum of a release."),
    "releases": ("datamask.release.commands:releases", "List the releases of an output folder."),
    "status": ("datamask.release.commands:status", "Say what an output folder holds, and what of it can go."),
    "clean": ("datamask.release.commands:clean", "Say which files of work/ no release needs; with --yes remove them."),
    "rollback": ("datamask.release.commands:rollback", "Point latest at an earlier release."),
    "trends": ("datamask.release.commands:trends", "Show how the releases have changed, as a table and a page."),
    "diff": ("datamask.release.commands:diff", "Say what entered and what left between two releases."),
    "explain": ("datamask.release.commands:explain", "Say why a document is in a release, or is not."),
    "push": ("datamask.release.commands:push", "Upload a release to hf:// or s3://, resumably."),
    "tokens": ("datamask.release.commands:tokens", "Write a release as token files for a trainer."),
    "summary": ("datamask.release.commands:summary", "Say what a release is made of, as the AI Act asks."),
    "report": ("datamask.report.commands:report", "Build a release's report page again."),
    "sweep": ("datamask.study.commands:sweep", "Measure the balance of quality and diversity for λ from 0 to 1."),
    "ablate": ("datamask.study.commands:ablate", "Compare selections of one embedded corpus side by side."),
    "worth": ("datamask.study.commands:worth", "Say what a new dump or data set would add to a release."),
    "judge": ("datamask.study.commands:judge", "Judge whether a model learns more from the choice than from others."),
}


def show_config(
    config: Annotated[Path | None, typer.Option(help="YAML file whose settings replace the defaults.")] = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, without comments.")] = False,
) -> None:
    """Print the complete configuration as YAML, a comment per setting."""
    from datamask.config import load_config, to_yaml

    if as_json:
        print(escaped(load_config(config, set_ or []).model_dump(mode="json")))
        return
    print(to_yaml(load_config(config, set_ or [])), end="")


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")] = "bash",
) -> None:
    """Print the script that completes commands and options in a shell: `eval "$(datamask completion bash)"`."""
    from typer.completion import get_completion_script

    if shell not in SHELLS:
        raise ConfigError(f"completion {shell}: no such shell; valid are {', '.join(SHELLS)}")
    print(get_completion_script(prog_name="datamask", complete_var=COMPLETE, shell=shell))


def _locate(name: str) -> Callable[..., Any]:
    """The function behind a command.

    :raises DatamaskError: nothing that is installed provides it.
    """
    place, about = COMMANDS.get(name, ("", ""))
    SILENCE.doing(f"{name}: {about}" if about else name)
    if place:
        module, _, attribute = place.partition(":")
        if module.startswith("flows."):
            claim_packages()
        found: Callable[..., Any] = getattr(import_module(module), attribute)
        return found
    claim_packages()
    for entry in metadata.entry_points(group=ENTRY_POINTS, name=name):
        loaded: Callable[..., Any] = entry.load()
        return loaded
    raise DatamaskError(f"no installed package provides `datamask {name}`; install datamask again: pip install -e .")


class CommandTable(TyperGroup):
    """Subcommands by name, imported when one is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands: the product's own, then those of installed extensions."""
        others = {entry.name for entry in metadata.entry_points(group=ENTRY_POINTS)} - set(COMMANDS)
        return [*COMMANDS, *sorted(others)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by name with its help line, not yet imported; None if there is none."""
        names = self.list_commands(ctx)
        self.commands = dict.fromkeys(names)  # type: ignore[assignment]  # typer suggests the nearest of these
        return TyperCommand(cmd_name, short_help=COMMANDS.get(cmd_name, ("", ""))[1]) if cmd_name in names else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Imports the command that is called. Returns its name, the command and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, context_settings=HELP)(_locate(str(name)))
        if not gc.isenabled():  # see `datamask.__main__`
            gc.freeze()
            gc.enable()
        return name, typer.main.get_command(single), rest


HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
app = typer.Typer(
    cls=CommandTable, add_completion=False, no_args_is_help=True, rich_markup_mode=None, context_settings=HELP
)


def _version(value: bool) -> None:
    if value:
        print(f"datamask {metadata.version('datamask')}")
        raise typer.Exit


@app.callback(epilog="`datamask COMMAND --help` describes a command's options.")
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the Python traceback of an error.")] = False,
) -> None:
    """Curate pre-training text by mask learning: quality and diversity maximised together, with a certificate."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line; every failure ends in one message on stderr and a non-zero exit status."""
    global began, server_gone, _ended
    began, server_gone = time.monotonic(), False
    if arguments is None:
        atexit.register(_leave)  # the first to be registered is the last to be called
    given = list(sys.argv[1:] if arguments is None else arguments)
    settle_streams()
    leave_working_directory()
    as_json, json_log = asked_for(given)
    stderr, INTERRUPTS.written = sys.stderr, as_line if json_log else "{}\n".format
    if json_log:
        sys.stderr = JsonLines(stderr)
    if arguments is None:
        SILENCE.begin("is starting")
    debug = "--debug" in given  # valid at any place
    message, status, fields = _run([argument for argument in given if argument != "--debug"], debug, as_json)
    SILENCE.end()
    if message:  # told here, when the error's frames, and what they hold open, are gone
        told = dumped(error_record(message, status, fields)) if as_json else printable(message)
        print(told, file=sys.stderr, flush=True)
    sys.stderr, _ended = stderr, status
    if server_gone and arguments is None:
        _leave()  # at once: nobody is there who could be told what Prefect's threads still have to tell
    sys.exit(status)


def _leave() -> None:
    """Ends the process once all who asked to be told of its end have been: to take apart what is loaded takes a second,
    and libraries tell then of what they find left."""
    if _ended is None:
        return
    with contextlib.suppress(OSError, ValueError):  # a reader that has left, a stream that is closed
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(_ended)


def _check_names(arguments: Sequence[str]) -> None:
    """
    :raises MachineError: no file has a name that is given, for this machine's encoding lacks its signs.
    :raises ConfigError: the output folder's name is not UTF-8, as JSON and parquet's readers would need it to be.
    """
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8" and not all(map(str.isascii, arguments)):
        raise MachineError(f"this machine's encoding is {encoding}, which lacks signs that are given; set PYTHONUTF8=1")
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if shown(argument) != argument and (before in ("-o", "--output") or argument.startswith(("-o", "--output="))):
            raise ConfigError(f"the output folder's name {shown(argument)} is not UTF-8; choose another --output")


def _run(arguments: list[str], debug: bool, as_json: bool) -> tuple[str, int, dict[str, Any]]:
    """The command's last words, its exit status, and its error's fields.

    With `as_json` a wrong option, too, is told by its last words.
    """
    global server_gone
    INTERRUPTS.begin()
    try:
        try:
            settle()
            _check_names(arguments)
            if COMPLETE in os.environ:
                completion_init()
            ended = app(
                args=[shown(argument) for argument in arguments], prog_name="datamask", standalone_mode=not as_json
            )
            if as_json and isinstance(ended, int):  # as typer.Exit said
                return "", ended, {}
        except USAGE_ERROR as error:
            return f"datamask: {error.format_message()}", error.exit_code, {}  # type: ignore[attr-defined]
        except typer.Abort:
            return INTERRUPTED, STATUS, {}
        except SystemExit as end:
            if end.code == STATUS:  # what typer makes of Ctrl-C
                return INTERRUPTED, STATUS, {}
            if isinstance(end.__context__, BrokenPipeError):  # what rich makes of it
                raise end.__context__ from None
            return "", end.code if isinstance(end.code, int) else int(bool(end.code)), {}
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "", 0 if TELLING & {*arguments[:1]} else 141, {}
    except KeyboardInterrupt:
        return INTERRUPTED, STATUS, {}
    except Exception as error:
        if INTERRUPTS.count and not debug:  # what else was torn by it is no news
            return INTERRUPTED, STATUS, {}
        if debug:
            traceback.print_exc()
        if isinstance(error, DatamaskError):
            server_gone = isinstance(error, ServerGoneError)
            return f"datamask: {error}", error.exit_code, error.fields
        if told := disk_full(error):
            return f"datamask: {told}", 5, {}
        if isinstance(error, OSError) and error.strerror:
            return f"datamask: {error.strerror}{f': {error.filename}' if error.filename else ''}", 5, {}
        if out_of_memory(error):
            return f"datamask: {LESS_MEMORY} ({_one_line(error)})", 5, {}
        if here := machines_fault(error):
            return f"datamask: {here}; full trace: {_keep_trace()}", here.exit_code, {}
        return f"datamask: a defect in datamask, {_one_line(error)}; full trace: {_keep_trace()}", 70, {}
    return "", 0, {}


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _keep_trace() -> str:
    try:
        with tempfile.NamedTemporaryFile("w", prefix="datamask-", suffix=".log", delete=False, encoding="utf-8") as log:
            traceback.print_exc(file=log)
    except OSError as error:
        return f"with --debug, for it cannot be kept ({_one_line(error)})"
    return log.name


if __name__ == "__main__":
    main()
