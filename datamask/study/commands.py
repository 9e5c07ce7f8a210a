"""`datamask judge`, `worth`, `sweep` and `ablate`."""

from __future__ import annotations

import codecs
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from ruamel.yaml import YAML, YAMLError

from datamask.config import Select, load_config, validate
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError
from datamask.options import JsonOption, SetOption, prints_aside
from datamask.stages import check_place
from datamask.storage import expand_patterns, join, writable, write_content
from datamask.study.targets import CONTROLS, RANDOM, read_targets
from datamask.surroundings import escaped

PlaceArgument = Annotated[str, typer.Argument(help="An output folder, its work/, or one of its releases.")]


def judge(
    corpus: Annotated[str, typer.Argument(help="An output folder of `datamask curate`, or its work/.")],
    targets: Annotated[
        list[str] | None,
        typer.Option(help="Texts from outside the pool: JSON lines (question, answer) or plain text; patterns too."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="One more choice: NAME=setting=value,…, e.g. 'words=algorithm=coverage,lamb=0.7'."),
    ] = None,
    judges: Annotated[
        list[str] | None, typer.Option("--judge", help="coder, n-grams, network; several times. [coder, n-grams]")
    ] = None,
    pools: Annotated[int, typer.Option(min=1, help="Resampled pools.")] = 5,
    documents: Annotated[int, typer.Option(min=100, help="Documents of a pool, at most.")] = 10_000,
    draws: Annotated[int, typer.Option(help="Random choices of each pool, at least 8.")] = 8,
    bytes_: Annotated[
        int | None, typer.Option("--bytes", min=1000, help="Of every choice; by default the smallest choice's.")
    ] = None,
    order: Annotated[int, typer.Option(min=2, max=64, help="Bytes of context of the coder.")] = 6,
    size: Annotated[str, typer.Option(help="Of the network: tiny, small (two cores), large (a GPU).")] = "small",
    network_pools: Annotated[int | None, typer.Option(min=1, help="Pools the network reads; all by default.")] = None,
    device: Annotated[str, typer.Option(help="Of the network: auto, cpu, cuda.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of pools, draws, items and the network.")] = 0,
    set_: SetOption = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Folder for judge.html, .json and .md.", callback=outside_releases)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge whether a model learns more from the choice than from a random one, top-quality and SemDeDup."""
    if not targets:
        raise ConfigError(
            "no targets; name texts from outside the pool: --targets 'tasks/*.jsonl.gz' --targets notes.txt"
        )
    work = check_place(corpus, set_ or [], targets)
    folder = writable(to or join(work, "judge"))
    from datamask.report import terminal
    from datamask.study import run as judged
    from datamask.study import verdict

    settings = judged.Settings(
        pools=pools,
        documents=documents,
        draws=draws,
        bytes=bytes_,
        judges=tuple(dict.fromkeys(judges or judged.CHEAP)),
        order=order,
        size=size,
        network_pools=network_pools,
        device=device,
        seed=seed,
        arms=read_arms(arm or []),
    )
    with terminal.progress_line() as line, prints_aside(as_json):
        found = judged.run_study(corpus, targets, settings, set_ or [], line)
    paths = verdict.write_judgement(folder, found)
    if as_json:
        print(escaped({**verdict.as_json(found), "paths": paths}))
        return
    verdict.show_finding(found, paths)


def worth(
    new: Annotated[list[str], typer.Argument(help="Files, folders or globs that might be added.")],
    against: Annotated[str, typer.Option(help="An output folder of `datamask curate`, whose work/ is still there.")],
    targets: Annotated[
        list[str] | None,
        typer.Option(help="Texts from outside both: what judges say of them after the choice with NEW and without."),
    ] = None,
    judges: Annotated[
        list[str] | None, typer.Option("--judge", help="coder, n-grams, network; several times. [coder, n-grams]")
    ] = None,
    draws: Annotated[int, typer.Option(help="Random choices for the controls, at least 8.")] = 8,
    bytes_: Annotated[
        int | None, typer.Option("--bytes", min=1000, help="Of every reading; give one number to compare additions.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Folder for worth.md, worth.json and what is computed; by default nothing is kept.",
            callback=outside_releases,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a new dump or data set would add to a release, before anybody trains on it."""
    check_place(against, [], targets or [])
    from datamask.report import terminal
    from datamask.study import run
    from datamask.study import worth as asking

    chosen = tuple(dict.fromkeys(judges or run.Settings.judges))
    judging = run.Settings(judges=chosen, bytes=bytes_, draws=draws)
    with terminal.progress_line() as line, prints_aside(as_json):
        found = asking.find_worth(new, against, targets or [], judging, to, line)
    paths = asking.write_worth(to, found) if to else {}
    if as_json:
        print(escaped({**found.as_json(), "paths": paths}))
        return
    terminal.show_tables(asking.lead(found), asking.tables(found), paths)


def read_arms(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Arms of the command line, name -> changes of the settings of `select`.

    :raises ConfigError: no name, no settings, an unknown setting, or a name that is the judge's own.
    """
    from pydantic import ValidationError

    from datamask.study.run import ARMS

    found: dict[str, dict[str, Any]] = {}
    for text in given:
        name, _, rest = text.partition("=")
        name = name.strip()
        changes: dict[str, Any] = {}
        for part in _settings(rest):
            setting, _, value = part.partition("=")
            if not name or not value.strip():
                raise ConfigError(f"--arm {text!r}: write NAME=setting=value,setting=value, e.g. 'λ 0.7=lamb=0.7'")
            if setting.strip() not in Select.model_fields:
                raise ConfigError(f"--arm {text!r}: no setting {setting.strip()!r}; {', '.join(Select.model_fields)}")
            try:
                changes[setting.strip()] = YAML(typ="safe").load(value)
            except YAMLError as error:
                raise ConfigError(f"--arm {text!r}: {value!r} is not a value") from error
        if name in (*ARMS, RANDOM, *CONTROLS, *found):
            raise ConfigError(f"--arm {text!r}: there is an arm {name!r} already; give it another name")
        try:
            Select.model_validate(changes)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ConfigError(f"--arm {text!r}: {place}: {first['msg']}") from error
        found[name] = changes
    return found


def _settings(text: str) -> list[str]:
    """The text at its commas; those within {…} and […] are a value's own."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


# ---------------------------------------------------------------- choices of one corpus beside each other


def sweep(
    corpus: PlaceArgument,
    points: Annotated[int, typer.Option(min=2, help="How many λ from 0 to 1; the configuration's own is added.")] = 11,
    set_: SetOption = None,
    documents: Annotated[int, typer.Option(min=100, help="At most about so many: a uniform sample.")] = 100_000,
    pick: Annotated[str | None, typer.Option(help="knee, or quality=NUMBER: the least mean quality.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The YAML file the pick is written into.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Folder for sweep.html, sweep.json, front.png.", callback=outside_releases),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the balance of quality and diversity for λ from 0 to 1 on an embedded corpus."""
    if config is not None and pick is None:
        raise ConfigError("--config is the file a pick is written into; say which: --pick knee, or --pick quality=0.9")
    if config is not None:
        _read_yaml(config)  # before the work, not after it
    work = check_place(corpus, set_ or [])
    folder = writable(to or join(work, "sweep"))
    from datamask.report import terminal
    from datamask.study import embedded
    from datamask.study import sweep as measured

    if pick:
        measured.wished_quality(pick)
    with terminal.progress_line() as line, prints_aside(as_json):
        pool = embedded.load_corpus(corpus, documents, set_ or [])
        lambdas = [*(round(point / (points - 1), 6) for point in range(points)), pool.config.selection.lamb]
        found = measured.sweep_lambdas(pool, lambdas, lambda lamb, seconds: line(f"λ {lamb:.2f}  {seconds:.1f} s"))
    paths = measured.write_front(folder, found)
    picked = measured.pick_point(found, pick) if pick else None
    if picked and config:
        write_lamb(config, picked.lamb)
    if as_json:
        extra: dict[str, Any] = {"paths": paths, "picked": picked.lamb if picked else None}
        print(escaped({**asdict(found), **extra}))
    else:
        measured.show_sweep(found, paths, picked, config)


def ablate(
    corpus: PlaceArgument,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, …: each draws its own documents.")] = 3,
    documents: Annotated[int, typer.Option(min=100, help="Documents of a seed's pool, at most about.")] = 10_000,
    only: Annotated[list[str] | None, typer.Option(help="Only arms with this in their name; several times.")] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(help="Texts from outside the pool, on which the coder judges every arm; patterns too."),
    ] = None,
    set_: SetOption = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Folder for ablation.html, .json and .md.", callback=outside_releases)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare selections of one embedded corpus side by side."""
    work = check_place(corpus, set_ or [], targets or [])
    folder = writable(to or join(work, "ablation"))
    from datamask.report import findings, terminal
    from datamask.study import ablation, embedded

    asked = read_targets(expand_patterns(targets)) if targets else []
    with terminal.progress_line() as line, prints_aside(as_json):
        embedded.load_corpus(corpus, 100, set_ or [])  # what is wrong shows before the work, not after it
        found = ablation.ablate(
            lambda seed: embedded.load_corpus(corpus, documents, set_ or [], seed),
            list(range(seeds)),
            only or [],
            asked,
            line,
        )
    paths = ablation.write_ablation(folder, found)
    if as_json:
        print(escaped({**findings.plain_json(asdict(found)), "paths": paths}))
    else:
        terminal.show_tables(ablation.lead(found), ablation.tables(found), paths)


def write_lamb(path: Path, lamb: float) -> None:
    """Sets select.lamb in a YAML configuration; everything else stays as it is: comments, line ends, a byte-order mark.

    :raises ConfigError: the file cannot be read, is not a configuration, or would not be a valid one.
    """
    yaml, settings = _read_yaml(path)
    if "select" not in settings:
        settings["select"] = {}
    settings["select"]["lamb"] = lamb
    stream = io.StringIO()
    yaml.dump(settings, stream)
    validate(yaml.load(stream.getvalue()), str(path))
    before, after = path.read_bytes(), stream.getvalue().encode()
    if b"\r\n" in before:
        after = after.replace(b"\n", b"\r\n")
    write_content(str(path), codecs.BOM_UTF8 + after if before.startswith(codecs.BOM_UTF8) else after)


def _read_yaml(path: Path) -> tuple[Any, Any]:
    load_config(path)  # one clear message for everything that may be wrong with it
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    text = path.read_text(encoding="utf-8-sig")
    return yaml, yaml.load(text) or yaml.load(f"{text.rstrip()}\nselect:\n  lamb: 0.5\n")  # whose comments stay
