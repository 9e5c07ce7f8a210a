"""What settings choose from an embedded corpus; coverage of words is given the texts, and a target fairly.

    mask = choose_documents(corpus, settings, judged=targets)      # (N,) bool

A choice made for a target may be told everything about it but what it is judged by: the items that the judge reads are
taken out of the texts of `select.target` before the choice is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask.config import ResolvedSelect
from datamask.errors import ConfigError, InputError
from datamask.selection.arrays import select
from datamask.selection.cover.counting import read_target, reads_words
from datamask.study.embedded import Embedded
from datamask.study.targets import Target

PLAIN = ("random", "top-quality", "semdedup")  # solvers that look at no metric, and so need no words


def choose_documents(
    corpus: Embedded,
    settings: ResolvedSelect,
    judged: Sequence[Target] = (),
    texts: Sequence[bytes] | None = None,
    quality: npt.NDArray[np.float32] | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> npt.NDArray[Any]:
    """The selection: (N,) bool, or with `select.repeat` how often each document is taken.

    :param judged: targets whose items the choice must not be told.
    :param texts: the candidates'; read from the corpus where they are needed and not given.
    :param quality: (N,) instead of the corpus's quality score.
    :param note: is told what a user has to know of the choice: documents left out since they hold the target.
    :raises ConfigError: the algorithm covers a target and `select.target` names none.
    :raises InputError: the judge reads every item of `select.target`; or as `arrays.select`.
    """
    words = {}
    if settings.solver == "semdedup" or (settings.solver not in PLAIN and settings.reads_vectors):
        corpus.require_vectors(f"solver {settings.solver} on {settings.metric}")
    if settings.solver in PLAIN:
        settings = settings.model_copy(update={"algorithm": "pairwise", "target": []})
    elif reads_words(settings):
        words = _words(corpus, settings, judged, texts)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        found = select(
            corpus.features,
            corpus.quality if quality is None else quality,
            tokens=corpus.tokens,
            settings=settings,
            **words,
        )
    for warning in told:
        note(str(warning.message))
    return found.times


def texts_of(corpus: Embedded) -> list[bytes]:
    return [(row.get("text") or "").encode("utf-8", "replace") for row in corpus.sample.columns(corpus.rows, ["text"])]


def names_of(corpus: Embedded) -> list[str]:
    """The candidates as people look them up, shard:chunk_id."""
    sample = corpus.sample
    return [f"{sample.files[sample.shard[row]].shard.name}:{sample.chunk_id[row]}" for row in corpus.rows]


def _words(
    corpus: Embedded, settings: ResolvedSelect, judged: Sequence[Target], texts: Sequence[bytes] | None
) -> dict[str, Any]:
    held = texts_of(corpus) if texts is None else texts
    words: dict[str, Any] = {"texts": [text.decode("utf-8", "replace") for text in held]}
    if "coverage-target" in settings.metrics:
        words["target"] = _untold(settings, judged)
    return words


def _untold(settings: ResolvedSelect, judged: Sequence[Target]) -> list[str]:
    """The texts of `select.target` without those that a judge reads."""
    if not settings.target:
        raise ConfigError("algorithm coverage of a target needs one; set select.target to files of texts")
    read = {_plain(item.whole.decode("utf-8", "replace")) for target in judged for item in target.items}
    rest = [text for text in read_target(settings.target).texts if _plain(text) not in read]
    if not rest:
        raise InputError(
            f"the judge reads every item of select.target ({', '.join(settings.target)}), and a choice may not be told "
            "what it is judged by; judge by other targets, or by fewer of their bytes"
        )
    return rest


def _plain(text: str) -> str:
    return " ".join(text.split())
