"""`datamask sweep` and `datamask ablate`: selections of one embedded corpus beside each other."""

from __future__ import annotations

import codecs
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from datamask.config import load_config, validate
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError
from datamask.options import JsonOption, SetOption, prints_aside
from datamask.stages import check_place
from datamask.storage import expand_patterns, join, writable, write_content
from datamask.study.targets import read_targets
from datamask.surroundings import escaped

PlaceArgument = Annotated[str, typer.Argument(help="An output folder, its work/, or one of its releases.")]


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
    from datamask.study import embedded, front, study_terminal
    from datamask.study import sweep as measured

    if pick:
        measured.wished_quality(pick)
    with terminal.progress_line() as line, prints_aside(as_json):
        pool = embedded.load_corpus(corpus, documents, set_ or [])
        lambdas = [*(round(point / (points - 1), 6) for point in range(points)), pool.config.selection.lamb]
        found = measured.sweep_lambdas(pool, lambdas, lambda lamb, seconds: line(f"λ {lamb:.2f}  {seconds:.1f} s"))
    paths = front.write_front(folder, found)
    picked = measured.pick_point(found, pick) if pick else None
    if picked and config:
        write_lamb(config, picked.lamb)
    if as_json:
        extra: dict[str, Any] = {"paths": paths, "picked": picked.lamb if picked else None}
        print(escaped({**asdict(found), **extra}))
    else:
        study_terminal.show_sweep(found, paths, picked, config)


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
    from datamask.study import ablation, arms, embedded, study_terminal

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
    paths = arms.write_ablation(folder, found)
    if as_json:
        print(escaped({**findings.plain_json(asdict(found)), "paths": paths}))
    else:
        study_terminal.show_tables(arms.lead(found), arms.tables(found), paths)


def write_lamb(path: Path, lamb: float) -> None:
    """Sets select.lamb in a YAML configuration; everything else stays as it is: comments, line ends, a byte-order mark.

    :raises ConfigError: the file cannot be read, is not a configuration, or would not be a valid one.
    """
    import io

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
    from ruamel.yaml import YAML

    load_config(path)  # one clear message for everything that may be wrong with it
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    text = path.read_text(encoding="utf-8-sig")
    return yaml, yaml.load(text) or yaml.load(f"{text.rstrip()}\nselect:\n  lamb: 0.5\n")  # whose comments stay
