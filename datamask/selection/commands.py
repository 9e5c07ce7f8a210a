"""`datamask select`: from one file of embedded, scored documents to its mask."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from datamask import extensions
from datamask.certificate_words import describe
from datamask.config import Select, load_config, resolve
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError
from datamask.options import prints_aside


def select(
    input_: Annotated[str, Option("--input", help="Parquet: chunk_id, quality_score, feature_arr; a path or URL.")],
    output: Annotated[
        str, Option(help="Parquet to write: chunk_id, selected, probability.", callback=outside_releases)
    ],
    config: Annotated[Path | None, Option(help="YAML file; its section `select` is the start.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="A setting: select.quotas='[{column: domain, …}]'.")] = None,
    quality: Annotated[list[str] | None, Option(help="Quality column, or column=weight; may be repeated.")] = None,
    device: Annotated[str | None, Option(help="auto, cpu, cuda, cuda:0, …")] = None,
    seed: Annotated[int | None, Option(help="Same seed, same mask.")] = None,
    json_: Annotated[bool, Option("--json", help="Print one JSON object: objective, upper_bound, history, …")] = False,
    quiet: Annotated[bool, Option("--quiet", help="No progress on stderr.")] = False,
    solver: Annotated[
        str | None, Option(help=f"{', '.join(extensions.BUILT_IN['solver'])}, or one of your own.")
    ] = None,
    algorithm: Annotated[
        str | None, Option(help="coverage, DiSF, Facility, Pair_simi, or a registered metric.")
    ] = None,
    lamb: Annotated[float | None, Option(help="Weight of quality: 1 top-quality, 0 diversity alone.")] = None,
    calibrate: Annotated[
        bool | None, Option(help="Terms measured from random (0) to their own best (1), or the paper's raw sum.")
    ] = None,
    semantic_duplicates: Annotated[
        float | None, Option(help="Leave out first what has a cosine above 1 − this to a better one; 0.05 if not set.")
    ] = None,
    keep_duplicates: Annotated[bool, Option("--keep-duplicates", help="Leave none out.")] = False,
    select_ratio: Annotated[
        float | None, Option("--select_ratio", "--select-ratio", help="Budget: share of what is not left out.")
    ] = None,
    token_ratio: Annotated[
        float | None,
        Option("--token_ratio", "--token-ratio", help="Budget: share of the tokens, column token_count; usual: 0.1."),
    ] = None,
    budget_documents: Annotated[int | None, Option(help="Budget: documents.")] = None,
    budget_tokens: Annotated[int | None, Option(help="Budget: tokens; needs the column token_count.")] = None,
    repeat: Annotated[int | None, Option(help="How often a row may be taken, under --budget-tokens.")] = None,
    length_tolerance: Annotated[float | None, Option(help="Mean tokens within this share of the pool's mean.")] = None,
    n_epochs: Annotated[int | None, Option("--n_epochs", "--n-epochs", help="policy-gradient: steps.")] = None,
    n_rollout: Annotated[int | None, Option("--n_rollout", "--n-rollout", help="…: masks drawn a step.")] = None,
    partial: Annotated[float | None, Option(help="…: share of the pool updated a step.")] = None,
    max_lr: Annotated[float | None, Option("--max_lr", "--max-lr", help="…: first learning rate.")] = None,
    min_lr: Annotated[float | None, Option("--min_lr", "--min-lr", help="…: last learning rate.")] = None,
    init: Annotated[str | None, Option(help="…: first logits, same or quality.")] = None,
    prune: Annotated[float | None, Option(help="…: share of lowest quality left out first.")] = None,
    block_documents: Annotated[int | None, Option(help="…: documents of a random block.")] = None,
    gradient: Annotated[str | None, Option(help="…: of ln P(mask), surrogate or order.")] = None,
    published: Annotated[
        bool | None, Option("--published/--no-published", help="…: exactly the published estimator, or ours.")
    ] = None,
) -> None:
    """Select from one file of embedded, scored documents."""
    given = {name: value for name, value in locals().items() if name in Select.model_fields and value is not None}
    import numpy as np

    from datamask.selection.arrays import select_from
    from datamask.selection.candidates import TOKENS, columns_of, quality_weight, read_pool, write_mask
    from datamask.selection.problem.limits import idle_quotas
    from datamask.selection.problem.pool import find_repeats

    if budget_documents and budget_tokens:
        raise ConfigError("--budget-documents and --budget-tokens are both set; keep one")
    if keep_duplicates:
        given["semantic_duplicates"] = None
    asked = load_config(config, set_ or []).select
    settings = resolve(asked, given, words=False, tokens=TOKENS in columns_of(input_))
    weights = dict(map(quality_weight, quality or ["quality_score"]))
    chunk_id, pool = read_pool(input_, settings, weights)
    for sentence in idle_quotas(settings, pool.groups):
        print(f"datamask: {sentence}", file=sys.stderr)
    keep = np.arange(len(pool))
    if settings.semantic_duplicates is not None:
        score = pool.quality @ list(weights.values())
        keep = np.flatnonzero(~find_repeats(pool, score, settings.semantic_duplicates, settings.seed))
    with prints_aside(json_):
        found = select_from(pool.take(keep), settings, None if quiet else _Report()).placed(keep, len(pool))
    facts = {"input": input_, "output": output, **found.facts(), "semantic_duplicates": len(pool) - len(keep)}
    write_mask(output, chunk_id, found, {name: facts[name] for name in facts if name != "seconds"})
    print(json.dumps(facts) if json_ else _summary(facts, settings.calibrate))


class _Report:
    """A line on stderr, a second apart at least."""

    def __init__(self) -> None:
        self.last = -1.0

    def __call__(self, record: Mapping[str, float]) -> None:
        if time.monotonic() - self.last >= 1:
            self.last = time.monotonic()
            print("  ".join(f"{name} {value:.6g}" for name, value in record.items()), file=sys.stderr, flush=True)


def _summary(facts: Mapping[str, Any], calibrated: bool) -> str:
    terms = ", ".join(f"{name} {value:.4f}" for name, value in facts["terms"].items())
    return (
        f"{facts['selected']} of {facts['documents']} documents selected; "
        f"{facts['semantic_duplicates']} near-duplicates left out\n"
        f"{describe(facts, calibrated)}; terms: {terms}\n"
        f"{facts['seconds']:.1f} s; {facts['output']}"
    )
