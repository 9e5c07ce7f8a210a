"""The commands that run flows in this process, told to the Prefect server that is set, or to a throw-away one."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from datamask import cli, storage, surroundings
from datamask import config as settings
from datamask.checks import check_devices, check_footers, check_heads, check_packages
from datamask.corpus.belonging import outside_releases
from datamask.corpus.inputs import find_inputs
from datamask.corpus.sample import sample_corpus
from datamask.errors import ConfigError, InputError, causes, several
from datamask.interrupts import INTERRUPTS
from datamask.options import ConfigOption, JsonOption, SetOption, prints_aside
from datamask.release.publication import running
from datamask.release.release_folder import find_release
from datamask.run_numbers import warning_sentences
from datamask.silence import SILENCE
from flows.console import summary, write_record
from flows.prefect_settings import api_url, load_prefect
from flows.session import run_named, session
from flows.warm import Server

STARTING = "Prefect's server and "
STOPPING = "datamask: stopping, as soon as the shards that are being worked on are through; Ctrl-C again stops now"

InputOption = Annotated[
    list[str] | None, typer.Option("--input", "-i", help="A file, folder or glob; may be given several times.")
]
InputArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[INPUT]...", help="As --input, which a shell's own glob can follow.")
]
LogOption = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="Of progress, warnings and errors on stderr: text, or a line of JSON each."),
]
FailedOption = Annotated[
    bool, typer.Option("--allow-failed-shards", help="Publish without what failed; the manifest names it.")
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Texts like those the model shall be good at: a file, or a quoted pattern; may be given several times.",
    ),
]
TextColumnOption = Annotated[
    str | None, typer.Option("--text-column", help="The column that holds the text; meta.body reaches into a struct.")
]
IdColumnOption = Annotated[str | None, typer.Option("--id-column", help="The column that names a document.")]
PlainOption = Annotated[bool, typer.Option("--plain", help="Without Prefect: no server, threads of this process.")]
LossOption = Annotated[
    bool,
    typer.Option("--allow-loss", help="Publish though shards of the last release, or many rows, are gone."),
]


def curate(
    output: Annotated[str, typer.Option("--output", "-o", help="Folder or URL for work/ and releases/.")],
    inputs: InputArgument = None,
    input: InputOption = None,
    sample: Annotated[bool, typer.Option("--sample", help="Curate text gathered from this machine.")] = False,
    target: TargetOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    text_column: TextColumnOption = None,
    id_column: IdColumnOption = None,
    as_json: JsonOption = False,
    log_format: LogOption = "text",
    allow_failed_shards: FailedOption = False,
    plain: PlainOption = False,
) -> None:
    """Curate a corpus, end to end: read, embed, score, select, filter, publish, report."""
    begin(plain)
    output = storage.output_folder(output)
    outside_releases(output)
    given = [*(input or []), *(inputs or [])]
    columns = {"text": text_column, "id": id_column}
    chosen = _settings(config, set_, given, target, {"allow_failed_shards": allow_failed_shards}, columns)
    if sample == bool(chosen.corpus.input):
        raise ConfigError("give --input, or --sample for a corpus gathered from this machine, one of the two")
    if sample:
        folder = f"{output}/sample"
        written = sample_corpus(folder)
        print(f"{'sample':<10} {several(written.documents, 'document')} in {folder}", file=sys.stderr)
        chosen = settings.change_settings(chosen, corpus={"input": [folder]})

    files = find_inputs(chosen.corpus.input).files  # a path that matches nothing is refused at once
    check_packages(chosen, [file.format for file in files])
    check_devices(chosen)
    check_footers(files, chosen)
    if told := check_heads(files, chosen):
        print(f"datamask: warning: {told}", file=sys.stderr, flush=True)
    check_writable(output)

    flow = partial(run_named, "curate", plain, config=chosen, output=output)
    run_flow(flow, as_json, log_format == "json", plain)


def refresh(
    output: Annotated[str, typer.Option("--output", "-o", help="The output folder of an earlier run.")],
    input: InputOption = None,
    target: TargetOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    text_column: TextColumnOption = None,
    id_column: IdColumnOption = None,
    as_json: JsonOption = False,
    log_format: LogOption = "text",
    allow_failed_shards: FailedOption = False,
    allow_loss: LossOption = False,
    plain: PlainOption = False,
) -> None:
    """Bring the last release up to date with what is new in its input; nothing new, no release.

    Input and settings are the last release's, unless given.
    """
    begin(plain)
    output, last = storage.output_folder(output), None
    with suppress(InputError):  # none yet: everything is new
        last = settings.over_release(find_release(output).settings(), settings.load_config(config))
    columns = {"text": text_column, "id": id_column}
    allowed = {"allow_failed_shards": allow_failed_shards, "allow_loss": allow_loss}
    chosen = _settings(config, set_, input, target, allowed, columns, last)
    if not chosen.corpus.input:
        raise ConfigError(f"{output} has no release whose input could be read again; give --input")
    check_writable(output)
    flow = partial(run_named, "refresh", plain, config=chosen, output=output)
    run_flow(flow, as_json, log_format == "json", plain)


ListOption = Annotated[
    list[str] | None, typer.Option(help="A list (lines, CSV or JSON lines, packed too), or an entry; several times.")
]


def forget(
    output: Annotated[str, typer.Argument(help="The output folder of an earlier run.")],
    urls: ListOption = None,
    domains: ListOption = None,
    ids: ListOption = None,
    texts: ListOption = None,
    as_json: JsonOption = False,
    log_format: LogOption = "text",
    allow_loss: LossOption = False,
    plain: PlainOption = False,
) -> None:
    """Make a release without what lists name, nor its copies.

    What else the last release has stays, and what it spent is spent again. Nothing of it comes back into this folder.
    Without a list an interrupted command goes on.
    """
    begin(plain)
    find_release(output)
    check_writable(output)
    lists = {"urls": urls, "domains": domains, "ids": ids, "texts": texts}

    def say(found: dict[str, Any]) -> None:
        from datamask.forgetting import told

        for line in told(found["forgotten"], output):
            print(line)

    flow = partial(run_named, "forget", plain, output=output, allow_loss=allow_loss, **lists)
    run_flow(flow, as_json, log_format == "json", plain, say)


def _settings(
    path: Path | None,
    overrides: list[str] | None,
    input: list[str] | None,
    target: list[str] | None,
    allowed: Mapping[str, bool],
    columns: Mapping[str, str | None],
    base: dict[str, Any] | None = None,
) -> settings.Config:
    chosen = settings.load_config(path, overrides or [], base)
    named = {ours: theirs for ours, theirs in columns.items() if theirs}
    corpus = {"input": input, "columns": {**chosen.corpus.columns, **named} if named else None}
    return settings.change_settings(chosen, corpus=corpus, select={"target": target}, run=allowed)


def run_flow(
    flow: Callable[[], dict[str, Any]],
    as_json: bool,
    json_log: bool = False,
    plain: bool = False,
    say: Callable[[dict[str, Any]], None] = lambda found: None,
) -> None:
    """Runs a flow with its progress on stderr, and prints its numbers on stdout.

    :param plain: without Prefect. :param say: prints what else there is to say.
    """
    began = cli.began or time.monotonic()
    server = None if plain else begin_server()
    SILENCE.doing(f"is starting: {'' if plain else STARTING}the libraries of the first stages")
    from datamask.console import new_console

    if not plain:
        load_prefect()
    try:
        with INTERRUPTS.saying(STOPPING), session(server, True, json_log, plain), prints_aside(as_json):
            SILENCE.doing("is at work")
            found = flow()
    except BaseException as error:
        let_go(error)
        raise
    took = time.monotonic() - began
    if "seconds" in found:  # of the stages; the rest of the run is start-up
        found |= {"startup": round(max(0.0, took - found["seconds"]), 1), "seconds": round(took, 1)}
    if json_log and "release" in found:
        for sentence in warning_sentences(found):
            write_record("warning", sentence)
    if as_json:
        print(surroundings.escaped(found))
    elif "release" in found:
        summary(found, new_console())
        say(found)
    else:
        print(found["message"])


def check_writable(output: str) -> None:
    """Refuses a folder that cannot be written to before a server is waited for."""
    with running(output):
        pass


def begin(plain: bool) -> None:
    """Prepares this process. plain: without Prefect's server."""
    if plain:
        settle()
    else:
        begin_server()


def settle() -> None:
    """Prepares this process (encoding, folders, proxies) and prints what the user should know of it."""
    surroundings.settle()
    for line in surroundings.surroundings_notes():
        print(f"datamask: {line}", file=sys.stderr, flush=True)


def begin_server() -> Server | None:
    """Starts the throw-away server, if no other is set: first, since loading our modules takes less long."""
    settle()
    quiet_prefect()
    return Server.begin()


def let_go(error: BaseException) -> None:
    """Empties the frames of an error's trace and of those it came from.

    Prefect keeps the last state of a run, with its error, to the end of the process; the frames would keep open what
    the failed code had open (a DuckDB connection tells of it at exit, in 45 lines).
    """
    for cause in causes(error, handled=True):
        traceback.clear_frames(cause.__traceback__)


def quiet_prefect() -> None:
    """Prefect's console log off, for our own lines tell the same; its log goes to a server if one is set.

    Must be called before Prefect is imported.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    # Prefect's threads print a page for every line of log that a lost server does not take
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
    # requests are retried for 14 s, not a minute: a restarted server answers by then
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "3")
    logging.raiseExceptions = False
    if not api_url():
        os.environ.setdefault("PREFECT_LOGGING_TO_API_ENABLED", "false")
