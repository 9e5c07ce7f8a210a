"""`datamask fit-quality`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datamask.config import load_config
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError, InputError, nearest
from datamask.options import JsonOption, SetOption
from datamask.quality.documents import Documents
from datamask.quality.probe import CHECK_SENTENCES, features, save_probe
from datamask.quality.rules import score_rules
from datamask.storage import open_parquet

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from datamask.config import Config


def fit_quality(
    labels: Annotated[Path, typer.Option(help="Parquet file of labelled documents: a text and a label column.")],
    output: Annotated[Path, typer.Option(help="Folder for the probe.")] = Path("probe"),
    column: Annotated[str, typer.Option(help="Column of labels: numbers, or two values.")] = "label",
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    positive: Annotated[str | None, typer.Option(help="The label that is good; every other is not.")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column of groups kept apart in cross validation; by default source where there is one."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="The run's encoder: a model's name or folder, or none for the signals alone.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with the encoder's settings.")] = None,
    set_: SetOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same probe.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Fit a quality score on labelled documents: a linear model on embeddings and heuristic signals."""
    outside_releases(str(output))
    overrides = [*(set_ or []), *([] if encoder in (None, "none") else [f"encoder.model={json.dumps(encoder)}"])]
    source = LabelledFile(labels, column, text, positive, group)
    described = fit_from_file(source, output, None if encoder == "none" else load_config(config, overrides), seed)
    if as_json:
        print(json.dumps(described, sort_keys=True))
        return
    from rich.table import Table

    from datamask.console import new_console

    measure = next(iter(described["agreement"].values()))["measure"]
    split = f"groups of {described['group']} kept apart" if described["group"] else "documents split at random"
    title = f"{measure} on unseen documents ({len(described['agreement']['probe']['folds'])} folds, {split})"
    table = Table("score", "all", "lowest fold", "highest fold", title=title)
    for name, found in described["agreement"].items():
        folds = found["folds"] or [float("nan")]
        table.add_row(name, f"{found['pooled']:.3f}", f"{min(folds):.3f}", f"{max(folds):.3f}")
    console = new_console()
    console.print(table)
    used = f"Use it: --set 'quality.scorers=[{{kind: probe, model: {output}}}]'"
    console.print(f"Probe: {output}\n{used}", soft_wrap=True)


@dataclass(frozen=True)
class LabelledFile:
    """A parquet file of labelled documents, and which of its columns are which. See `fit_quality`."""

    path: Path
    column: str
    text: str
    positive: str | None
    group: str | None


def fit_from_file(source: LabelledFile, output: Path, config: Config | None, seed: int) -> dict:
    """Fits, measures and saves a probe; returns what its `probe.json` says.

    :param config: has the encoder whose vectors the probe reads; None: it reads the signals alone.
    :raises InputError: the file or a column is not there, or the labels cannot be learned from.
    :raises ConfigError: the encoder is "static", which belongs to a corpus.
    """
    import numpy as np

    from datamask.quality.fit import compare, fit_probe, read_labels

    path, column = source.path, source.column
    table, group = _read(path, [source.text, column], source.group)
    texts = [value or "" for value in table[source.text].to_pylist()]
    groups = table[group].to_pylist() if group else None
    labels = read_labels(table[column].to_pylist(), groups, source.positive, f"{path}, column {column}")
    vectors, check, encoder = (None, None, None) if config is None else _vectors(texts, config)
    documents = Documents(np.arange(len(texts)), texts)
    found = features(vectors, documents)
    lengths = np.array([len(value) for value in texts], dtype=np.float64)
    measured = compare(found, {"heuristic": score_rules(documents.signals), "length": lengths}, labels, seed, str(path))
    if vectors is not None:
        alone = compare(features(None, documents), {}, labels, seed, str(path))
        measured["probe, signals alone"] = alone["probe"]
    described = {
        "agreement": {name: asdict(one) for name, one in measured.items()},
        "dimensions": 0 if vectors is None else int(vectors.shape[1]),
        "documents": len(texts),
        "encoder": encoder,
        "group": group,
        "label": column,
        "positive": labels.positive,
        "seed": seed,
    }
    save_probe(output, fit_probe(found, labels, seed), described, check)
    return described


def _read(path: Path, columns: list[str], group: str | None) -> tuple[pa.Table, str | None]:
    """The columns, and the group's (an empty name: none; None: source, where there is one) with its name."""
    import pyarrow as pa

    try:
        with open_parquet(str(path)) as file:
            names = file.schema_arrow.names
            group = "source" if group is None and "source" in names else group or None
            wanted = [*columns, *([group] if group else [])]
            for name in wanted:
                if name not in names:
                    raise InputError(
                        f"{path}: no column {name!r}{nearest(name, names)} (there are: {', '.join(names)})"
                    )
            return file.read(columns=list(dict.fromkeys(wanted))), group
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; --labels is a parquet file of labelled documents") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a parquet file, or a damaged one ({error})") from error


def _vectors(texts: list[str], config: Config) -> tuple[np.ndarray, np.ndarray, str]:
    """The texts' embeddings, those of the check sentences, and the encoder's name."""
    from datamask.encoders.load import load_encoder
    from datamask.encoders.pin import pin_model

    settings = config.encoder
    if settings.model in ("static", "column"):
        raise ConfigError(
            f"encoder.model is {settings.model}: name the model the run uses with --encoder; for the one fitted on a "
            f"corpus its folder, work/encoder/… in the run's output; --encoder none fits on the signals alone"
        )
    with tempfile.TemporaryDirectory(prefix="datamask-probe-") as work:
        ref = pin_model(settings, work)
    model = load_encoder(ref, settings.device)
    both = model.compute(model.tokenise([*texts, *CHECK_SENTENCES]), settings.batch_tokens).vectors
    return both[: len(texts)], both[len(texts) :], ref.name
